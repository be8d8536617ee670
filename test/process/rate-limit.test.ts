// The rate limit of the built command: log, metrics and API document, clients behind proxies, and workers that count
// together [D46]. test/guards/hosts.test.ts and test/spec/rate-limit.test.ts test the replies.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { isReloaded, useBackend } from '../helpers/command-tests.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { startCommand, type Command } from '../helpers/targets.ts';

const backend = await useBackend(answer('{"id":5}'));

const path = '/api/work-items/5';

async function statusOf(command: Command, forwardedFor?: string): Promise<number> {
  const headers = forwardedFor === undefined ? [] : ([['X-Forwarded-For', forwardedFor]] as const);
  return (await command.call('GET', path, { headers })).status;
}

test('log, metrics and API document have the limit; without TRUSTED_PROXIES a forwarded address is ignored', async () => {
  await using command = await startCommand({ BACKEND_URL: backend.url, RATE_LIMIT: '1/1h', DOCS: 'true' });
  assert.equal(await statusOf(command), 200);
  assert.equal(await statusOf(command, '1.2.3.4'), 429);
  const line = await command.log(({ status }) => status === 429, 'the line of the refused request');
  assert.deepEqual(
    [line['level'], line['outcome'], line['operation'], line['client'], line['cause'], line['msg']],
    ['info', 'rate-limited', 'read', '127.0.0.1', 'more than 1 requests in 3600 s', 'request'],
  );
  const metrics = await command.metrics();
  assert.match(metrics, /^work_item_gateway_requests_total\{operation="read",status="429"\} 1$/m);
  assert.match(
    metrics,
    /^work_item_gateway_request_outcomes_total\{operation="read",outcome="rate-limited",fault="client"\} 1$/m,
  );
  const { paths } = JSON.parse((await command.call('GET', '/openapi.json')).text) as {
    paths: Record<string, Record<string, { responses: Record<string, { headers: object }> }>>;
  };
  const responses = paths['/api/work-items']?.['get']?.responses;
  for (const [status, names] of [['429', ['retry-after', 'ratelimit-policy', 'ratelimit']], ['200', ['ratelimit-policy', 'ratelimit']]] as const) {
    for (const name of names) {
      assert.ok(Object.hasOwn(responses?.[status]?.headers ?? {}, name), `${status} ${name}`);
    }
  } // prettier-ignore
});

test('TRUSTED_PROXIES: the client is the last address that is not a proxy', async () => {
  await using command = await startCommand({
    BACKEND_URL: backend.url,
    RATE_LIMIT: '1/1h',
    TRUSTED_PROXIES: '127.0.0.1,10.0.0.0/8',
  });
  for (const [forwardedFor, status] of [
    ['203.0.113.1', 200],
    ['203.0.113.1:4711', 429],
    ['6.6.6.7,203.0.113.1, 10.1.2.3', 429],
    ['203.0.113.2', 200],
    // With a malformed entry, the client is the proxy that added the entry.
    ['203.0.113.3, evil', 200],
    ['203.0.113.4, evil', 429],
    ['2001:db8:1:2::1', 200],
    ['[2001:DB8:1:2:0:0:0:9]:443', 429],
  ] as const) {
    assert.equal(await statusOf(command, forwardedFor), status, forwardedFor);
  }
  assert.equal(await statusOf(command), 429, 'the proxy itself is over its limit');
});

describe('with workers', () => {
  for (const sharing of ['cluster', 'reuse-port']) {
    test(`PORT_SHARING=${sharing}: all workers count together, and the count continues after a reload`, async () => {
      await using command = await startCommand({
        BACKEND_URL: backend.url,
        WORKERS: '2',
        PORT_SHARING: sharing,
        RATE_LIMIT: '100/1h',
      });
      // Connections go to both workers; each pipelines all its requests.
      const clients: RawClient[] = [];
      for (let index = 0; index < 20; index += 1) clients.push(await command.connect());
      for (const client of clients) {
        client.send(Buffer.concat(Array.from({ length: 10 }, () => requestBytes('GET', path))));
      }
      const counts = new Map<number, number>();
      await Promise.all(
        clients.map(async (client) => {
          for (let index = 0; index < 10; index += 1) {
            const { status } = await client.reply();
            counts.set(status, (counts.get(status) ?? 0) + 1);
          }
          await client[Symbol.asyncDispose]();
        }),
      );
      assert.deepEqual([...counts].toSorted(), [
        [200, 100],
        [429, 100],
      ]);
      assert.equal(backend.requests.length, 100);
      // Any status is accepted here: all requests of one worker can be among the first hundred.
      const answering = () =>
        new Set(command.logs.filter(({ operation }) => operation === 'read').map(({ pid }) => pid));
      await poll(() => answering().size === 2, 'both workers have answered some');
      command.signal('SIGHUP');
      await command.log(isReloaded, 'the reload ends');
      assert.equal(await statusOf(command), 429);
    });
  }
});

test('an invalid rate limit is a problem at the start', async () => {
  for (const [environment, problem] of [
    [{ RATE_LIMIT: '100' }, 'RATE_LIMIT is "100", but must be requests/window, for instance 100/60s'],
    [{ RATE_LIMIT_KEY: 'address' }, 'RATE_LIMIT_KEY is set, but has no effect without RATE_LIMIT'],
    [{ RATE_LIMIT: '1/1s', RATE_LIMIT_KEY: 'cookie' }, 'RATE_LIMIT_KEY is "cookie", but must be one of address, identity'],
    [{ RATE_LIMIT: '1/1s', RATE_LIMIT_KEY: 'identity' }, 'RATE_LIMIT_KEY is identity, but tokens are off: AUTH_ISSUER is not set'],
  ] as const) {
    const { code, stderr } = await runHere(['serve'], environment);
    assert.equal(code, 1);
    assert.ok(stderr.includes(problem), `${problem}\n${stderr}`);
  } // prettier-ignore
});
