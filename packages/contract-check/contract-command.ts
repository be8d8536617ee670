// `check --contract`: runs the check with the current settings, ends it on a signal, and prints the report, as text for
// people or as a JSON document for programs.

import type { GatewayInForce } from '../backend-probe/calls.ts';
import { show, type Finding } from '../backend-probe/failures.ts';
import type { ClientTls } from '../core/hosts/dialing/open-socket.ts';
import { backendPath, isRead, operations, type Operation } from '../core/operations.ts';
import { withoutEndSlashes } from '../core/text/addresses.ts';
import { version } from '../core/version.ts';
import { checkContract, type ContractReport } from './contract.ts';
import { defaultTemplate, readTemplate, type Template } from './items.ts';

// The exit codes after a signal, as shells report them: 128 plus the signal's number.
const signalCodes = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;
// Signals within this time are treated as one, because npm and the terminal may both deliver the same signal.
const repetitionMsMax = 1_000;

/** The part of `process` that delivers signals. */
interface Signals {
  on(name: keyof typeof signalCodes, listener: () => void): void;
}

/** The flags given to `check --contract`. A flag without a value has the value true. */
type GivenFlags = Readonly<Record<string, string | true>>;

/** Returns the problems with the flags. */
export function findProblems(flags: GivenFlags): readonly string[] {
  const has = (flag: string): boolean => flag in flags;
  const template = templateOf(flags);
  return [
    ...(has('--contract') ? [] : ['--write', '--body'].filter(has)).map((flag) => `${flag} needs --contract`),
    ...(has('--contract') && has('--body') && !has('--write')
      ? ['--body needs --write: without --write nothing is created']
      : []),
    ...(typeof template === 'string' ? [template] : []),
  ];
}

// Maps flags to their template, or to a description of the problem. Stored, because `--body` can name a pipe, which can
// be read only once.
const templates = new WeakMap<GivenFlags, Template | string>();

function templateOf(flags: GivenFlags): Template | string {
  const { '--body': body } = flags;
  const template =
    templates.get(flags) ??
    (body === undefined ? defaultTemplate : body === true ? '--body needs a value' : readTemplate(body));
  templates.set(flags, template);
  return template;
}

/** Runs the check. Resolves with the exit code. `url` is the backend's address without secrets. */
export async function runContractCheck(
  flags: GivenFlags,
  settings: GatewayInForce,
  tls: ClientTls | undefined,
  url: string,
  signals: Signals,
  print: (text: string) => void,
): Promise<number> {
  const template = '--write' in flags ? templateOf(flags) : undefined;
  // A string describes a problem, which `findProblems` has already reported.
  const write = typeof template === 'string' ? undefined : template;
  const stop = new AbortController();
  const cut = new AbortController();
  let signalCode: number | undefined;
  let firstAt = 0;
  for (const name of Object.keys(signalCodes) as (keyof typeof signalCodes)[]) {
    signals.on(name, () => {
      if (signalCode === undefined) {
        signalCode = signalCodes[name];
        firstAt = performance.now();
        stop.abort();
      } else if (performance.now() - firstAt > repetitionMsMax) {
        cut.abort();
      }
    });
  }
  const report = await checkContract({ settings, tls, write, stop: stop.signal, cut: cut.signal });
  const { findings, leftovers, isInterrupted } = report;
  const isWell = !isInterrupted && leftovers.length === 0 && findings.every(({ severity }) => severity === 'warning');
  const exitCode = signalCode ?? (isWell ? 0 : 1);
  const run = { version, backend: `${withoutEndSlashes(url)}${backendPath}`, write: write !== undefined, exitCode };
  print('--json' in flags ? writeContract(report, run) : describeContract(report, run));
  return exitCode;
}

/** Facts about the run. The JSON report has the same property names. */
interface Run {
  readonly version: string;
  readonly backend: string;
  readonly write: boolean;
  readonly exitCode: number;
}

// The report for people.
function describeContract(report: ContractReport, run: Run): string {
  const { findings, leftovers, isInterrupted } = report;
  const breaking = findings.filter(({ severity }) => severity === 'breaks');
  const isUntried = ({ operations: names }: Finding): boolean =>
    names.every((name) => report.verdicts.get(name) === 'not tried');
  const untried = breaking.filter(isUntried);
  const broken = breaking.filter((finding) => !isUntried(finding));
  const warnings = findings.filter(({ severity }) => severity === 'warning');
  const left = leftovers.length === 0 ? '' : `, ${leftovers.length} left behind`;
  return [
    `backend: ${run.backend}\n`,
    ...operations.map((operation) => `  ${operation.name.padEnd(8)}${describeVerdict(report, operation, run)}\n`),
    `  ${describeConnection(report)}\n`,
    ...broken.map((finding) => describeFinding(finding, 'BROKEN')),
    ...untried.map((finding) => describeFinding(finding, 'not tried')),
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
  const needsWrite = verdict === 'not tried' && !isRead(operation) && !write;
  return needsWrite ? 'not tried (--write tries it with a new item)' : verdict.replace('broken', 'BROKEN');
}

function describeConnection({ connection }: ContractReport): string {
  const { httpVersion, closesAlways, keepAliveSeconds, watchedMs, closedAfterMs, idleTimeoutMs } = connection;
  if (httpVersion === undefined) return 'connection: no answer';
  const promise = keepAliveSeconds === undefined ? '' : `; its keep-alive timeout is ${keepAliveSeconds} s`;
  const start = `connection: HTTP/${httpVersion}`;
  if (closesAlways) return `${start}, closed after every answer`;
  if (watchedMs === undefined) return `${start}${promise}`;
  const end = closedAfterMs === undefined ? `still open after ${watchedMs} ms` : `closed after ${closedAfterMs} ms`;
  return `${start}, ${end} idle${promise}; BACKEND_IDLE_TIMEOUT_MS is ${idleTimeoutMs}`;
}

function describeFinding(finding: Finding, word: string): string {
  const { operations: names, title, asked, came, clients, advice } = finding;
  return `\n${word} ${names.join(', ')}: ${title}\n  request      ${asked}\n  response     ${came}\n  client gets  ${clients}\n  fix          ${advice}\n`;
}

// The report for programs: one JSON document on one line, with null for unknown values. docs/operating.md describes it.
function writeContract(report: ContractReport, run: Run): string {
  const { verdicts, findings, leftovers, connection, calls, isInterrupted } = report;
  const document = {
    // Must change whenever a change of the report can break programs that read the report.
    schema: 'work-item-gateway/contract/1',
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
