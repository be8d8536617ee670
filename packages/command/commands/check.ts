// The command `check`: finds problems with settings, certificates, backend, keys and Redis, without serving.

import type { ClientTls } from '../../core/hosts/dialing/open-socket.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { createLogger } from '../log/log.ts';
import { loadPart } from '../service/parts.ts';
import { type Settings, settingsOf, showValue, variableOf } from '../settings/settings.ts';
import { certificateFilesOf } from '../settings/tls-settings.ts';
import { findWarnings } from '../settings/warnings.ts';
import { checkCertificates } from './check-certificates.ts';
import { describeOrigins } from './check-origins.ts';
import { checkBackend, checkRedis, checkTokens } from './check-services.ts';
import type { CheckResult, CommandEntry, CommandRun } from './command.ts';
import { openCertificates } from './running.ts';

/**
 * The flags that are not settings. The help shows them even in a build without the contract check, so they are defined
 * here and not in packages/contract-check/.
 */
export const contractFlags = {
  '--contract': { help: 'test what the gateway needs from the backend: list, read, a missing item, connections' },
  '--write': { help: 'with --contract: also create, update and delete one item' },
  '--body': {
    placeholder: 'json|file',
    help: 'with --write: the item to create (default {"title":"..."}); a marker replaces one of its string values',
  },
  '--json': { help: 'with --contract: print one JSON document instead of text' },
} as const;

export const checkCommand: CommandEntry = {
  summary: 'check the settings and call the backend once',
  description:
    'Reads the settings in the same way as serve and reports every problem. Then it checks the certificates, requests the work items from the backend once, fetches the keys for tokens if AUTH_ISSUER is set, and counts one request in Redis if RATE_LIMIT_REDIS_URL is set. The command serves no clients. It exits 0 if all is well and 1 if not. With --contract, the command instead tests which operations work with this backend, and exits 2 if flags or settings are wrong.',
  examples: [
    '--backend-url http://backend.internal:5104',
    '--contract --write --backend-url http://backend.internal:5104',
  ],
  ownFlags: contractFlags,
  findProblems: async (own, parts) =>
    Object.keys(own).length === 0 ? [] : (await loadPart(parts, 'contractCheck', 'check --contract')).findProblems(own),
  run: async (run) => await ('--contract' in run.ownFlags ? checkContract(run) : check(run)),
};

async function check({ resolved: { settings, sources }, terminal }: CommandRun): Promise<number> {
  terminal.signals.release();
  let exitCode = 0;
  const print = ({ lines = [], problems = [] }: CheckResult): void => {
    terminal.write(lines.map((line) => `${line}\n`).join(''));
    terminal.writeError(problems.map((problem) => `${problem}\n`).join(''));
    exitCode = problems.length > 0 ? 1 : exitCode;
  };
  const changed = settingsOf('check')
    .filter((name) => sources[name] !== 'default')
    .map((name) => `  ${variableOf(name)} = ${showValue(name, settings)} (${sources[name]})`);
  const first = `settings: all valid${changed.length === 0 ? ', all at their defaults' : ''}`;
  print({ lines: [first, ...changed, ...describeOrigins(settings)] });
  for (const { message, facts } of findWarnings(settings, terminal.environment)) {
    const figures = Object.entries(facts).map(([name, value]) => `${name} ${value}`);
    print({ lines: [`warning: ${message}${figures.length === 0 ? '' : ` (${figures.join(', ')})`}`] });
  }
  const files = certificateFilesOf(settings);
  for (const use of ['clients', 'backend'] as const) {
    const { lines, problems } = checkCertificates(use, files[use], Date.now());
    const errors = problems.map((problem) => `error: ${escapeControls(problem)}`);
    print({ lines: lines.map(escapeControls), problems: errors });
  }
  print(await checkBackend(settings, openBackendTls(settings)));
  print(await checkTokens(settings));
  print(await checkRedis(settings));
  return exitCode;
}

async function checkContract({ resolved: { settings }, terminal, ownFlags, parts }: CommandRun): Promise<number> {
  const { signals, write } = terminal;
  const tls = openBackendTls(settings);
  const { runContractCheck } = await loadPart(parts, 'contractCheck', 'check --contract');
  return await runContractCheck(ownFlags, settings, tls, showValue('backendUrl', settings), signals, write);
}

function openBackendTls(settings: Settings): ClientTls | undefined {
  return openCertificates(settings, createLogger('silent', { write: () => undefined })).inForce.backend;
}
