// A call in words for people: what came, and what the client got. What the backend has said is cut short and made safe to
// show.

import { escapeControls } from '../core/text/escape.ts';
import type { Call } from './calls.ts';

const shownMax = 120;
// A reason of TLS has what the certificate says.
const causeShownMax = 400;

/** Text from the backend: safe to show, and not longer than a line or two. */
export function show(text: string, lengthMax = shownMax): string {
  const safe = escapeControls(text);
  return safe.length > lengthMax ? `${safe.slice(0, lengthMax)}...` : safe;
}

// What most often says why.
const tellingFields = [
  'location',
  'content-type',
  'content-encoding',
  'content-length',
  'allow',
  'www-authenticate',
  'proxy-authenticate',
  'retry-after',
  'server',
];

/** What came for a call. */
export function describeCame({ answer, reason, cause, hasBytes, outcome }: Call): string {
  const why = cause === undefined || reason === 'status' ? '' : `: ${show(cause, causeShownMax)}`;
  if (answer === undefined) {
    return `${hasBytes ? 'no answer that could be read' : 'no answer'}${why}`;
  }
  const fields = tellingFields
    .filter((name) => answer.fields.has(name))
    .map((name) => `${name}: ${show(answer.fields.get(name) ?? '')}`);
  const body = answer.framing === 'none' ? ['no body'] : [];
  return `${[`status ${answer.status}`, ...body, ...fields].join('; ')}${outcome === 'ok' ? '' : why}`;
}

/** What a client gets for it. */
export function describeReply({ reply, operation, outcome }: Call): string {
  // What is passed on of a success says nothing here, and may be long.
  return outcome === 'ok' && operation.passesAnswer
    ? `${reply.status} and the answer as it came`
    : `${reply.status} ${reply.body.toString('utf8')}`;
}
