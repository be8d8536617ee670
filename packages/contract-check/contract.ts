// Checks a backend's contract: which operations work through this gateway, and what clients get from the other operations
// [D61].

import type { OperationName } from '../core/operations.ts';
import { inspectAnswers } from './answers.ts';
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
  // If a create's answer is wrong, only the list can identify the created item.
  const isUsable = (item: Item): boolean => ![undefined, 'unusable'].includes(session.idOf(item)?.kind);
  if (found.items?.every(isUsable) !== true) {
    const why =
      found.items === undefined
        ? 'Before the check writes anything, the list must work and have all items in one array.'
        : 'Before the check writes anything, every item of the list must have an integer id.';
    const finding = findingOf(found.call, 'write-not-safe', [why]);
    session.add({ ...finding, operations: ['create', 'update', 'delete'] });
    return;
  }
  // The last look for a stop before an item may exist. A stop here needs no clean-up.
  session.stopIf();
  const item = new OwnItem(session, template, found);
  try {
    await item.try();
  } finally {
    await item.cleanUp();
  }
}
