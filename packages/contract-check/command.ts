// `check --contract`: runs the check with the current settings, ends it on a signal, and prints the report.

import type { GatewayInForce } from '../backend-probe/calls.ts';
import { backendPath } from '../core/operations.ts';
import { version } from '../core/version.ts';
import type { ClientTls } from '../core/http1/client-connection.ts';
import { checkContract } from './contract.ts';
import { describeContract, exitCodeOf, writeContract } from './report.ts';
import { defaultTemplate, readTemplate, type Template } from './template.ts';
import { withoutEndSlashes } from '../core/text/addresses.ts';

// The exit codes after a signal, as shells report them: 128 plus the signal's number.
const signalCodes = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;
// Signals within this time are treated as one, because npm and the terminal may both deliver the same signal.
const repetitionMsMax = 1_000;

/** Source of signals: the process. */
export interface Signals {
  on(name: keyof typeof signalCodes, listener: () => void): void;
}

/** The given flags of `check --contract`; true for a flag without a value. */
type GivenFlags = Readonly<Record<string, string | true>>;

/** Returns the problems with the flags. */
export function findProblems(flags: GivenFlags): readonly string[] {
  const has = (flag: string): boolean => Object.hasOwn(flags, flag);
  const template = templateOf(flags);
  return [
    ...(has('--contract') ? [] : ['--write', '--body', '--json'].filter(has)).map((flag) => `${flag} needs --contract`),
    ...(has('--contract') && has('--body') && !has('--write')
      ? ['--body needs --write: without --write nothing is created']
      : []),
    ...(typeof template === 'string' ? [template] : []),
  ];
}

// The template or the problem of each given set of flags. It is read once, because the file can be a pipe.
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
  const template = Object.hasOwn(flags, '--write') ? templateOf(flags) : undefined;
  // A string is a problem, which `findProblems` has already reported.
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
  const exitCode = signalCode ?? exitCodeOf(report);
  const run = { version, backend: `${withoutEndSlashes(url)}${backendPath}`, write: write !== undefined, exitCode };
  print(Object.hasOwn(flags, '--json') ? writeContract(report, run) : describeContract(report, run));
  return exitCode;
}
