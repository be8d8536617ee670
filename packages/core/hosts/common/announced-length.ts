// Compares a body with its `content-length`, because a host may pass on fewer or more bytes than the client sent [D70].

import { parseContentLength } from '../../http1/grammar.ts';
import type { BrokenReason } from '../../http1/transport.ts';

export const wrongLength: BrokenReason = {
  kind: 'invalid-length',
  reason: 'a body that is not as long as its content-length',
};

/** Returns true if a body of this length may have this `content-length`, or none. */
export function isAsAnnounced(contentLength: string | null | undefined, bytes: number): boolean {
  const announced = parseContentLength(contentLength ?? '');
  return announced === undefined || announced === bytes;
}
