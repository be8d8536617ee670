// Puts Swagger UI on the page, in the light or dark of the reader's system, with what it lacks for readers of
// narrow windows and of screen readers.

/* global Blob, SwaggerUIBundle, URL, document, navigator, setTimeout, window */

const dark = window.matchMedia('(prefers-color-scheme: dark)');
const followSystem = () => {
  document.documentElement.classList.toggle('dark-mode', dark.matches);
};
dark.addEventListener('change', followSystem);
followSystem();

// Only someone who sits at the gateway's machine can open the dashboard at that address.
const isLocal = /^(localhost|.*\.localhost|127\.[\d.]+|\[::1\])$/.test(window.location.hostname);
const dashboardUrl = isLocal ? document.documentElement.dataset.dashboard : undefined;

/** A Swagger UI plugin; the maps that it is given are those of Immutable. */
const adjustments = ({ React, getComponent }) => {
  const element = React.createElement;

  /** An answer: indented to be read, and as it came, which is also what is copied and saved. */
  const ReplyBody = ({ content }) => {
    const text = String(content);
    const indented = text.length > shownMax ? text : indent(text);
    const [isAsItCame, setAsItCame] = React.useState(false);
    const [copied, setCopied] = React.useState('');
    const whole = isAsItCame ? text : indented;
    const shown = whole.slice(0, shownMax);
    const tool = (name, onClick, more) =>
      element('button', { type: 'button', className: 'tool', onClick, ...more }, name);
    return element(
      'div',
      { className: 'reply' },
      element(
        'div',
        { className: 'tools' },
        element('h5', null, 'Response body'),
        indented === text
          ? null
          : tool('As it came', () => setAsItCame(!isAsItCame), { 'aria-pressed': isAsItCame }),
        tool(copied || 'Copy', () => {
          copy(text).then(
            () => setCopied('Copied'),
            () => setCopied('Not copied'),
          );
          setTimeout(() => setCopied(''), 2_000);
        }),
        tool('Download', () => save(text)),
      ),
      shown.length < highlightedMax
        ? element(getComponent('HighlightCode', true), { language: 'json' }, shown)
        : element('pre', { className: 'microlight' }, shown),
      shown === whole
        ? null
        : element(
            'p',
            null,
            `The first ${shownMax.toLocaleString('en')} of ${whole.length.toLocaleString('en')} characters; Copy and Download have all of it.`,
          ),
      element('p', { className: 'unseen', role: 'status' }, copied),
    );
  };

  // What every operation can get is said once, at the top of the page.
  const isShared = ({ path, method, specSelectors }, code) =>
    specSelectors.specJson().hasIn(['paths', path, method, 'responses', code, '$ref']);

  /** One documented reply: its status, when it comes, its bodies, its headers. No choosing from lists. */
  const Response = (props) => {
    const { code, response } = props;
    if (isShared(props, code)) {
      return null;
    }
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
      // Swagger UI's own parses it and writes it anew, and so rounds numbers.
      responseBody: ReplyBody,
      // There is one server, the one that the page comes from.
      ServersContainer: () => null,
      // Swagger UI's own is a link within a button. Opening an operation puts it into the address all the same.
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
          element('p', { className: 'shared-replies' }, `${codes.join(', ')}: see “Every operation” above.`),
        );
      },
      // A landmark for what stands outside the operations.
      InfoContainer: (Original) => (props) =>
        element('div', { role: 'region', 'aria-label': 'About' }, element(Original, props)),
      InfoUrl: (Original) => (props) =>
        element(
          'div',
          { className: 'links' },
          element(Original, props),
          dashboardUrl === undefined ? null : element('a', { href: dashboardUrl }, 'Dashboard'),
        ),
      TextArea: (Original) => (props) => element(Original, { ...props, 'aria-label': 'Request body' }),
    },
    statePlugins: {
      spec: {
        actions: {
          // Swagger's checks of version 2, which know no schema: an id of letters is for the gateway to refuse, and
          // what it makes of it is there to be tried.
          checkParameters: (pathMethod) => ({
            type: 'spec_validate_param',
            payload: { pathMethod, isOAS3: false },
          }),
        },
        wrapActions: {
          // At each press of Execute: what the press before has brought does not stand beside this one.
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

// Characters of an answer: beyond these it is not coloured, and not shown to its end, or the page would freeze.
const highlightedMax = 20_000;
const shownMax = 200_000;
const lineMax = 60;
const indentedDepthMax = 20;

/**
 * JSON as it came, but for white space between its tokens: nothing is parsed, so no number is rounded. What is short,
 * or has lines already, stays as it is.
 */
function indent(text) {
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+|"/g) ?? [];
  if (text.length <= lineMax || text.trim().includes('\n')) {
    return text;
  }
  let depth = 0;
  let written = '';
  const line = () => `\n${'  '.repeat(Math.min(depth, indentedDepthMax))}`;
  for (const [index, token] of tokens.entries()) {
    const isEmpty = /^[[{]$/.test(tokens[index - 1] ?? '');
    if (token === '}' || token === ']') {
      depth -= 1;
      written += isEmpty ? token : line() + token;
    } else {
      const isFirst = isEmpty || tokens[index - 1] === ',';
      written += index > 0 && isFirst ? line() + token : token;
      if (token === ':') {
        written += ' ';
      } else if (token === '{' || token === '[') {
        depth += 1;
      }
    }
  }
  return written;
}

async function copy(text) {
  if (window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // No clipboard for pages that come by plain HTTP from elsewhere: the old way.
  const field = document.createElement('textarea');
  field.value = text;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand('copy');
  field.remove();
  if (!isCopied) {
    throw new Error('the browser did not copy');
  }
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
  // Nothing leaves this machine: neither the document to a validator nor settings from the address.
  validatorUrl: null,
  queryConfigEnabled: false,
});
