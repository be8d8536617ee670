// The dashboard's verdict for troubles of a real command: the right title, detail and next step [D34, D51, D71]. page.test.ts
// stops the backend.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';

import type { Facts, Now } from '../../packages/dashboard/state.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { startCommand, type Command } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { childrenOf } from '../helpers/process-figures.ts';
import { answer, latency, type Answer } from '../helpers/scripted-backend.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';
import { startUnseen } from '../process/unseen.ts';

const verdictModule = new URL('../../packages/dashboard/page/verdict.js', import.meta.url).href;
const { judge } = (await import(verdictModule)) as {
  judge: (now: Now, facts: Facts) => { level: string; title: string; detail: string; next: string };
};

const list = '/api/work-items';
const backend = await useBackend();
const certificates = useCertificates();

type Begin = (resources: AsyncDisposableStack) => Promise<Command>;

/** Starts a gateway and makes `count` calls, to which the backend gives `given`. */
const calling =
  (given: Answer, settings: NodeJS.ProcessEnv = {}, count = 12, base = ''): Begin =>
  async (resources) => {
    backend.answers(given);
    const command = resources.use(await startCommand({ BACKEND_URL: backend.url + base, ...settings }));
    for (let call = 0; call < count; call += 1) await command.call('GET', base === '/wrong' ? `${list}/${call}` : list);
    return command;
  };

const well = answer('[]');
const head = (status: number, ...headers: [string, string][]): Answer => answer('', { status, headers });
const page = answer('\n<!doctype html><title>Sign in</title>', { headers: [['Content-Type', 'text/html']] });

const expireCertificate: Begin = async (resources) => {
  const authority = certificates.authority('root');
  const server = createTlsServer(certificates.issue(authority, 'expired', { days: -1 }));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  resources.defer(() => void server.close());
  const url = `https://localhost:${(server.address() as AddressInfo).port}`;
  return await calling(well, { BACKEND_URL: url, BACKEND_CA_FILE: authority.certFile }, 1)(resources);
};

const killWorker: Begin = async (resources) => {
  const command = await calling(well, { WORKERS: '2' }, 1)(resources);
  process.kill(childrenOf(command.process.pid)?.[0] ?? 0, 'SIGKILL');
  return command;
};

const loseLog: Begin = async (resources) => {
  const settings = { BACKEND_URL: backend.url, LOG_FORMAT: 'json' };
  const command = resources.use(await startUnseen(settings, { stdout: openSync('/dev/full', 'w') }));
  await command.call('GET', list);
  return command;
};

const troubles: readonly [title: string, Begin, level: 'notice' | 'unwell', detail: RegExp, next: RegExp][] = [
  ['The backend is slow', calling(latency(1_200, well), {}, 1), 'notice', /p99 is 1\.\d\ss in the last minute/, /^Find the slow operation/],
  ['The backend does not have this path', calling(head(404), {}, 12, '/base/base'), 'unwell',
    /Most often: list, status 404\..*In force: BACKEND_URL=http:.*\/base\/base/, /^Does BACKEND_URL lack a base path, or have a wrong one\?/],
  ['No call succeeds', calling(head(404), {}, 12, '/wrong'), 'notice',
    /^The backend answers, but no call in the last 5 minutes succeeded\. In force: BACKEND_URL=http:.*\/wrong/, /^Compare BACKEND_URL with the address/],
  ['The answer is a page, not JSON', calling(page), 'unwell', /12 not-json\. Most often: list/, /^Usually this is a sign-in page/],
  ['The backend answers with a redirect', calling(head(302, ['Location', 'https://login.example/'])), 'unwell',
    /Most often: list, status 302\./, /^Run `work-item-gateway check` to see where it leads/],
  ['The backend requires authentication', calling(head(401, ['WWW-Authenticate', 'NTLM'])), 'unwell',
    /Most often: list, status 401\./, /^The gateway sends no credentials\. Make the backend accept/],
  ["The backend's certificate has expired", expireCertificate, 'unwell', /certificate has expired/, /^Renew the backend's certificate/],
  ['A worker died', killWorker, 'notice', /^1 worker died in the last five minutes/, /^Search the log for the worker's end/],
  ['Log lines were lost', loseLog, 'notice', /lines? lost in the last five minutes, the last at/, /^Free space on the log's disk/],
  ['The rate limit refuses most calls', calling(well, { RATE_LIMIT: '3/1h' }, 25), 'notice',
    /^22 of 25 calls were refused in the minute until .*, most often as rate-limited\. In force: .*RATE_LIMIT=3\/1h/, /^Raise RATE_LIMIT\./],
]; // prettier-ignore

for (const [title, begin, level, detail, next] of troubles) {
  test(title, { skip: noOpenssl }, async () => {
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
