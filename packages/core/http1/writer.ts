// Writes the heads of HTTP/1.1 messages: requests to the backend and replies to clients. A head is built from nothing,
// never copied from a message that came in.

import { STATUS_CODES } from './node-http.ts';
import type { Reply, ReplyHead } from './transport.ts';

/**
 * The head of a request to the backend, with its empty line [D12, D23]. `fields` is name, value, ...; `bodyLength`
 * in bytes, undefined without a body.
 */
export function writeRequestHead(
  method: string,
  path: string,
  host: string,
  requestId: string,
  fields: readonly string[],
  bodyLength: number | undefined,
): string {
  let head = `${method} ${path} HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\nx-request-id: ${requestId}\r\n`;
  for (let index = 0; index < fields.length; index += 2) {
    head += `${fields[index] ?? ''}: ${fields[index + 1] ?? ''}\r\n`;
  }
  return bodyLength === undefined ? `${head}\r\n` : `${head}content-length: ${bodyLength}\r\n\r\n`;
}

const plainFieldText = /^[!-$&-~](?:[ -$&-~]*[!-$&-~])?$/;

/**
 * Any well-formed text as a field's value: its UTF-8, with everything but printable ASCII percent-encoded, `%` itself, and
 * spaces at its ends, which a field's value cannot have [RFC 9110, 5.5]. Percent-decoding gives the text back [D48].
 */
export function encodeFieldText(text: string): string {
  return plainFieldText.test(text)
    ? text
    : text.replace(/^ +| +$|[^ -$&-~]+/g, (part) =>
        Buffer.from(part).toString('hex').toUpperCase().replace(/../g, '%$&'),
      );
}

const statusTexts: Readonly<Record<number, string | undefined>> = STATUS_CODES;

/** Prepares the head of replies with `status` and `headers`, which are name, value, name, value. */
export function createReplyHead(status: number, headers: readonly string[]): ReplyHead {
  const start = `HTTP/1.1 ${status} ${statusTexts[status] ?? ''}\r\n${writeFields(headers)}`;
  return { status, headers, start };
}

/**
 * The head of a reply, with its empty line [D24]: its own headers, then those that differ each time. `ending` is the
 * field lines that the connection adds, `date` among them. A 204 has no length.
 */
export function writeReplyHead({ head, added, requestId, length }: Reply, ending: string): string {
  const start = added.length === 0 ? head.start : head.start + writeFields(added);
  return head.status === noContent
    ? `${start}x-request-id: ${requestId}\r\n${ending}\r\n`
    : `${start}content-length: ${length}\r\nx-request-id: ${requestId}\r\n${ending}\r\n`;
}

/** The status of a reply without a body, and so without a length [RFC 9110, 8.6]. */
export const noContent = 204;

function writeFields(headers: readonly string[]): string {
  let text = '';
  for (let index = 0; index < headers.length; index += 2) {
    text += `${headers[index] ?? ''}: ${headers[index + 1] ?? ''}\r\n`;
  }
  return text;
}

let dateSecond = NaN;
let dateLine = '';

/** The `date` line of this second [RFC 9110, 6.6.1]. */
export function writeDate(): string {
  const now = Date.now();
  const second = now - (now % 1_000);
  if (second !== dateSecond) {
    dateSecond = second;
    dateLine = `date: ${new Date(second).toUTCString()}\r\n`;
  }
  return dateLine;
}
