// Writes the report of the check: as text for people, and as a JSON document for programs. The form of the JSON is
// documented in docs/operating.md.

import { isRead, operations, type Operation } from '../core/operations.ts';
import type { ContractReport } from './contract.ts';
import { show, type Finding } from '../backend-probe/failures.ts';

/** Facts about the run. The JSON report has these names. */
interface Run {
  readonly version: string;
  /** URL of the list. */
  readonly backend: string;
  readonly write: boolean;
  readonly exitCode: number;
}

/**
 * Returns the exit code. 0: every tried operation works, nothing was left behind and the check was not interrupted. 1:
 * otherwise.
 */
export function exitCodeOf({ findings, leftovers, isInterrupted }: ContractReport): 0 | 1 {
  return isInterrupted || leftovers.length > 0 || findings.some(({ severity }) => severity === 'breaks') ? 1 : 0;
}

/** The report for people. */
export function describeContract(report: ContractReport, run: Run): string {
  const { findings, leftovers, isInterrupted } = report;
  const broken = findings.filter(({ severity }) => severity === 'breaks');
  const warnings = findings.filter(({ severity }) => severity === 'warning');
  const left = leftovers.length === 0 ? '' : `, ${leftovers.length} left behind`;
  return [
    `backend: ${run.backend}\n`,
    ...operations.map((operation) => `  ${operation.name.padEnd(8)}${describeVerdict(report, operation, run)}\n`),
    `  ${describeConnection(report)}\n`,
    ...broken.map((finding) => describeFinding(finding, 'BROKEN')),
    ...warnings.map((finding) => describeFinding(finding, 'warning')),
    ...leftovers.map(
      ({ id, marker, why, remove }) =>
        `\nLEFT BEHIND at the backend: ${id === undefined ? `an item with ${marker}` : `item ${id}`}\n  because  ${why}\n  remove   ${remove}\n`,
    ),
    isInterrupted ? '\ninterrupted: the check is incomplete' : '',
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
  if (httpVersion === undefined) return 'connection: no answer';
  const promise = keepAliveSeconds === undefined ? '' : `; its keep-alive timeout is ${keepAliveSeconds} s`;
  const watched =
    closedAfterMs === undefined
      ? `still open after ${watchedMs ?? 0} ms idle`
      : `closed after ${closedAfterMs} ms idle`;
  const rest = closesAlways
    ? ', closed after every answer'
    : watchedMs === undefined
      ? promise
      : `, ${watched}${promise}; BACKEND_IDLE_TIMEOUT_MS is ${idleTimeoutMs}`;
  return `connection: HTTP/${httpVersion}${rest}`;
}

function describeFinding(finding: Finding, word: string): string {
  const { operations: names, title, asked, came, clients, advice } = finding;
  return `\n${word} ${names.join(', ')}: ${title}\n  request      ${asked}\n  response     ${came}\n  client gets  ${clients}\n  fix          ${advice}\n`;
}

/**
 * The value of `schema` in the JSON report. It must change with every change of the report that can break programs that
 * read it.
 */
const schemaName = 'work-item-gateway/contract/1';

/** The report for programs: one JSON document on one line, with null for unknown values. */
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
