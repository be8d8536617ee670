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
      session.warn(call, {
        code: 'slow',
        title: 'the backend is slow',
        clients: `the right reply, after ${Math.round(call.durationMs)} ms; behind BACKEND_TIMEOUT_MS (${backendTimeoutMs}) it is a 500`,
        advice: 'Look why it takes so long. Under load it takes longer.',
      });
    }
    if (call.operation.passesAnswer && call.reply.body.length > responseBytesMax / 2) {
      session.warn(call, {
        code: 'near-limit',
        title: `an answer has ${call.reply.body.length} bytes, of ${responseBytesMax} that it may have`,
        advice: 'Raise RESPONSE_BYTES_MAX before it grows further: behind that clients get a 500.',
      });
    }
  }
}

function warnOfBody(session: Session, call: Call): void {
  const { answer, operation } = call;
  if (answer === undefined || !operation.passesAnswer) {
    return;
  }
  if (answer.bodyStart.subarray(0, 3).equals(byteOrderMark)) {
    session.warn(call, {
      code: 'byte-order-mark',
      title: 'the JSON begins with a byte-order mark',
      advice:
        'The gateway passes it on [D13, D14]. Many parsers of clients fail on it: have the backend leave it out.',
    });
  }
  const type = answer.fields.get('content-type');
  if (type === undefined || !/^application\/(?:[\w.+-]+\+)?json\b/i.test(type)) {
    session.warn(call, {
      code: 'content-type',
      title: `the JSON is called ${type === undefined ? 'nothing' : show(type)}`,
      advice:
        'The gateway looks at the bytes and tells clients application/json. Others that ask this backend may not: it should say application/json.',
    });
  }
}
