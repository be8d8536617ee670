// Warns of oddities in usable answers. They break no operation, but clients may fail on them. A slow or large answer
// may exceed a limit later.

import type { Session } from './session.ts';
import { show } from '../backend-probe/describe.ts';

const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

/** Adds warnings for all answers so far. */
export function inspectAnswers(session: Session): void {
  const { backendTimeoutMs, responseBytesMax } = session.options.settings;
  const slowMs = session.options.slowMs ?? backendTimeoutMs / 2;
  for (const call of session.calls.made.filter(({ outcome }) => outcome === 'ok')) {
    const { answer, operation, reply, durationMs } = call;
    if (answer !== undefined && operation.passesAnswer) {
      if (answer.bodyStart.subarray(0, 3).equals(byteOrderMark)) {
        session.tell(call, 'byte-order-mark');
      }
      const type = answer.fields.get('content-type');
      if (type === undefined || !/^application\/(?:[\w.+-]+\+)?json\b/i.test(type)) {
        session.tell(call, 'content-type', type === undefined ? 'missing' : show(type));
      }
    }
    if (durationMs >= slowMs) {
      session.tell(call, 'slow', Math.round(durationMs), backendTimeoutMs);
    }
    if (operation.passesAnswer && reply.body.length > responseBytesMax / 2) {
      session.tell(call, 'near-limit', reply.body.length, responseBytesMax);
    }
  }
}
