// Writes the heads of HTTP/1.1 messages. Each head is built from scratch, never copied from an incoming message.

import type { Reply, ReplyHead } from './transport.ts';

/**
 * Returns the head of a request to the backend, with its empty line [D12, D23]. `fields` is name, value, name, value.
 * `bodyLength` is in bytes; undefined if there is no body.
 */
export function writeRequestHead(
  method: string,
  path: string,
  host: string,
  requestId: string,
  fields: readonly string[],
  bodyLength: number | undefined,
): string {
  const head = `${method} ${path} HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\nx-request-id: ${requestId}\r\n${writeFields(fields)}`;
  return bodyLength === undefined ? `${head}\r\n` : `${head}content-length: ${bodyLength}\r\n\r\n`;
}

const plainFieldText = /^[!-$&-~](?:[ -$&-~]*[!-$&-~])?$/;

/**
 * Percent-encodes well-formed text as a field value; percent-decoding restores the text [D48]. Encodes `%`,
 * characters that are not printable ASCII, and spaces at the beginning and end, byte by byte in UTF-8. A field value
 * cannot begin or end with a space [RFC 9110, 5.5].
 */
export function encodeFieldText(text: string): string {
  return plainFieldText.test(text)
    ? text
    : text.replace(/^ +| +$|[^ -$&-~]+/g, (part) =>
        Buffer.from(part).toString('hex').toUpperCase().replace(/../g, '%$&'),
      );
}

// The reason phrases of the statuses that the gateway sends [RFC 9110, 15]. To read them from node:http would load that
// module, which takes 10 ms and 0.5 MB at start-up.
const statusTexts: Readonly<Record<number, string | undefined>> = {
  200: 'OK',
  201: 'Created',
  204: 'No Content',
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'Not Found',
  405: 'Method Not Allowed',
  408: 'Request Timeout',
  413: 'Payload Too Large',
  417: 'Expectation Failed',
  429: 'Too Many Requests',
  431: 'Request Header Fields Too Large',
  500: 'Internal Server Error',
  503: 'Service Unavailable',
};

/** Prepares the head of replies with `status` and `headers` (name, value, name, value). */
export function createReplyHead(status: number, headers: readonly string[]): ReplyHead {
  const start = `HTTP/1.1 ${status} ${statusTexts[status] ?? ''}\r\n${writeFields(headers)}`;
  return { status, headers, start };
}

/**
 * Returns the head of a reply, with its empty line [D24]. `ending` has the field lines that the connection adds,
 * including `date`.
 */
export function writeReplyHead({ head, added, requestId, body }: Reply, ending: string): string {
  const start = added.length === 0 ? head.start : head.start + writeFields(added);
  return head.status === noContent
    ? `${start}x-request-id: ${requestId}\r\n${ending}\r\n`
    : `${start}content-length: ${body.length}\r\nx-request-id: ${requestId}\r\n${ending}\r\n`;
}

/** The status of a reply that has neither a body nor a `content-length` [RFC 9110, 8.6]. */
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

/** Returns the `date` line of the current second [RFC 9110, 6.6.1]. */
export function writeDate(): string {
  const now = Date.now();
  const second = now - (now % 1_000);
  if (second !== dateSecond) {
    dateSecond = second;
    dateLine = `date: ${new Date(second).toUTCString()}\r\n`;
  }
  return dateLine;
}
