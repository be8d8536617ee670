// What the check found, as text for people and as one JSON document for programs. Its form is published: docs/operating.md.

import { isRead, operations, type Operation } from '../core/operations.ts';
import type { ContractReport } from './contract.ts';
import { show } from '../backend-probe/describe.ts';
import type { Finding } from './findings.ts';

/** What is said of the run itself, by the names that are published. */
interface Run {
  readonly version: string;
  /** The address of the list. */
  readonly backend: string;
  readonly write: boolean;
  readonly exitCode: number;
}

/** 0: every operation that was tried works, and nothing was left behind. 1: not so, or it was interrupted. */
export function exitCodeOf({ findings, leftovers, isInterrupted }: ContractReport): 0 | 1 {
  return isInterrupted || leftovers.length > 0 || findings.some(({ severity }) => severity === 'breaks')
    ? 1
    : 0;
}

/** The report for people. */
export function describeContract(report: ContractReport, run: Run): string {
  const { findings, leftovers, isInterrupted } = report;
  const broken = findings.filter(({ severity }) => severity === 'breaks');
  const warnings = findings.filter(({ severity }) => severity === 'warning');
  const left = leftovers.length === 0 ? '' : `, ${leftovers.length} left behind`;
  return [
    `backend: ${run.backend}\n`,
    ...operations.map(
      (operation) => `  ${operation.name.padEnd(8)}${describeVerdict(report, operation, run)}\n`,
    ),
    `  ${describeConnection(report)}\n`,
    ...broken.map((finding) => describeFinding(finding, 'BROKEN')),
    ...warnings.map((finding) => describeFinding(finding, 'warning')),
    ...leftovers.map(
      ({ id, marker, why, remove }) =>
        `\nLEFT BEHIND at the backend: ${id === undefined ? `an item with ${marker}` : `item ${id}`}\n  because  ${why}\n  remove   ${remove}\n`,
    ),
    isInterrupted ? '\ninterrupted: not everything was tried' : '',
    `\ncontract: ${broken.length} broken, ${warnings.length} warning${warnings.length === 1 ? '' : 's'}${left}\n`,
  ].join('');
}

function describeVerdict({ verdicts }: ContractReport, operation: Operation, { write }: Run): string {
  const verdict = verdicts.get(operation.name) ?? 'not tried';
  return verdict === 'broken'
    ? 'BROKEN'
    : verdict === 'not tried' && !isRead(operation) && !write
      ? 'not tried (--write tries it with an item of its own)'
      : verdict;
}

function describeConnection({ connection }: ContractReport): string {
  const { httpVersion, closesAlways, keepAliveSeconds, watchedMs, closedAfterMs, idleTimeoutMs } = connection;
  if (httpVersion === undefined) {
    return 'connection: no answer';
  }
  const promise = keepAliveSeconds === undefined ? '' : `; it promises ${keepAliveSeconds} s`;
  const watched =
    closedAfterMs === undefined
      ? `still open after ${watchedMs ?? 0} ms idle`
      : `closed after ${closedAfterMs} ms idle`;
  const rest = closesAlways
    ? ', closed behind every answer'
    : watchedMs === undefined
      ? promise
      : `, ${watched}${promise}; BACKEND_IDLE_TIMEOUT_MS is ${idleTimeoutMs}`;
  return `connection: HTTP/${httpVersion}${rest}`;
}

function describeFinding(finding: Finding, word: string): string {
  const { operations: names, title, asked, came, clients, advice } = finding;
  return `\n${word} ${names.join(', ')}: ${title}\n  asked    ${asked}\n  came     ${came}\n  clients  ${clients}\n  do       ${advice}\n`;
}

/** What `schema` says: a change that could break a reader changes it. */
const schemaName = 'work-item-gateway/contract/1';

/** The report for programs: one JSON document on one line, with null for what is not known. */
export function writeContract(report: ContractReport, run: Run): string {
  const { verdicts, findings, leftovers, connection, calls, isInterrupted } = report;
  const document = {
    schema: schemaName,
    ...run,
    interrupted: isInterrupted,
    operations: Object.fromEntries(verdicts),
    findings,
    leftBehind: leftovers,
    connection,
    calls: calls.map(({ operation, path, answer, outcome, cause, reply, durationMs }) => ({
      operation: operation.name,
      method: operation.method,
      path,
      backendStatus: answer?.status,
      framing: answer?.framing,
      outcome,
      cause: cause === undefined ? cause : show(cause),
      clientStatus: reply.status,
      durationMs: Math.round(durationMs),
    })),
  };
  return `${JSON.stringify(document, (_key, value: unknown) => value ?? null)}\n`;
}
