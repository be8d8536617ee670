// The dashboard's verdict for troubles of a real command: the right title, detail and next step [D34, D51, D71].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';

import type { Facts, Now } from '../../packages/dashboard/state.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { startCommand, type Command } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer } from '../helpers/issuer.ts';
import { childrenOf } from '../helpers/process-figures.ts';
import { type CallOptions } from '../helpers/raw-client.ts';
import { answer, latency, ScriptedBackend, type Answer } from '../helpers/scripted-backend.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';
import { startUnseen } from '../process/unseen.ts';

const verdictModule = new URL('../../packages/dashboard/page/verdict.js', import.meta.url).href;
const { judge } = (await import(verdictModule)) as {
  judge: (now: Now, facts: Facts) => { level: string; title: string; detail: string; next: string };
};

const list = '/api/work-items';
const backend = await useBackend();
const certificates = useCertificates();

type Settings = Readonly<Record<string, string>>;

/** Starts a gateway and makes `count` calls. */
const calling =
  (settings: Settings, count: number, path: (call: number) => string = () => list, options?: CallOptions) =>
  async (resources: AsyncDisposableStack): Promise<Command> => {
    const command = resources.use(await startCommand({ BACKEND_URL: backend.url, ...settings }));
    for (let call = 0; call < count; call += 1) await command.call('GET', path(call), options);
    return command;
  };

/** Starts a gateway whose backend gives each of 12 calls `given`. */
const answering =
  (given: Answer, base = '', path?: (call: number) => string) =>
  (resources: AsyncDisposableStack): Promise<Command> => {
    backend.answers(given);
    return calling({ BACKEND_URL: `${backend.url}${base}` }, 12, path)(resources);
  };

const head = (status: number, ...headers: [string, string][]): Answer => answer('', { status, headers });

async function killBackend(resources: AsyncDisposableStack): Promise<Command> {
  const killed = await ScriptedBackend.start();
  const command = await calling({ BACKEND_URL: killed.url }, 1)(resources);
  await killed.stop({ reset: true });
  await command.call('GET', list);
  return command;
}

function slowBackend(resources: AsyncDisposableStack): Promise<Command> {
  backend.answers(latency(1_200, answer('[]')));
  return calling({}, 1)(resources);
}

function failEveryFifth(resources: AsyncDisposableStack): Promise<Command> {
  const answers = Array.from({ length: 20 }, (_, index) => (index % 5 === 0 ? head(500) : answer('[]')));
  backend.answersOnce(...answers);
  return calling({}, 20)(resources);
}

async function expireCertificate(resources: AsyncDisposableStack): Promise<Command> {
  const authority = certificates.authority('root');
  const server = createTlsServer(certificates.issue(authority, 'expired', { days: -1 }));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  resources.defer(() => void server.close());
  const url = `https://localhost:${(server.address() as AddressInfo).port}`;
  return await calling({ BACKEND_URL: url, BACKEND_CA_FILE: authority.certFile }, 1)(resources);
}

async function killWorker(resources: AsyncDisposableStack): Promise<Command> {
  const command = await calling({ WORKERS: '2' }, 1)(resources);
  process.kill(childrenOf(command.process.pid)?.[0] ?? 0, 'SIGKILL');
  return command;
}

async function loseLog(resources: AsyncDisposableStack): Promise<Command> {
  const settings = { BACKEND_URL: backend.url, LOG_FORMAT: 'json' };
  const command = resources.use(await startUnseen(settings, { stdout: openSync('/dev/full', 'w') }));
  await command.call('GET', list);
  return command;
}

async function mistakeAudience(resources: AsyncDisposableStack): Promise<Command> {
  const pair = createPair('key', 'ES256');
  const keys = resources.use(await KeyServer.start(keySetOf(pair)));
  const settings = { AUTH_ISSUER: issuerName, AUTH_AUDIENCE: `not-${audience}`, AUTH_JWKS_URL: keys.url };
  const headers = [['Authorization', `Bearer ${goodToken(pair)}`]] as const;
  return await calling(settings, 12, () => list, { headers })(resources);
}

const page = answer('\n<!doctype html><title>Sign in</title>', { headers: [['Content-Type', 'text/html']] });

const troubles: readonly [
  what: string,
  begin: (resources: AsyncDisposableStack) => Promise<Command>,
  level: 'notice' | 'unwell',
  title: string,
  detail: RegExp,
  next: RegExp,
][] = [
  ['the backend is killed', killBackend, 'unwell', 'The backend does not answer', /connection refused$/,
    /^Check that the backend is running/],
  ['the backend is slow', slowBackend, 'notice', 'The backend is slow', /p99 is 1\.\d\ss in the last minute/,
    /^Find the slow operation/],
  ['the backend fails every fifth call', failEveryFifth, 'unwell', 'The backend fails calls',
    /^4 of 20 backend calls failed in the last minute \([^)]+\): 4 refused\. Most often: list, status 500\.$/,
    /^The fault is in the backend\. Search the backend's log for the request id/],
  ['the base path is doubled', answering(head(404), '/base/base'), 'unwell', 'The backend does not have this path',
    /Most often: list, status 404\..*In force: BACKEND_URL=http:.*\/base\/base/,
    /^Does BACKEND_URL lack a base path, or have a wrong one\?/],
  ['the base path is wrong, and no list is called', answering(head(404), '/wrong', (call) => `${list}/${call + 1}`),
    'notice', 'No call succeeds',
    /^The backend answers, but no call in the last 5 minutes succeeded\. In force: BACKEND_URL=http:.*\/wrong/,
    /^Compare BACKEND_URL with the address and base path of the backend/],
  ['the backend answers with a login page', answering(page), 'unwell', 'The answer is a page, not JSON',
    /12 not-json\. Most often: list/, /^Usually this is a sign-in page/],
  ['the backend answers with a redirect', answering(head(302, ['Location', 'https://login.example/'])), 'unwell',
    'The backend answers with a redirect', /Most often: list, status 302\./,
    /^Run `work-item-gateway check` to see where it leads/],
  ['the backend answers with 401', answering(head(401, ['WWW-Authenticate', 'NTLM'])), 'unwell',
    'The backend requires authentication', /Most often: list, status 401\./,
    /^The gateway sends no credentials\. Make the backend accept/],
  ["the backend's certificate has expired", expireCertificate, 'unwell', "The backend's certificate has expired",
    /certificate has expired/, /^Renew the backend's certificate/],
  ['a worker is killed', killWorker, 'notice', 'A worker died', /^1 worker died in the last five minutes/,
    /^Search the log for the worker's end/],
  ['log lines are lost', loseLog, 'notice', 'Log lines were lost', /lines? lost in the last five minutes, the last at/,
    /^Free space on the log's disk/],
  ['the rate limit refuses 88 % of the calls', calling({ RATE_LIMIT: '3/1h' }, 25), 'notice',
    'The rate limit refuses most calls',
    /^22 of 25 calls were refused in the minute until .*, most often as rate-limited\. In force: .*RATE_LIMIT=3\/1h/,
    /^Raise RATE_LIMIT\./],
  ['AUTH_AUDIENCE is wrong', mistakeAudience, 'notice', 'Most tokens are for another audience',
    /^12 of 12 calls were refused .*, most often as invalid-token\. In force: AUTH_AUDIENCE=not-work-items\.$/,
    /^Compare AUTH_AUDIENCE with the claim aud/],
]; // prettier-ignore

describe('the verdict', { skip: noOpenssl }, () => {
  for (const [what, begin, level, title, detail, next] of troubles) {
    test(`${what}: "${title}"`, async () => {
      await using resources = new AsyncDisposableStack();
      const command = await begin(resources);
      await poll(async () => {
        const { now, facts } = await readState(command.adminPort);
        const verdict = judge(now, facts);
        if (verdict.title !== title) return false;
        assert.equal(verdict.level, level);
        assert.match(verdict.detail, detail);
        assert.match(verdict.next, next);
        return true;
      }, `the title ${title}`);
    });
  }
});
