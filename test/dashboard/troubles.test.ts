// The dashboard's verdict in a real browser, for troubles of a real command: the right title and next step, in windows of every
// size, light and dark [D34, D51, D71].

import assert from 'node:assert/strict';
import { openSync } from 'node:fs';
import { once } from 'node:events';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';

import { TestBrowser } from '../helpers/browser.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { startCommand, type Command } from '../helpers/command.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer } from '../helpers/issuer.ts';
import { childrenOf } from '../helpers/process-figures.ts';
import { answer, latency, ScriptedBackend, type Answer } from '../helpers/scripted-backend.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';
import { startUnseen } from '../process/unseen.ts';
import { openDashboard, reads } from './dashboard-page.ts';

const list = '/api/work-items';
const backend = await useBackend();
const certificates = useCertificates();
let browser: TestBrowser;
before(async () => {
  browser = await TestBrowser.start();
});
after(() => browser[Symbol.asyncDispose]());

interface Trouble {
  readonly name: string;
  /** Starts a gateway and gets it into trouble. */
  readonly begin: (resources: AsyncDisposableStack) => Promise<Command>;
  readonly level: 'notice' | 'unwell';
  readonly title: string;
  readonly detail: RegExp;
  readonly next: RegExp;
}

/** Makes `count` lists, with every fifth answer by `odd`. */
async function listSome(command: Command, odd: Answer, count = 20): Promise<void> {
  for (let index = 0; index < count; index += 1) {
    backend.answersOnce(index % 5 === 0 ? odd : answer('[]'));
    await command.call('GET', list);
  }
}

/** Starts a gateway whose backend gives each call `given`, and makes 12 calls. */
const answering =
  (given: Answer, path: (call: number) => string = () => list, base = '') =>
  async (resources: AsyncDisposableStack): Promise<Command> => {
    const command = resources.use(await startCommand({ BACKEND_URL: `${backend.url}${base}` }));
    backend.answers(given);
    for (let call = 0; call < 12; call += 1) await command.call('GET', path(call));
    return command;
  };

const head = (status: number, fields: [string, string][] = []): Answer => answer('', { status, headers: fields });

const troubles: readonly Trouble[] = [
  {
    name: 'the backend is killed',
    begin: async (resources) => {
      const killed = await ScriptedBackend.start();
      const command = resources.use(await startCommand({ BACKEND_URL: killed.url }));
      await command.call('GET', list);
      await killed.stop({ reset: true });
      await command.call('GET', list);
      return command;
    },
    level: 'unwell',
    title: 'The backend does not answer',
    detail: /connection refused$/,
    next: /^Check that the backend is running/,
  },
  {
    name: 'the backend is slow',
    begin: async (resources) => {
      const command = resources.use(await startCommand({ BACKEND_URL: backend.url }));
      backend.answers(latency(1_200, answer('[]')));
      await Promise.all(Array.from({ length: 4 }, () => command.call('GET', list)));
      return command;
    },
    level: 'notice',
    title: 'The backend is slow',
    detail: /p99 is 1\.\d\ss in the last minute/,
    next: /^Find the slow operation/,
  },
  {
    name: 'the backend fails every fifth call',
    begin: async (resources) => {
      const command = resources.use(await startCommand({ BACKEND_URL: backend.url }));
      await listSome(command, head(500));
      return command;
    },
    level: 'unwell',
    title: 'The backend fails calls',
    detail: /^4 of 20 backend calls failed in the last minute \([^)]+\): 4 refused\. Most often: list, status 500\.$/,
    next: /^The fault is in the backend\. Search the backend's log for the request id/,
  },
  {
    name: 'the base path is doubled',
    begin: answering(head(404), undefined, '/base/base'),
    level: 'unwell',
    title: 'The backend does not have this path',
    detail: /Most often: list, status 404\..*In force: BACKEND_URL=http:.*\/base\/base/,
    next: /^Does BACKEND_URL lack a base path, or have a wrong one\?/,
  },
  {
    name: 'the base path is wrong, and no list is called',
    begin: answering(head(404), (call) => `${list}/${call + 1}`, '/wrong'),
    level: 'notice',
    title: 'No call succeeds',
    detail: /^The backend answers, but no call in the last 5 minutes succeeded\. In force: BACKEND_URL=http:.*\/wrong/,
    next: /^Compare BACKEND_URL with the address and base path of the backend/,
  },
  {
    name: 'the backend answers with a login page',
    begin: answering(answer('\n<!doctype html><title>Sign in</title>', { headers: [['Content-Type', 'text/html']] })),
    level: 'unwell',
    title: 'The answer is a page, not JSON',
    detail: /12 not-json\. Most often: list/,
    next: /^Usually this is a sign-in page/,
  },
  {
    name: 'the backend answers with a redirect',
    begin: answering(head(302, [['Location', 'https://login.example/']])),
    level: 'unwell',
    title: 'The backend answers with a redirect',
    detail: /Most often: list, status 302\./,
    next: /^Run `work-item-gateway check` to see where it leads/,
  },
  {
    name: 'the backend answers with 401',
    begin: answering(head(401, [['WWW-Authenticate', 'NTLM']])),
    level: 'unwell',
    title: 'The backend requires authentication',
    detail: /Most often: list, status 401\./,
    next: /^The gateway sends no credentials\. Make the backend accept/,
  },
  {
    name: "the backend's certificate has expired",
    begin: async (resources) => {
      const authority = certificates.authority('root');
      const server = createTlsServer(certificates.issue(authority, 'expired', { days: -1 }));
      await once(server.listen(0, '127.0.0.1'), 'listening');
      resources.defer(() => void server.close());
      const command = resources.use(
        await startCommand({
          BACKEND_URL: `https://localhost:${(server.address() as AddressInfo).port}`,
          BACKEND_CA_FILE: authority.certFile,
        }),
      );
      await command.call('GET', list);
      return command;
    },
    level: 'unwell',
    title: "The backend's certificate has expired",
    detail: /certificate has expired/,
    next: /^Renew the backend's certificate/,
  },
  {
    name: 'a worker is killed',
    begin: async (resources) => {
      const command = resources.use(await startCommand({ BACKEND_URL: backend.url, WORKERS: '2' }));
      await command.call('GET', list);
      const [victim = 0] = childrenOf(command.process.pid) ?? [];
      process.kill(victim, 'SIGKILL');
      await poll(
        async () => (await command.admin('/metrics')).text.includes('worker_deaths_total{cause="killed"} 1'),
        'the death is counted',
      );
      return command;
    },
    level: 'notice',
    title: 'A worker died',
    detail: /^1 worker died in the last five minutes/,
    next: /^Search the log for the worker's end/,
  },
  {
    name: 'log lines are lost',
    begin: async (resources) => {
      const command = resources.use(
        await startUnseen({ BACKEND_URL: backend.url, LOG_FORMAT: 'json' }, { stdout: openSync('/dev/full', 'w') }),
      );
      await command.call('GET', list);
      await poll(
        async () => /log_lines_dropped_total [1-9]/.test((await command.admin('/metrics')).text),
        'the lines are counted as dropped',
      );
      return command;
    },
    level: 'notice',
    title: 'Log lines were lost',
    detail: /lines? lost in the last five minutes, the last at/,
    next: /^Free space on the log's disk/,
  },
  {
    name: 'the rate limit refuses 88 % of the calls',
    begin: async (resources) => {
      const command = resources.use(await startCommand({ BACKEND_URL: backend.url, RATE_LIMIT: '3/1h' }));
      for (let call = 0; call < 25; call += 1) await command.call('GET', list);
      return command;
    },
    level: 'notice',
    title: 'The rate limit refuses most calls',
    detail:
      /^22 of 25 calls were refused in the minute until .*, most often as rate-limited\. In force: .*RATE_LIMIT=3\/1h/,
    next: /^Raise RATE_LIMIT\./,
  },
  {
    name: 'AUTH_AUDIENCE is wrong',
    begin: async (resources) => {
      const pair = createPair('key', 'ES256');
      const keys = resources.use(await KeyServer.start(keySetOf(pair)));
      const command = resources.use(
        await startCommand({
          BACKEND_URL: backend.url,
          AUTH_ISSUER: issuerName,
          AUTH_AUDIENCE: `not-${audience}`,
          AUTH_JWKS_URL: keys.url,
        }),
      );
      const headers = [['Authorization', `Bearer ${goodToken(pair)}`]] as const;
      for (let call = 0; call < 12; call += 1) await command.call('GET', list, { headers });
      return command;
    },
    level: 'notice',
    title: 'Most tokens are for another audience',
    detail: /^12 of 12 calls were refused .*, most often as invalid-token\. In force: AUTH_AUDIENCE=not-work-items\.$/,
    next: /^Compare AUTH_AUDIENCE with the claim aud/,
  },
];

describe('the verdict', { skip: noOpenssl }, () => {
  for (const { name, begin, level, title, detail, next } of troubles) {
    test(`${name}: "${title}"`, async () => {
      await using resources = new AsyncDisposableStack();
      const command = await begin(resources);
      await using watched = await openDashboard(browser, command);
      const { page } = watched;
      await reads(watched, '#verdict-title', new RegExp(`^${title}$`));
      await reads(watched, '#verdict-next', next);
      assert.match((await page.locator('#verdict-detail').textContent()) ?? '', detail);
      assert.equal(await page.locator('#verdict').getAttribute('data-level'), level);
      for (const width of [360, 768, 1280, 2560]) {
        for (const colorScheme of ['light', 'dark'] as const) {
          await page.setViewportSize({ width, height: 800 });
          await page.emulateMedia({ colorScheme });
          await watched.assertFits();
          for (const id of ['title', 'detail', 'next']) {
            const box = await page.locator(`#verdict-${id}`).boundingBox();
            assert.ok(
              box !== null && box.x >= 0 && box.x + box.width <= width && box.height > 0,
              `${id} at ${width} px`,
            );
          }
          await watched.savePicture(`verdict-${name.replace(/\W+/g, '-')}-${width}-${colorScheme}`, {
            fullPage: false,
          });
        }
      }
      watched.assertClean(page.url());
    });
  }
});
