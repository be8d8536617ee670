// What is odd about answers that the gateway can use all the same: clients, or the next change of the backend, may stumble
// over it. Nothing of this breaks an operation.

import type { Call } from '../backend-probe/calls.ts';
import type { Session } from './session.ts';
import { show } from '../backend-probe/describe.ts';

const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

/** Looks at every answer that came. */
export function lookAtAnswers(session: Session): void {
  const { backendTimeoutMs, responseBytesMax } = session.options.settings;
  const slowMs = session.options.slowMs ?? backendTimeoutMs / 2;
  for (const call of session.calls.made.filter(({ outcome }) => outcome === 'ok')) {
    warnOfBody(session, call);
    if (call.durationMs >= slowMs) {
      session.tell(call, 'slow', Math.round(call.durationMs), backendTimeoutMs);
    }
    if (call.operation.passesAnswer && call.reply.body.length > responseBytesMax / 2) {
      session.tell(call, 'near-limit', call.reply.body.length, responseBytesMax);
    }
  }
}

function warnOfBody(session: Session, call: Call): void {
  const { answer, operation } = call;
  if (answer === undefined || !operation.passesAnswer) {
    return;
  }
  if (answer.bodyStart.subarray(0, 3).equals(byteOrderMark)) {
    session.tell(call, 'byte-order-mark');
  }
  const type = answer.fields.get('content-type');
  if (type === undefined || !/^application\/(?:[\w.+-]+\+)?json\b/i.test(type)) {
    session.tell(call, 'content-type', type === undefined ? 'nothing' : show(type));
  }
}
