// Checks a backend's contract: which operations work through this gateway, and what clients get from the other operations
// [D61].

import type { Call } from '../backend-probe/calls.ts';
import { show, type Finding } from '../backend-probe/failures.ts';
import type { OperationName } from '../core/operations.ts';
import { tryConnection, type ConnectionFacts } from './connection.ts';
import { tryReads } from './reads.ts';
import { Session, Stopped, type ContractOptions, type Leftover, type Verdict } from './session.ts';
import { tryWrites } from './writes.ts';

export interface ContractReport {
  readonly verdicts: ReadonlyMap<OperationName, Verdict>;
  readonly findings: readonly Finding[];
  readonly leftovers: readonly Leftover[];
  readonly connection: ConnectionFacts;
  readonly calls: readonly Call[];
  /** True if the check was stopped before its end. */
  readonly isInterrupted: boolean;
}

/** Runs the check. Rejects only for a bug of the gateway, and only after cleaning up. */
export async function checkContract(options: ContractOptions): Promise<ContractReport> {
  const session = new Session(options);
  try {
    await tryOperations(session);
    inspectAnswers(session);
    const connection = await tryConnection(session);
    const { verdicts, findings, leftovers, calls } = session;
    return { verdicts, findings, leftovers, connection, calls: calls.made, isInterrupted: options.stop.aborted };
  } finally {
    await session.calls.close();
  }
}

async function tryOperations(session: Session): Promise<void> {
  const { write } = session.options;
  try {
    const found = await tryReads(session);
    if (write !== undefined) await tryWrites(session, write, found);
  } catch (error) {
    if (!(error instanceof Stopped)) throw error;
  }
}

const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

// Warns of oddities in usable answers. They break no operation, but clients may fail on them. A slow or large answer may
// exceed a limit later.
function inspectAnswers(session: Session): void {
  const { backendTimeoutMs, responseBytesMax } = session.options.settings;
  const slowMs = session.options.slowMs ?? backendTimeoutMs / 2;
  for (const call of session.calls.made.filter(({ outcome }) => outcome === 'ok')) {
    const { answer, operation, reply, durationMs } = call;
    if (answer !== undefined && operation.passesAnswer) {
      if (answer.bodyStart.subarray(0, 3).equals(byteOrderMark)) session.tell(call, 'byte-order-mark');
      const type = answer.fields.get('content-type');
      if (type === undefined || !/^application\/(?:[\w.+-]+\+)?json\b/i.test(type)) {
        session.tell(call, 'content-type', type === undefined ? 'missing' : show(type));
      }
    }
    if (durationMs >= slowMs) session.tell(call, 'slow', Math.round(durationMs), backendTimeoutMs);
    if (operation.passesAnswer && reply.body.length > responseBytesMax / 2) {
      session.tell(call, 'near-limit', reply.body.length, responseBytesMax);
    }
  }
}
