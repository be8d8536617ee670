// Starts Swagger UI, with adjustments for exact replies, narrow windows and screen readers.

/* global Blob, SwaggerUIBundle, URL, document, navigator, setTimeout, window */

// The dashboard's address works only on the gateway's own machine, so only local pages link to it.
const isLocal = /^(localhost|.*\.localhost|127\.[\d.]+|\[::1\])$/.test(window.location.hostname);
const dashboardUrl = isLocal ? document.documentElement.dataset.dashboard : undefined;

/** The description before its first heading, which is above the operations, and the rest, which is below them. */
const partsOf = (specSelectors) => {
  const description = specSelectors.info().get('description');
  const end = description.indexOf('\n## ');
  return [description.slice(0, end), description.slice(end)];
};

/** A Swagger UI plugin. Swagger UI's maps are those of the library Immutable. */
const adjustments = ({ React, getComponent }) => {
  const element = React.createElement;

  /** The body of a reply: indented or raw. Copy and Download use the raw body. */
  const ReplyBody = ({ content }) => {
    const text = String(content);
    const indented = text.length > shownMax ? text : indent(text);
    const [isRaw, setRaw] = React.useState(false);
    const [copied, setCopied] = React.useState('');
    const whole = isRaw ? text : indented;
    const shown = whole.slice(0, shownMax);
    const say = (result) => {
      setCopied(result);
      setTimeout(() => setCopied(''), 2_000);
    };
    const tool = (name, onClick, more) =>
      element('button', { type: 'button', className: 'tool', onClick, ...more }, name);
    const part = `The first ${shownMax.toLocaleString('en')} of ${whole.length.toLocaleString('en')} characters.`;
    return element(
      'div',
      { className: 'reply' },
      element(
        'div',
        { className: 'tools' },
        element('h5', null, 'Response body'),
        indented !== text && tool('Raw', () => setRaw(!isRaw), { 'aria-pressed': isRaw }),
        tool(copied || 'Copy', () => {
          copy(text).then(
            () => say('Copied'),
            () => say('Copy failed'),
          );
        }),
        tool('Download', () => save(text)),
      ),
      shown.length < highlightedMax
        ? element(getComponent('HighlightCode', true), { language: 'json' }, shown)
        : element('pre', { className: 'microlight' }, shown),
      shown !== whole && element('p', null, `${part} Copy and Download use the whole body.`),
      element('p', { className: 'unseen', role: 'status' }, copied),
    );
  };

  // True for a reply that every operation can give. The end of the page describes these replies.
  const isShared = ({ path, method, specSelectors }, code) =>
    specSelectors.specJson().hasIn(['paths', path, method, 'responses', code, '$ref']);

  /** One documented reply, without drop-down lists: status, description, bodies, headers. */
  const Response = (props) => {
    const { code, response } = props;
    if (isShared(props, code)) return null;
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
      // Swagger UI's own component parses and rewrites the body, and so rounds numbers.
      responseBody: ReplyBody,
      // Hidden, because the gateway that serves this page is the only server.
      ServersContainer: () => null,
      // This is the last component on the page. The page shows no schemas.
      Models: ({ specSelectors }) =>
        element(
          'section',
          { className: 'info', 'aria-label': 'Errors and limits' },
          element(getComponent('Markdown'), { source: partsOf(specSelectors)[1] }),
        ),
      // Swagger UI's own component is a link within a button, which is invalid HTML. The link is not needed:
      // opening an operation changes the page's address anyway.
      OperationSummaryPath: ({ operationProps }) =>
        element('span', { className: 'opblock-summary-path' }, operationProps.get('path')),
    },
    wrapComponents: {
      responses: (Original) => (props) => {
        const codes = props.responses.keySeq().filter((code) => isShared(props, code));
        return element(
          React.Fragment,
          null,
          element(Original, props),
          element('p', { className: 'shared-replies' }, `${codes.join(', ')}: see “Every operation” below.`),
        );
      },
      operations: (Original) => (props) =>
        element(React.Fragment, null, element('h2', { className: 'unseen' }, 'Operations'), element(Original, props)),
      // A landmark for the content outside the operations.
      InfoContainer: (Original) => (props) =>
        element('div', { role: 'region', 'aria-label': 'About' }, element(Original, props)),
      InfoUrl: (Original) => (props) =>
        element(
          'div',
          { className: 'links' },
          element(Original, props),
          dashboardUrl && element('a', { href: dashboardUrl }, 'Dashboard'),
        ),
      TextArea: (Original) => (props) => element(Original, { ...props, 'aria-label': 'Request body' }),
    },
    statePlugins: {
      spec: {
        wrapSelectors: { selectInfoDescriptionField: (_, system) => () => partsOf(system.specSelectors)[0] },
        actions: {
          // Uses the checks for OpenAPI 2, which ignore the schema. So a visitor can send an invalid id and see the
          // gateway's reply.
          checkParameters: (pathMethod) => ({ type: 'spec_validate_param', payload: { pathMethod, isOAS3: false } }),
        },
        wrapActions: {
          // Runs at each click on Execute: clears the previous reply.
          validateParams:
            (_, { specActions }) =>
            (pathMethod) => {
              specActions.clearResponse(...pathMethod);
              specActions.checkParameters(pathMethod);
            },
        },
      },
    },
  };
};

// Lengths in characters. A long body would freeze the page: above the first length it is not highlighted, above the
// second it is not shown in full.
const highlightedMax = 20_000;
const shownMax = 200_000;
const lineMax = 60;
const indentedDepthMax = 20;

/**
 * Indents JSON by changing only the white space between its tokens, so no number is rounded. Short texts, and texts of
 * several lines, stay unchanged.
 */
function indent(text) {
  if (text.length <= lineMax || text.trim().includes('\n')) return text;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+|"/g) ?? [];
  let depth = 0;
  return tokens.reduce((written, token, index) => {
    const before = tokens[index - 1] ?? '';
    const opens = /^[[{]$/;
    const closes = /^[\]}]$/.test(token);
    depth += Number(opens.test(before)) - Number(closes);
    // A new line comes after `{`, `[` and `,`, and before `}` and `]`, but not within `{}` and `[]`.
    const breaks = closes ? !opens.test(before) : opens.test(before) || before === ',';
    const space = breaks ? `\n${'  '.repeat(Math.min(depth, indentedDepthMax))}` : before === ':' ? ' ' : '';
    return written + space + token;
  }, '');
}

async function copy(text) {
  if (window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Pages from other machines over plain HTTP have no clipboard API.
  const field = document.createElement('textarea');
  field.value = text;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand('copy');
  field.remove();
  if (!isCopied) throw new Error('the browser did not copy');
}

function save(text) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  link.download = 'work-item.json';
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
}

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
  // The document is not sent to a validator, and the page's query cannot change the configuration.
  validatorUrl: null,
  queryConfigEnabled: false,
});
