// `check --contract`: runs the check with the settings in force, ends it on a signal, and prints what it found.

import type { GatewayInForce } from '../backend-probe/calls.ts';
import { backendPath } from '../core/operations.ts';
import { version } from '../core/version.ts';
import type { ClientTls } from '../core/http1/client-connection.ts';
import { checkContract } from './contract.ts';
import { describeContract, exitCodeOf, writeContract } from './report.ts';
import { defaultTemplate, readTemplate, type Template } from './template.ts';
import { withoutEndSlashes } from '../core/text/addresses.ts';

// As shells have it: 128 and the signal's number.
const signalCodes = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;
// npm and the terminal may both pass the same one on.
const repetitionMsMax = 1_000;

/** Tells of signals. */
export interface Signals {
  on(name: keyof typeof signalCodes, listener: () => void): void;
}

/** The flags of `check --contract` as they were given; true for one without a value. */
type GivenFlags = Readonly<Record<string, string | true>>;

/** What is wrong with the flags. */
export function findProblems(flags: GivenFlags): readonly string[] {
  const has = (flag: string): boolean => Object.hasOwn(flags, flag);
  const template = templateOf(flags);
  return [
    ...(has('--contract') ? [] : ['--write', '--body', '--json'].filter(has)).map(
      (flag) => `${flag} needs --contract`,
    ),
    ...(has('--contract') && has('--body') && !has('--write')
      ? ['--body needs --write: without it nothing is created']
      : []),
    ...(typeof template === 'string' ? [template] : []),
  ];
}

function templateOf({ '--body': body }: GivenFlags): Template | string {
  return body === undefined ? defaultTemplate : body === true ? '--body needs a value' : readTemplate(body);
}

/** Resolves with the exit code; `url` is the address of the backend that may be shown. */
export async function runContractCheck(
  flags: GivenFlags,
  settings: GatewayInForce,
  tls: ClientTls | undefined,
  url: string,
  signals: Signals,
  print: (text: string) => void,
): Promise<number> {
  const template = Object.hasOwn(flags, '--write') ? templateOf(flags) : undefined;
  // A text says what is wrong with it: `findProblems` has told.
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
  const run = {
    version,
    backend: `${withoutEndSlashes(url)}${backendPath}`,
    write: write !== undefined,
    exitCode,
  };
  print(Object.hasOwn(flags, '--json') ? writeContract(report, run) : describeContract(report, run));
  return exitCode;
}
