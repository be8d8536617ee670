// Converts header fields between the gateway's form and the form of a host whose HTTP library parses and writes heads.

import { fieldNames, type FieldName } from '../../http1/fields.ts';
import type { Reply } from '../../http1/transport.ts';
import { noContent } from '../../http1/writer.ts';

const known: ReadonlySet<string> = new Set(fieldNames);

/** Returns `name` in lower case; undefined if the gateway does not read that field. */
export function fieldNameOf(name: string): FieldName | undefined {
  const lowerCase = name.toLowerCase();
  return known.has(lowerCase) ? (lowerCase as FieldName) : undefined;
}

interface ReplyFields extends Pick<Reply, 'head' | 'added' | 'requestId'> {
  readonly body: { readonly length: number };
}

/** Lists the headers that `writeReplyHead` writes, except connection headers: name, value, name, value. */
export function listReplyHeaders({ head, added, requestId, body }: ReplyFields): string[] {
  return head.status === noContent
    ? [...head.headers, ...added, 'x-request-id', requestId]
    : [...head.headers, ...added, 'content-length', String(body.length), 'x-request-id', requestId];
}
