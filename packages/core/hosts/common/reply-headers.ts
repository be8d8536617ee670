// The headers of a reply, for hosts in which a library writes them.

import type { Reply } from '../../http1/transport.ts';
import { noContent } from '../../http1/writer.ts';

/** What `writeReplyHead` writes, without the headers of a connection, as name, value, name, value. */
export function listReplyHeaders({
  head,
  added,
  requestId,
  length,
}: Pick<Reply, 'head' | 'added' | 'requestId' | 'length'>): string[] {
  return head.status === noContent
    ? [...head.headers, ...added, 'x-request-id', requestId]
    : [...head.headers, ...added, 'content-length', String(length), 'x-request-id', requestId];
}
