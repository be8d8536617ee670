// The check of a backend's contract: which of the five operations work through this gateway with this backend, and what
// clients will see where they do not [D61].

import type { OperationName } from '../core/operations.ts';
import { lookAtAnswers } from './answers.ts';
import { tryConnection, type ConnectionFacts } from './connection.ts';
import type { Call } from '../backend-probe/calls.ts';
import { findingOf, type Finding } from './findings.ts';
import type { Item } from './items.ts';
import { tryReads, type Found } from './reads.ts';
import { Session, Stopped, type ContractOptions, type Leftover, type Verdict } from './session.ts';
import type { Template } from './template.ts';
import { OwnItem } from './writes.ts';

export interface ContractReport {
  readonly verdicts: ReadonlyMap<OperationName, Verdict>;
  readonly findings: readonly Finding[];
  readonly leftovers: readonly Leftover[];
  readonly connection: ConnectionFacts;
  readonly calls: readonly Call[];
  /** Somebody ended it before it was through. */
  readonly isInterrupted: boolean;
}

/** Tries the backend. Rejects only with a fault of our own, and not before what was made is cleaned up. */
export async function checkContract(options: ContractOptions): Promise<ContractReport> {
  const session = new Session(options);
  try {
    await tryOperations(session);
    lookAtAnswers(session);
    const connection = await tryConnection(session);
    const { verdicts, findings, leftovers, calls } = session;
    const isInterrupted = options.stop.aborted;
    return { verdicts, findings, leftovers, connection, calls: calls.made, isInterrupted };
  } finally {
    await session.calls.close();
  }
}

async function tryOperations(session: Session): Promise<void> {
  const { write } = session.options;
  try {
    const found = await tryReads(session);
    if (write !== undefined) {
      await tryWrites(session, write, found);
    }
  } catch (error) {
    if (!(error instanceof Stopped)) {
      throw error;
    }
  }
}

async function tryWrites(session: Session, template: Template, found: Found): Promise<void> {
  // What was made is known again by the list, and by nothing else where a create answers wrongly.
  const isUsable = (item: Item): boolean => ![undefined, 'unusable'].includes(session.idOf(item)?.kind);
  if (found.items?.every(isUsable) !== true) {
    const why =
      found.items === undefined
        ? 'A list that works, with the items in one array, is needed before anything is written.'
        : 'Every item of the list must have an integer id before anything is written.';
    const finding = findingOf(found.call, 'write-not-safe', [why]);
    session.add({ ...finding, operations: ['create', 'update', 'delete'] });
    return;
  }
  // From here on something may have been made.
  session.stopIf();
  const item = new OwnItem(session, template, found);
  try {
    await item.try();
  } finally {
    await item.cleanUp();
  }
}
