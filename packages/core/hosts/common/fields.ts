// The fields of heads, for hosts in which a library reads and writes them.

import { fieldNames, type FieldName } from '../../http1/fields.ts';
import type { Reply } from '../../http1/transport.ts';
import { noContent } from '../../http1/writer.ts';

const known: ReadonlySet<string> = new Set(fieldNames);

/** The field of this name, in any case; undefined for one that nobody reads. */
export function fieldNameOf(name: string): FieldName | undefined {
  const small = name.toLowerCase();
  return known.has(small) ? (small as FieldName) : undefined;
}

type ReplyFields = Pick<Reply, 'head' | 'added' | 'requestId' | 'length'>;

/** What `writeReplyHead` writes, without the headers of a connection, as name, value, name, value. */
export function listReplyHeaders({ head, added, requestId, length }: ReplyFields): string[] {
  return head.status === noContent
    ? [...head.headers, ...added, 'x-request-id', requestId]
    : [...head.headers, ...added, 'content-length', String(length), 'x-request-id', requestId];
}
