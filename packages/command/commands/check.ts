// The command `check`: what is wrong with settings, certificates, backend, keys and Redis, before anything serves.

import { escapeControls } from '../../core/text/escape.ts';
import type { CertificateFiles, CertificateUse } from '../certificates/certificates.ts';
import { createLogger, type Logger } from '../log/log.ts';
import { loadPart } from '../service/parts.ts';
import { showValue } from '../settings/describe.ts';
import { settingsOf, variableOf, type Settings } from '../settings/settings.ts';
import { certificateFilesOf } from '../settings/tls-settings.ts';
import { findWarnings } from '../settings/warnings.ts';
import { checkBackend } from './check-backend.ts';
import { describeOrigins } from './check-origins.ts';
import { checkTokens } from './check-tokens.ts';
import type { CommandEntry, CommandRun, Terminal } from './command.ts';
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
  const changed = settingsOf('check').filter((name) => sources[name] !== 'default');
  terminal.write(
    `settings: all valid${changed.length === 0 ? ', every one at its default' : ''}\n${changed
      .map((name) => `  ${variableOf(name)} = ${showValue(name, settings)} (${sources[name]})\n`)
      .join('')}`,
  );
  terminal.write(
    describeOrigins(settings)
      .map((line) => `${line}\n`)
      .join(''),
  );
  for (const { message, facts } of findWarnings(settings, terminal.environment)) {
    const figures = Object.entries(facts).map(([name, value]) => `${name} ${value}`);
    terminal.write(`warning: ${message}${figures.length === 0 ? '' : ` (${figures.join(', ')})`}\n`);
  }
  const areCertificatesWell = (await checkTls(settings, terminal)) === 0;
  const certificates = await openCertificates(settings, silentLogger());
  const backend = await checkBackend(settings, certificates?.inForce.backend);
  (backend.isWell ? terminal.write : terminal.writeError)(backend.text);
  const tokens = await checkTokens(settings);
  if (tokens !== undefined) {
    (tokens.isWell ? terminal.write : terminal.writeError)(tokens.text);
  }
  const redis = await checkRateLimit(settings);
  if (redis !== undefined) {
    (redis.isWell ? terminal.write : terminal.writeError)(redis.text);
  }
  return areCertificatesWell && backend.isWell && tokens?.isWell !== false && redis?.isWell !== false ? 0 : 1;
}

async function checkContract({
  resolved: { settings },
  terminal,
  ownFlags,
  parts,
}: CommandRun): Promise<number> {
  const { signals, write } = terminal;
  const certificates = await openCertificates(settings, silentLogger());
  const tls = certificates?.inForce.backend;
  const { runContractCheck } = await loadPart(parts, 'contractCheck', 'check --contract');
  return await runContractCheck(ownFlags, settings, tls, showValue('backendUrl', settings), signals, write);
}

function silentLogger(): Logger {
  return createLogger('silent', { write: () => undefined });
}

// Loaded only where there is one.
async function checkRateLimit({
  rateLimitRedisUrl,
}: Settings): Promise<{ readonly isWell: boolean; readonly text: string } | undefined> {
  return rateLimitRedisUrl === ''
    ? undefined
    : await (await import('./check-redis.ts')).checkRedis(rateLimitRedisUrl);
}

// Says what the certificates are, and gives the number of problems with them.
async function checkTls(settings: Settings, terminal: Terminal): Promise<number> {
  const { checkCertificates } = await import('./check-certificates.ts');
  let count = 0;
  for (const [use, files] of Object.entries(certificateFilesOf(settings)) as [
    CertificateUse,
    CertificateFiles,
  ][]) {
    const { lines, problems } = checkCertificates(use, files, Date.now());
    terminal.write(lines.map((line) => `${escapeControls(line)}\n`).join(''));
    terminal.writeError(problems.map((problem) => `error: ${escapeControls(problem)}\n`).join(''));
    count += problems.length;
  }
  return count;
}
