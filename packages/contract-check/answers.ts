// What is odd about answers that the gateway can use all the same: clients, or the next change of the backend, may stumble
// over it. Nothing of this breaks an operation.

import type { Session } from './session.ts';
import { show } from '../backend-probe/describe.ts';

const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

/** Looks at every answer that came. */
export function lookAtAnswers(session: Session): void {
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
        session.tell(call, 'content-type', type === undefined ? 'nothing' : show(type));
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
