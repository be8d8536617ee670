// Checks the head of an HTTP/2 request against the rules for HTTP/1.1 [D27, D39]. If a head violates section 8 of
// RFC 9113, Node resets the stream before this code runs. test/transport/http2.test.ts fails if a version of Node does not.

import { fieldNameOf } from '../common/fields.ts';
import { colon, methodBytes, methodBytesMax, targetBytes } from '../../http1/grammar.ts';
import { RequestFields, type Flaw, type RequestHead } from '../../http1/head.ts';

/**
 * Largest number of fields in a head; a head with more gets 431. A limit on bytes is not enough, because a field needs more
 * memory than its text, and one received byte can stand for a field of 4 KB [RFC 7541, 6.1].
 */
export const fieldsMax = 80;
// Bytes that count for a field in addition to its name and value: the `: ` and the CRLF of an HTTP/1.1 line [D27].
const lineBytes = 4;

/**
 * Reads a head from `fields` (name, value, name, value, in the order received). Returns a flaw if the head is invalid.
 * `endsThere`: true if no body follows. `bytesMax`: the largest total size of the fields, in bytes.
 */
export function readHead(fields: readonly string[], endsThere: boolean, bytesMax: number): RequestHead | Flaw {
  if (fields.length / 2 > fieldsMax) {
    return { kind: 'head-too-large', reason: `a head of more than ${fieldsMax} fields` };
  }
  const taken = new RequestFields();
  const pseudo = { ':method': '', ':scheme': 'https', ':path': '', ':authority': undefined as string | undefined };
  let host: string | undefined;
  let bytes = 0;
  for (let index = 0; index < fields.length; index += 2) {
    const name = fields[index] ?? '';
    const value = fields[index + 1] ?? '';
    bytes += name.length + value.length + lineBytes;
    if (name.charCodeAt(0) === colon) {
      pseudo[name as keyof typeof pseudo] = value;
      continue;
    }
    const known = fieldNameOf(name);
    if (known === 'host') host = value;
    else if (known !== undefined) taken.take(known, value);
  }
  if (bytes > bytesMax) return { kind: 'head-too-large', reason: `a head of more than ${bytesMax} bytes` };
  const { ':method': method, ':scheme': scheme, ':authority': authority, ':path': path } = pseudo;
  if (method.length > methodBytesMax || !consistsOf(method, methodBytes)) return invalid('an invalid method');
  if (!/^https?$/i.test(scheme)) return invalid('a scheme other than http and https');
  if (!consistsOf(path, targetBytes)) return invalid('an invalid target');
  // If `:authority` and `host` differ, implementations disagree on which of them to use [RFC 9113, 8.3.1].
  if (authority !== undefined && host !== undefined && authority.toLowerCase() !== host.toLowerCase()) {
    return invalid('a host that differs from the authority');
  }
  const name = authority ?? host;
  if (name !== undefined) taken.take('host', name);
  const head = taken.finish(method, method === 'CONNECT' ? (authority ?? '') : path, 1);
  if ('reason' in head) return head;
  // While the stream is open, a content-length that is 0 or missing counts as `chunked`, because the client may still
  // reset the stream. So only the end of the stream completes the request [D11].
  return { ...head, version: '2', bodyLength: endsThere ? 0 : head.bodyLength === 0 ? 'chunked' : head.bodyLength };
}

function invalid(reason: string): Flaw {
  return { kind: 'invalid-head', reason };
}

function consistsOf(text: string, bytes: Uint8Array): boolean {
  for (let index = 0; index < text.length; index += 1) {
    if (bytes[text.charCodeAt(index)] !== 1) return false;
  }
  return true;
}
