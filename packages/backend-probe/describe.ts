// Describes a call in words: the backend's response and the client's reply. Texts from the backend are shortened and
// escaped.

import { escapeControls } from '../core/text/escape.ts';
import type { Call } from './calls.ts';

const shownMax = 120;
// A cause may be longer, because TLS errors quote the certificate.
const causeShownMax = 400;

/** Makes text from the backend safe to show: escapes it and shortens it to `lengthMax`. */
export function show(text: string, lengthMax = shownMax): string {
  const safe = escapeControls(text);
  return safe.length > lengthMax ? `${safe.slice(0, lengthMax)}...` : safe;
}

// The header fields that most often explain a failure.
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

export function describeCame({ answer, reason, cause, hasBytes, outcome }: Call): string {
  const why = cause === undefined || reason === 'status' ? '' : `: ${show(cause, causeShownMax)}`;
  if (answer === undefined) {
    return `${hasBytes ? 'no readable answer' : 'no answer'}${why}`;
  }
  const fields = tellingFields
    .filter((name) => answer.fields.has(name))
    .map((name) => `${name}: ${show(answer.fields.get(name) ?? '')}`);
  const body = answer.framing === 'none' ? ['no body'] : [];
  return `${[`status ${answer.status}`, ...body, ...fields].join('; ')}${outcome === 'ok' ? '' : why}`;
}

export function describeReply({ reply, operation, outcome }: Call): string {
  // The body of a success may be long and explains nothing.
  return outcome === 'ok' && operation.passesAnswer
    ? `${reply.status} with the backend's body`
    : `${reply.status} ${reply.body.toString('utf8')}`;
}
