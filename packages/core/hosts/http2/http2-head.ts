// The head of a request that came over HTTP/2, by the same rules as one of HTTP/1.1 [D27, D39]. The library resets most
// streams whose head is malformed by RFC 9113, 8 before they come here (test/transport/http2.test.ts). What another version of
// it may let through is checked again.

import type { FieldName } from '../../http1/fields.ts';
import { fieldNameOf } from '../common/fields.ts';
import { colon, methodBytes, methodBytesMax, targetBytes } from '../../http1/grammar.ts';
import { RequestFields, type Flaw, type RequestHead } from '../../http1/head.ts';

/** Fields of one head; beyond it 431. They cost more than their bytes: one byte can be a field of 4 KB [RFC 7541, 6.1]. */
export const fieldsMax = 80;
// Of each field, as its line would have in HTTP/1.1 [D27].
const lineBytes = 4;

/**
 * The head that `fields` (name, value, name, value, as they came) make, or what is wrong with them; `endsThere` says that no
 * body follows, `bytesMax` how large names and values may be together.
 */
export function readHead(
  fields: readonly string[],
  endsThere: boolean,
  bytesMax: number,
): RequestHead | Flaw {
  if (fields.length / 2 > fieldsMax) {
    return { kind: 'head-too-large', reason: `a head of more than ${fieldsMax} fields` };
  }
  const taken = new RequestFields();
  const pseudo: Pseudo = { method: '', scheme: 'https', authority: undefined, path: '' };
  let host: string | undefined;
  let bytes = 0;
  let flaw: string | undefined;
  for (let index = 0; index < fields.length; index += 2) {
    const name = fields[index] ?? '';
    const value = fields[index + 1] ?? '';
    bytes += name.length + value.length + lineBytes;
    if (name.charCodeAt(0) === colon) {
      flaw ??= takePseudo(pseudo, name, value);
      continue;
    }
    const known = fieldNameOf(name);
    if (known === 'host') {
      flaw ??= host === undefined ? undefined : 'two host fields';
      host = value;
    } else if (known !== undefined) {
      flaw ??= ofConnection.has(known) ? 'a field of a connection' : undefined;
      taken.take(known, value);
    }
  }
  if (bytes > bytesMax) {
    return { kind: 'head-too-large', reason: `a head of more than ${bytesMax} bytes` };
  }
  flaw ??= findFlaw(pseudo, host);
  if (flaw !== undefined) {
    return { kind: 'malformed', reason: flaw };
  }
  const { method, authority, path } = pseudo;
  const name = authority ?? host;
  if (name !== undefined) {
    taken.take('host', name);
  }
  const head = taken.finish(method, method === 'CONNECT' ? (authority ?? '') : path, 1);
  if ('reason' in head) {
    return head;
  }
  // A body that is announced with no bytes can still be broken off: it is whole when the stream says so [D11].
  return {
    ...head,
    version: '2',
    bodyLength: endsThere ? 0 : head.bodyLength === 0 ? 'chunked' : head.bodyLength,
  };
}

interface Pseudo {
  method: string;
  scheme: string;
  authority: string | undefined;
  path: string;
}

function takePseudo(pseudo: Pseudo, name: string, value: string): string | undefined {
  switch (name) {
    case ':method':
      pseudo.method = value;
      return undefined;
    case ':scheme':
      pseudo.scheme = value;
      return undefined;
    case ':authority':
      pseudo.authority = value;
      return undefined;
    case ':path':
      pseudo.path = value;
      return undefined;
    default:
      return 'a pseudo-header field that is none';
  }
}

function findFlaw({ method, scheme, authority, path }: Pseudo, host: string | undefined): string | undefined {
  if (!isMethod(method)) {
    return 'a method that is none';
  }
  if (!/^https?$/i.test(scheme)) {
    return 'a scheme that is neither http nor https';
  }
  if (!consistsOf(path, targetBytes) || (method !== 'CONNECT' && !path.startsWith('/') && path !== '*')) {
    return 'a target that is none';
  }
  // Others differ on which of them counts [RFC 9113, 8.3.1].
  if (authority !== undefined && host !== undefined && authority.toLowerCase() !== host.toLowerCase()) {
    return 'a host that is another than the authority';
  }
  return undefined;
}

// These say something of a connection of HTTP/1.1 [RFC 9113, 8.2.2].
const ofConnection: ReadonlySet<FieldName> = new Set<FieldName>([
  'connection',
  'keep-alive',
  'transfer-encoding',
  'upgrade',
]);

function isMethod(text: string): boolean {
  return text.length > 0 && text.length <= methodBytesMax && consistsOf(text, methodBytes);
}

function consistsOf(text: string, bytes: Uint8Array): boolean {
  for (let index = 0; index < text.length; index += 1) {
    if (bytes[text.charCodeAt(index)] !== 1) {
      return false;
    }
  }
  return true;
}
