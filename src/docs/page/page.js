// Puts Swagger UI on the page, in the light or dark of the reader's system, with what it lacks for readers of
// narrow windows and of screen readers.

/* global SwaggerUIBundle, document, window */

const dark = window.matchMedia('(prefers-color-scheme: dark)');
const followSystem = () => {
  document.documentElement.classList.toggle('dark-mode', dark.matches);
};
dark.addEventListener('change', followSystem);
followSystem();

/** A Swagger UI plugin; the maps that it is given are those of Immutable. */
const adjustments = ({ React, getComponent }) => {
  const element = React.createElement;

  /** One documented reply: its status, when it comes, its bodies, its headers. No choosing from lists. */
  const Response = ({ code, response }) => {
    const examples = response.getIn(['content', 'application/json', 'examples'])?.toJS() ?? {};
    return element(
      'tr',
      { className: 'response', 'data-code': code },
      element('td', { className: 'response-col_status' }, code),
      element(
        'td',
        { className: 'response-col_description' },
        element(getComponent('Markdown'), { source: response.get('description') }),
        ...Object.entries(examples).map(([name, { value }]) =>
          element('pre', { key: name, className: 'reply-body' }, write(value)),
        ),
        element(
          'details',
          { className: 'reply-headers' },
          element('summary', null, 'Headers'),
          element(
            'dl',
            null,
            ...[...response.get('headers').entries()].flatMap(([name, header]) => [
              element('dt', { key: name }, name),
              element('dd', { key: `${name} means` }, header.get('description')),
            ]),
          ),
        ),
      ),
    );
  };

  return {
    components: {
      response: Response,
      // As it came. Swagger UI's own parses it and writes it anew, and so rounds numbers.
      responseBody: ({ content }) =>
        element(
          'div',
          null,
          element('h5', null, 'Response body'),
          element(
            getComponent('HighlightCode', true),
            { language: 'json', downloadable: true, canCopy: true, fileName: 'work-item.json' },
            String(content),
          ),
        ),
      // There is one server, the one that the page comes from.
      ServersContainer: () => null,
      // Swagger UI's own is a link within a button. Opening an operation puts it into the address all the same.
      OperationSummaryPath: ({ operationProps }) =>
        element('span', { className: 'opblock-summary-path' }, operationProps.get('path')),
    },
    wrapComponents: {
      // A landmark for what stands outside the operations.
      InfoContainer: (Original) => (props) =>
        element('div', { role: 'region', 'aria-label': 'About' }, element(Original, props)),
      TextArea: (Original) => (props) => element(Original, { ...props, 'aria-label': 'Request body' }),
    },
  };
};

function write(value) {
  const line = JSON.stringify(value);
  return line.length < 50 ? line : JSON.stringify(value, null, 2);
}

SwaggerUIBundle({
  url: 'openapi.json',
  dom_id: '#reference',
  plugins: [adjustments],
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: -1,
  tryItOutEnabled: true,
  // Nothing leaves this machine: neither the document to a validator nor settings from the address.
  validatorUrl: null,
  queryConfigEnabled: false,
});
