// The command `check`: finds problems with settings, certificates, backend, keys and Redis, without serving.

import type { ClientTls } from '../../core/hosts/dialing/open-socket.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { version } from '../../core/version.ts';
import { createLogger } from '../log/log.ts';
import { loadPart } from '../service/process-parts.ts';
import { type Settings, settingsOf, showValue, variableOf } from '../settings/settings.ts';
import { certificateFilesOf } from '../settings/tls-settings.ts';
import { findWarnings } from '../settings/warnings.ts';
import { audit, findAuditProblems } from './check-audit.ts';
import { checkCertificates } from './check-certificates.ts';
import { describeOrigins } from './check-origins.ts';
import { checkBackend, checkRedis, checkTokens } from './check-services.ts';
import type { CheckResult, CommandEntry, CommandRun } from './command.ts';
import { openCertificates } from './running.ts';

/**
 * The flags that are not settings. The help shows them even in a build without the contract check, so they are defined
 * here and not in packages/contract-check/.
 */
export const checkFlags = {
  '--audit': { help: 'list risky settings, without calling anything' },
  '--severity': { placeholder: 'word', help: 'with --audit: exit with 1 from low, medium (default) or high on' },
  '--contract': { help: 'test what the gateway needs from the backend: list, read, a missing item, connections' },
  '--write': { help: 'with --contract: also create, update and delete one item' },
  '--body': {
    placeholder: 'json|file',
    help: 'with --write: the item to create (default {"title":"..."}); a marker replaces one of its string values',
  },
  '--json': { help: 'print one JSON document instead of text' },
} as const;

export const checkCommand: CommandEntry = {
  summary: 'check the settings and call the backend once',
  description:
    'Reads the settings in the same way as serve and reports every problem. Then it checks the certificates, requests the work items from the backend once, fetches the keys for tokens if AUTH_ISSUER is set, and counts one request in Redis if RATE_LIMIT_REDIS_URL is set. The command serves no clients. It exits 0 if all is well and 1 if not. With --audit, it instead lists risky settings, and with --contract it tests which operations work with this backend. With one of these flags or --json it exits 2 if flags or settings are wrong.',
  examples: [
    '--backend-url http://backend.internal:5104',
    '--contract --write --backend-url http://backend.internal:5104',
    '--audit --settings-file settings.env',
  ],
  ownFlags: checkFlags,
  findProblems: async (own, parts) => [
    ...findAuditProblems(own),
    ...(['--contract', '--write', '--body'].some((flag) => flag in own)
      ? (await loadPart(parts, 'contractCheck', 'check --contract')).findProblems(own)
      : []),
  ],
  run: async (run) => {
    if ('--audit' in run.ownFlags) return audit(run);
    return await ('--contract' in run.ownFlags ? checkContract(run) : check(run));
  },
};

async function check({ resolved: { settings, sources }, terminal, ownFlags }: CommandRun): Promise<number> {
  terminal.signals.release();
  const isJson = '--json' in ownFlags;
  const checks: { name: string; ok: boolean; lines: readonly string[]; problems: readonly string[] }[] = [];
  const print = (name: string, { lines = [], problems = [] }: CheckResult): void => {
    if (lines.length + problems.length > 0) checks.push({ name, ok: problems.length === 0, lines, problems });
    if (isJson) return;
    terminal.write(lines.map((line) => `${line}\n`).join(''));
    terminal.writeError(problems.map((problem) => `${problem}\n`).join(''));
  };
  const changed = settingsOf('check')
    .filter((name) => sources[name] !== 'default')
    .map((name) => `  ${variableOf(name)} = ${showValue(name, settings)} (${sources[name]})`);
  const first = `settings: all valid${changed.length === 0 ? ', all at their defaults' : ''}`;
  print('settings', { lines: [first, ...changed] });
  print('cors', { lines: describeOrigins(settings) });
  for (const { message, facts } of findWarnings(settings, terminal.environment)) {
    const figures = Object.entries(facts).map(([name, value]) => `${name} ${value}`);
    print('warning', { lines: [`warning: ${message}${figures.length === 0 ? '' : ` (${figures.join(', ')})`}`] });
  }
  const files = certificateFilesOf(settings);
  for (const use of ['clients', 'backend'] as const) {
    const { lines, problems } = checkCertificates(use, files[use], Date.now());
    const errors = problems.map((problem) => `error: ${escapeControls(problem)}`);
    print(`certificates for ${use}`, { lines: lines.map(escapeControls), problems: errors });
  }
  print('backend', await checkBackend(settings, openBackendTls(settings)));
  print('keys', await checkTokens(settings));
  print('redis', await checkRedis(settings));
  const exitCode = checks.every(({ ok }) => ok) ? 0 : 1;
  if (isJson) terminal.write(`${JSON.stringify({ schema: 'work-item-gateway/check/1', version, exitCode, checks })}\n`);
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
