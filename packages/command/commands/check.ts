// The command `check`: what is wrong with settings, certificates, backend, keys and Redis, before anything serves.

import type { ClientTls } from '../../core/http1/client-connection.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { createLogger } from '../log/log.ts';
import { loadPart } from '../service/parts.ts';
import { showValue } from '../settings/describe.ts';
import { settingsOf, variableOf, type Settings } from '../settings/settings.ts';
import { certificateFilesOf } from '../settings/tls-settings.ts';
import { findWarnings } from '../settings/warnings.ts';
import { checkBackend } from './check-backend.ts';
import { checkCertificates } from './check-certificates.ts';
import { describeOrigins } from './check-origins.ts';
import { checkRedis } from './check-redis.ts';
import { checkTokens } from './check-tokens.ts';
import type { CheckResult, CommandEntry, CommandRun } from './command.ts';
import { contractFlags } from './contract-flags.ts';
import { openCertificates } from './running.ts';

export const checkCommand: CommandEntry = {
  summary: 'check the settings and try the backend once',
  description:
    'Reads the settings as serve would, reports every problem, asks the backend once for its work items, fetches the keys of tokens where AUTH_ISSUER is set, and says what it found. Exits 0 when all is well and 1 when not; starts nothing. With --contract it tries instead which operations work with this backend, and exits 2 where flags or settings are wrong.',
  examples: [
    '--backend-url http://backend.internal:5104',
    '--contract --write --backend-url http://backend.internal:5104',
  ],
  ownFlags: contractFlags,
  findProblems: async (own, parts) =>
    Object.keys(own).length === 0
      ? []
      : (await loadPart(parts, 'contractCheck', 'check --contract')).findProblems(own),
  run: async (run) => await ('--contract' in run.ownFlags ? checkContract(run) : check(run)),
};

async function check({ resolved: { settings, sources }, terminal }: CommandRun): Promise<number> {
  terminal.signals.release();
  let exitCode = 0;
  const tell = ({ lines = [], problems = [] }: CheckResult): void => {
    terminal.write(lines.map((line) => `${line}\n`).join(''));
    terminal.writeError(problems.map((problem) => `${problem}\n`).join(''));
    exitCode = problems.length > 0 ? 1 : exitCode;
  };
  const changed = settingsOf('check')
    .filter((name) => sources[name] !== 'default')
    .map((name) => `  ${variableOf(name)} = ${showValue(name, settings)} (${sources[name]})`);
  const first = `settings: all valid${changed.length === 0 ? ', every one at its default' : ''}`;
  tell({ lines: [first, ...changed, ...describeOrigins(settings)] });
  for (const { message, facts } of findWarnings(settings, terminal.environment)) {
    const figures = Object.entries(facts).map(([name, value]) => `${name} ${value}`);
    tell({ lines: [`warning: ${message}${figures.length === 0 ? '' : ` (${figures.join(', ')})`}`] });
  }
  const files = certificateFilesOf(settings);
  for (const use of ['clients', 'backend'] as const) {
    const { lines, problems } = checkCertificates(use, files[use], Date.now());
    const errors = problems.map((problem) => `error: ${escapeControls(problem)}`);
    tell({ lines: lines.map(escapeControls), problems: errors });
  }
  tell(await checkBackend(settings, await openBackendTls(settings)));
  tell(await checkTokens(settings));
  tell(await checkRedis(settings));
  return exitCode;
}

async function checkContract({
  resolved: { settings },
  terminal,
  ownFlags,
  parts,
}: CommandRun): Promise<number> {
  const { signals, write } = terminal;
  const tls = await openBackendTls(settings);
  const { runContractCheck } = await loadPart(parts, 'contractCheck', 'check --contract');
  return await runContractCheck(ownFlags, settings, tls, showValue('backendUrl', settings), signals, write);
}

async function openBackendTls(settings: Settings): Promise<ClientTls | undefined> {
  const certificates = await openCertificates(settings, createLogger('silent', { write: () => undefined }));
  return certificates?.inForce.backend;
}
