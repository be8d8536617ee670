// Makes the calls of the API reference, and shows each reply exactly as received.

/**
 * A copy of a template with these texts. A button with `data-copies` copies one of them.
 * @param {string} id
 * @param {Readonly<Record<string, string>>} texts
 */
const fill = (id, texts) => {
  const filled = document.getElementById(id).content.firstElementChild.cloneNode(true);
  for (const place of filled.querySelectorAll('[data-text]')) place.textContent = texts[place.dataset.text];
  for (const button of filled.querySelectorAll('[data-copies]')) {
    button.addEventListener('click', () => copy(button, texts[button.dataset.copies]));
  }
  return filled;
};

const say = (text) => document.getElementById('said').replaceChildren(text);

// Pages from other machines over plain HTTP have no clipboard API, so this copies from a field.
const copy = (button, text) => {
  const field = document.createElement('textarea');
  field.value = text;
  document.body.append(field);
  field.select();
  const result = document.execCommand('copy') ? 'Copied' : 'Copy failed';
  field.remove();
  button.focus();
  button.dataset.name ??= button.textContent;
  button.textContent = result;
  say(result);
  setTimeout(() => button.replaceChildren(button.dataset.name), 2_000);
};

const save = (bytes) => {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([bytes], { type: 'application/json' }));
  link.download = 'work-item.json';
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
};

// Lengths in characters. A longer body would freeze the page.
const shownMax = 200_000;
const lineMax = 60;
const indentedDepthMax = 20;

/**
 * Indents JSON by changing only the white space between its tokens, so no number is rounded. Short texts, texts of several
 * lines, and texts that would become longer than `shownMax` stay unchanged.
 */
const indent = (text) => {
  if (text.length <= lineMax || text.length > shownMax || text.trim().includes('\n')) return text;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+|"/g) ?? [];
  let depth = 0;
  const indented = tokens.reduce((written, token, index) => {
    const before = tokens[index - 1] ?? '';
    const opens = /^[[{]$/;
    const closes = /^[\]}]$/.test(token);
    depth += Number(opens.test(before)) - Number(closes);
    // A new line comes after `{`, `[` and `,`, and before `}` and `]`, but not within `{}` and `[]`.
    const breaks = closes ? !opens.test(before) : opens.test(before) || before === ',';
    const space = breaks ? `\n${'  '.repeat(Math.min(depth, indentedDepthMax))}` : before === ':' ? ' ' : '';
    return written + space + token;
  }, '');
  return indented.length > shownMax ? text : indented;
};

/** A table with the reply. Copy has the exact text, Download the exact bytes. */
const makeReply = ({ status, headers }, bytes, durationMs) => {
  const body = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  const indented = indent(body);
  const [most, length] = [shownMax, body.length].map((each) => each.toLocaleString('en'));
  const reply = fill('reply', {
    status,
    body,
    shown: indented.slice(0, shownMax),
    part: body.length > shownMax ? `The first ${most} of ${length} characters.` : '',
    headers: [...headers].map((header) => header.join(': ')).join('\n'),
    duration: `Duration: ${Math.round(durationMs)} ms`,
  });
  const [raw, download] = ['raw', 'download'].map((name) => reply.querySelector(`[data-name=${name}]`));
  raw.hidden = indented === body;
  raw.addEventListener('click', () => {
    const isRaw = raw.ariaPressed === 'false';
    raw.ariaPressed = String(isRaw);
    reply.querySelector('[data-text=shown]').textContent = isRaw ? body : indented;
  });
  download.addEventListener('click', () => save(bytes));
  return reply;
};

const quote = (text) => `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** The command that makes the same call in a shell. */
const commandOf = (url, { method, headers, body }) =>
  [
    `curl -X ${method} ${quote(url)}`,
    ...headers.map((header) => `-H ${quote(header.join(': '))}`),
    ...(body === undefined ? [] : [`--data-raw ${quote(body)}`]),
  ].join(' ');

/** Makes the call of a form. Until the reply arrives, only the call is shown. */
const send = async (form) => {
  const place = form.nextElementSibling;
  const fields = [...form.querySelectorAll('input')];
  const isMissing = fields.some(({ required, value }) => required && value === '');
  // Browsers take such a segment out of the path, so another path would be called.
  const isDots = /^\.\.?$/.test(form.elements['id']?.value);
  const problem = isMissing ? 'Required field is not provided' : isDots ? 'Browsers cannot send this id' : '';
  form.querySelector('.validation-errors').textContent = problem;
  place.replaceChildren();
  if (problem !== '') return;
  const token = document.getElementById('token')?.value ?? '';
  const body = form.elements['body']?.value;
  const headers = [
    ...fields.filter(({ dataset }) => dataset.in === 'header').map(({ name, value }) => [name, value]),
    ['authorization', token && `Bearer ${token}`],
    ['content-type', body === undefined ? '' : 'application/json'],
  ].filter(([, value]) => value !== '');
  const path = form.dataset.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(form.elements[name].value));
  const url = new URL(path.slice(1), document.baseURI).href;
  const request = { method: form.dataset.method, headers, body };
  const call = fill('call', { url, command: commandOf(url, request), problem: '' });
  place.append(call);
  try {
    const start = performance.now();
    const reply = await fetch(url, { ...request, cache: 'no-store' });
    const bytes = await reply.arrayBuffer();
    call.append(makeReply(reply, bytes, performance.now() - start));
    say(`Status ${reply.status}`);
  } catch (error) {
    const problem = `No reply: ${error.message}`;
    call.querySelector('[data-text=problem]').textContent = problem;
    say(problem);
  }
};

for (const form of document.forms) {
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void send(form);
  });
}

for (const operation of document.querySelectorAll('.opblock')) {
  const button = operation.querySelector('button');
  const body = operation.querySelector('.opblock-body');
  const toggle = () => {
    body.hidden = !body.hidden;
    button.ariaExpanded = String(!body.hidden);
  };
  button.addEventListener('click', () => {
    toggle();
    history.replaceState(null, '', body.hidden ? location.pathname : `#${operation.id}`);
  });
  if (location.hash === `#${operation.id}`) toggle();
}

// The dashboard's address works only on the gateway's own machine, so only local pages link to it.
const { dashboard } = document.documentElement.dataset;
if (dashboard && /^(localhost|.*\.localhost|127\.[\d.]+|\[::1\])$/.test(location.hostname)) {
  document.getElementById('dashboard').hidden = false;
  document.getElementById('dashboard').href = dashboard;
}
