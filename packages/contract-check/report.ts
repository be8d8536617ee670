// What the check found, as text for people and as one JSON document for programs. Its form is published: docs/operating.md.

import { operations } from '../core/operations.ts';
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
    ...operations.map(({ name }) => `  ${name.padEnd(8)}${describeVerdict(report, name, hasWritten)}\n`),
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

function describeVerdict(report: ContractReport, name: string, hasWritten: boolean): string {
  const verdict =
    report.verdicts.get(operations.find((each) => each.name === name)?.name ?? 'list') ?? 'not tried';
  const isWrite = !['list', 'read'].includes(name);
  return verdict === 'broken'
    ? 'BROKEN'
    : verdict === 'not tried' && isWrite && !hasWritten
      ? 'not tried (--write tries it with an item of its own)'
      : verdict;
}

function describeConnection({ connection }: ContractReport): string {
  const { version, closesAlways, keepAliveSeconds, watchedMs, closedAfterMs, idleTimeoutMs } = connection;
  const promise = keepAliveSeconds === undefined ? '' : `; it promises ${keepAliveSeconds} s`;
  return version === undefined
    ? 'connection: no answer'
    : closesAlways
      ? `connection: HTTP/${version}, closed behind every answer`
      : closedAfterMs !== undefined
        ? `connection: HTTP/${version}, closed after ${Math.round(closedAfterMs)} ms idle${promise}; BACKEND_IDLE_TIMEOUT_MS is ${idleTimeoutMs}`
        : watchedMs !== undefined
          ? `connection: HTTP/${version}, still open after ${Math.round(watchedMs)} ms idle${promise}; BACKEND_IDLE_TIMEOUT_MS is ${idleTimeoutMs}`
          : `connection: HTTP/${version}${promise}`;
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

/** The report for programs: one JSON document on one line. */
export function writeContract(
  report: ContractReport,
  {
    url,
    hasWritten,
    version,
    exitCode,
  }: {
    readonly url: string;
    readonly hasWritten: boolean;
    readonly version: string;
    readonly exitCode: number;
  },
): string {
  const { verdicts, findings, leftovers, connection, calls, isInterrupted } = report;
  const document = {
    schema: schemaName,
    version,
    backend: url,
    write: hasWritten,
    exitCode,
    interrupted: isInterrupted,
    operations: Object.fromEntries(verdicts),
    findings,
    leftBehind: leftovers.map(({ id = null, marker, why, remove }) => ({
      id: id === null ? null : show(id),
      marker,
      why,
      remove,
    })),
    connection: {
      httpVersion: connection.version ?? null,
      closesAlways: connection.closesAlways,
      keepAliveSeconds: connection.keepAliveSeconds ?? null,
      watchedMs: rounded(connection.watchedMs),
      closedAfterMs: rounded(connection.closedAfterMs),
      idleTimeoutMs: connection.idleTimeoutMs,
      idleTimeoutMsMax: connection.idleTimeoutMsMax ?? null,
    },
    calls: calls.map(({ operation, path, answer, outcome, cause, reply, durationMs }) => ({
      operation: operation.name,
      method: operation.method,
      path,
      backendStatus: answer?.status ?? null,
      framing: answer?.framing ?? null,
      outcome,
      cause: cause === undefined ? null : show(cause),
      clientStatus: reply.status,
      durationMs: Math.round(durationMs),
    })),
  };
  return `${JSON.stringify(document)}\n`;
}

function rounded(ms: number | undefined): number | null {
  return ms === undefined ? null : Math.round(ms);
}
