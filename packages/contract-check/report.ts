// What the check found, as text for people and as one JSON document for programs. Its form is published: docs/operating.md.

import { isRead, operations, type Operation } from '../core/operations.ts';
import type { ContractReport } from './contract.ts';
import { show } from '../backend-probe/describe.ts';
import type { Finding } from './findings.ts';

/** 0: every operation that was tried works, and nothing was left behind. 1: not so, or it was interrupted. */
export function exitCodeOf({ findings, leftovers, isInterrupted }: ContractReport): 0 | 1 {
  return isInterrupted || leftovers.length > 0 || findings.some(({ severity }) => severity === 'breaks')
    ? 1
    : 0;
}

/** The report for people; `url` is the address of the list. */
export function describeContract(report: ContractReport, url: string, hasWritten: boolean): string {
  const { findings, leftovers, isInterrupted } = report;
  const broken = findings.filter(({ severity }) => severity === 'breaks');
  const warnings = findings.filter(({ severity }) => severity === 'warning');
  return [
    `backend: ${url}\n`,
    ...operations.map(
      (operation) => `  ${operation.name.padEnd(8)}${describeVerdict(report, operation, hasWritten)}\n`,
    ),
    `  ${describeConnection(report)}\n`,
    ...broken.map((finding) => describeFinding(finding, 'BROKEN')),
    ...warnings.map((finding) => describeFinding(finding, 'warning')),
    ...leftovers.map(
      ({ id, marker, why, remove }) =>
        `\nLEFT BEHIND at the backend: ${id === undefined ? `an item with ${marker}` : `item ${show(id)}`}\n  because  ${why}\n  remove   ${remove}\n`,
    ),
    `\n${isInterrupted ? 'interrupted: not everything was tried\n' : ''}${summarize(report)}\n`,
  ].join('');
}

function describeVerdict({ verdicts }: ContractReport, operation: Operation, hasWritten: boolean): string {
  const verdict = verdicts.get(operation.name) ?? 'not tried';
  return verdict === 'broken'
    ? 'BROKEN'
    : verdict === 'not tried' && !isRead(operation) && !hasWritten
      ? 'not tried (--write tries it with an item of its own)'
      : verdict;
}

function describeConnection({ connection }: ContractReport): string {
  const { version, closesAlways, keepAliveSeconds, watchedMs, closedAfterMs, idleTimeoutMs } = connection;
  if (version === undefined) {
    return 'connection: no answer';
  }
  const promise = keepAliveSeconds === undefined ? '' : `; it promises ${keepAliveSeconds} s`;
  const watched =
    closedAfterMs === undefined
      ? `still open after ${Math.round(watchedMs ?? 0)} ms idle`
      : `closed after ${Math.round(closedAfterMs)} ms idle`;
  const rest = closesAlways
    ? ', closed behind every answer'
    : watchedMs === undefined
      ? promise
      : `, ${watched}${promise}; BACKEND_IDLE_TIMEOUT_MS is ${idleTimeoutMs}`;
  return `connection: HTTP/${version}${rest}`;
}

function describeFinding(finding: Finding, word: string): string {
  const { operations: names, title, asked, came, clients, advice } = finding;
  return `\n${word} ${names.join(', ')}: ${title}\n  asked    ${asked}\n  came     ${came}\n  clients  ${clients}\n  do       ${advice}\n`;
}

function summarize({ findings, leftovers }: ContractReport): string {
  const count = (severity: Finding['severity']): number =>
    findings.filter((finding) => finding.severity === severity).length;
  const left = leftovers.length === 0 ? '' : `, ${leftovers.length} left behind`;
  return `contract: ${count('breaks')} broken, ${plural(count('warning'), 'warning')}${left}`;
}

function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? '' : 's'}`;
}

/** What `schema` says: a change that could break a reader changes it. */
const schemaName = 'work-item-gateway/contract/1';

/** What the report for programs says of the run, by the published names. */
interface RunFacts {
  readonly version: string;
  /** The address of the list. */
  readonly backend: string;
  readonly write: boolean;
  readonly exitCode: number;
}

/** The report for programs: one JSON document on one line, with null for what is not known. */
export function writeContract(
  report: ContractReport,
  { version, backend, write, exitCode }: RunFacts,
): string {
  const { verdicts, findings, leftovers, connection, calls, isInterrupted } = report;
  const { closesAlways, keepAliveSeconds, watchedMs, closedAfterMs, idleTimeoutMs, idleTimeoutMsMax } =
    connection;
  const document = {
    schema: schemaName,
    version,
    backend,
    write,
    exitCode,
    interrupted: isInterrupted,
    operations: Object.fromEntries(verdicts),
    findings,
    leftBehind: leftovers.map(({ id, ...rest }) => ({ id: id === undefined ? id : show(id), ...rest })),
    connection: {
      httpVersion: connection.version,
      closesAlways,
      keepAliveSeconds,
      watchedMs: watchedMs && Math.round(watchedMs),
      closedAfterMs: closedAfterMs && Math.round(closedAfterMs),
      idleTimeoutMs,
      idleTimeoutMsMax,
    },
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
