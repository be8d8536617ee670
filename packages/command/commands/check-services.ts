// For the command `check`: calls the backend, the issuer of tokens, and Redis.

import type { Call } from '../../backend-probe/calls.ts';
import { loadGuard } from '../../core/guards/guard-parts.ts';
import { showRedisUrl } from '../../core/options/guard-kinds.ts';
import { startDeadline } from '../../core/hosts/common/process-deadline.ts';
import type { ClientTls } from '../../core/hosts/dialing/open-socket.ts';
import { backendPath } from '../../core/operations.ts';
import { withoutEndSlashes } from '../../core/text/addresses.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { unusedPasswordText } from '../service/serving-guards.ts';
import { type Settings, showValue } from '../settings/settings.ts';
import type { CheckResult } from './command.ts';

/** Requests the list of work items once, and explains a failure. */
export async function checkBackend(settings: Settings, tls: ClientTls | undefined): Promise<CheckResult> {
  // Loaded here, so that other commands do not load these files.
  const { Calls } = await import('../../backend-probe/calls.ts');
  const { explainFailure, show } = await import('../../backend-probe/failures.ts');
  const list = async (url: URL, end?: AbortSignal): Promise<Call> => {
    const calls = new Calls({ ...settings, backendUrl: url }, tls, end);
    const call = await calls.make('list');
    await calls.close();
    return call;
  };
  const { backendUrl, backendTimeoutMs } = settings;
  const call = await list(backendUrl);
  const target = `${withoutEndSlashes(showValue('backendUrl', settings))}${backendPath}`;
  if (call.outcome === 'ok') {
    const { answer, reply, durationMs } = call;
    const text = `answered ${answer?.status ?? 200} with ${reply.body.length} bytes of JSON in ${Math.round(durationMs)} ms`;
    return { lines: [`backend: ${target} ${text}`] };
  }
  const { code, title, came, advice } = explainFailure(call, backendUrl);
  // Without an answer, the title says so, and the cause says why.
  const why = call.answer === undefined && call.cause !== undefined ? show(call.cause, 400) : came;
  const problems = [`backend: ${target}: ${title}: ${why}`, `  ${advice}`];
  // The address may have a part of a page's path, so the shorter paths are tried, all of them in the time of one call.
  const names = withoutEndSlashes(backendUrl.pathname).split('/').slice(0, -1);
  const bases = names.map((_, count) => names.slice(0, names.length - count).join('/')).slice(-basesMax);
  const late = new AbortController();
  const callOff = startDeadline(backendTimeoutMs, () => late.abort());
  for (const base of codesOfWrongPath.includes(code) ? bases : []) {
    const address = backendUrl.origin + base;
    const { outcome } = await list(new URL(address), late.signal);
    if (outcome === 'ok') {
      problems.push(`  Tried ${address}${backendPath}, and the backend answers JSON there: did you mean ${address}?`);
    }
    if (outcome === 'ok' || late.signal.aborted) break;
  }
  callOff();
  return { problems };
}

// The number of base paths that are tried, from the root up.
const basesMax = 4;
// The failures that a wrong base path causes.
const codesOfWrongPath = ['no-such-path', 'html', 'redirect'];

/** If tokens are on, fetches the issuer's keys once and lists the usable keys. */
export async function checkTokens(settings: Settings): Promise<CheckResult> {
  if (settings.authIssuer === '') return {};
  const place = showValue(settings.authJwksUrl === '' ? 'authJwksFile' : 'authJwksUrl', settings);
  try {
    const { fetchKeys } = await loadGuard('tokens');
    const { keys, flaws } = await fetchKeys(settings);
    if (keys.length > 0) {
      const names = keys.map(({ kid, algorithm }) => `  ${escapeControls(kid ?? '(no kid)')}: ${algorithm}`);
      const first = `keys: ${place} has ${names.length} usable ${names.length === 1 ? 'key' : 'keys'}`;
      return { lines: [first, ...names] };
    }
    if (flaws.length === 0) return { problems: [`keys: ${place} has an empty key set`, adviseOnPlace(settings)] };
    const advice = `  The issuer must publish a usable key for one of AUTH_ALGORITHMS (${settings.authAlgorithms.join(',')}).`;
    return { problems: [`keys: ${place} has no usable key`, ...flaws.map((flaw) => `  ${flaw}`), advice] };
  } catch (error) {
    const cause = error instanceof Error ? error.message : String(error);
    return { problems: [`keys: ${place}: ${escapeControls(cause)}`, adviseOnPlace(settings)] };
  }
}

function adviseOnPlace({ authJwksUrl }: Settings): string {
  return authJwksUrl === ''
    ? "  Check that AUTH_JWKS_FILE is the file with the issuer's keys, and that this user can read it."
    : "  Check that AUTH_JWKS_URL is the issuer's jwks_uri, and that this machine can reach it.";
}

/** If the rate limit uses Redis, counts one request in Redis. Never rejects. */
export async function checkRedis({ rateLimitRedisUrl: address }: Settings): Promise<CheckResult> {
  if (address === '') return {};
  const shown = showRedisUrl(address);
  try {
    const { tryRedis } = await loadGuard('rateLimit');
    const { version = 'unknown version', tookMs, hasUnusedPassword } = await tryRedis(address);
    const line = `rate limit: Redis at ${shown} counted a request in ${tookMs.toFixed(1)} ms (${version})`;
    return { lines: hasUnusedPassword ? [line, `  ${unusedPasswordText}`] : [line] };
  } catch (error) {
    const cause = escapeControls(error instanceof Error ? error.message : String(error));
    return {
      problems: [
        `rate limit: Redis at ${shown} could not count a request: ${cause}`,
        '  Check the address and the password in RATE_LIMIT_REDIS_URL, and that Redis answers within 100 ms.',
      ],
    };
  }
}
