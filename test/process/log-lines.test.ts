// What a line of the log says of a request: what was asked for, by whom, and how. D52, D62.

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import type { Headers } from '../helpers/raw-client.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command, type LogLine } from '../helpers/targets.ts';
import { startUnseen } from '../helpers/unseen.ts';
import { Viewer } from '../helpers/viewer.ts';

let backend: ScriptedBackend;
before(async () => {
  backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
});
after(() => backend.stop());

let count = 0;

/** The line of one request with this target and these headers. */
async function lineOf(command: Command, target: string, headers: Headers = []): Promise<LogLine> {
  const id = `line-${(count += 1)}`;
  await command.call('GET', target, { headers: [...headers, ['X-Request-Id', id]] });
  return await command.log((line) => line['requestId'] === id, `the line of ${target}`);
}

describe('by default', () => {
  let command: Command;
  before(async () => {
    command = await startCommand({ BACKEND_URL: backend.url });
  });
  after(() => command.stop());

  for (const [target, path] of [
    ['/api/work-items', '/api/work-items'],
    ['/api/work-items/12?api_key=secret', '/api/work-items/12'],
    ['/nowhere/%C3%A9?secret', '/nowhere/%C3%A9'],
    ['http://example.test/api/work-items/1?secret', '/api/work-items/1'],
    ['/a"b\\c', '/a"b\\c'],
    [`/${'x'.repeat(1_000)}`, `/${'x'.repeat(255)}`],
  ] as const) {
    test(`the path of ${target.slice(0, 60)} [D52]`, async () => {
      const line = await lineOf(command, target);
      assert.equal(line['path'], path);
      assert.equal(line['client'], '127.0.0.1');
      assert.doesNotMatch(command.stdout, /secret/);
    });
  }

  test('what a client says of itself does not count [D52]', async () => {
    const line = await lineOf(command, '/api/work-items', [['X-Forwarded-For', '203.0.113.5']]);
    assert.equal(line['client'], '127.0.0.1');
  });

  for (const [what, agents, expected] of [
    ['none', [], undefined],
    ['a usual one', ['curl/8.5.0'], 'curl/8.5.0'],
    ['one with quotes', [String.raw`a "b" \c`], String.raw`a "b" \c`],
    ['two', ['first', 'second'], 'first'],
    ['a long one', ['x'.repeat(1_000)], 'x'.repeat(128)],
    ['one that is not ASCII', ['caf\u00e9 \u0085'], String.raw`caf\u00e9 \u0085`],
    ['one that an escape makes long', ['\u00e9'.repeat(128)], String.raw`\u00e9`.repeat(22).slice(0, 128)],
  ] as const) {
    test(`the user-agent: ${what} [D62]`, async () => {
      const line = await lineOf(
        command,
        '/api/work-items',
        agents.map((agent) => ['User-Agent', agent]),
      );
      assert.equal(line['agent'], expected);
    });
  }

  test('the version of HTTP that was spoken [D62]', async () => {
    for (const [version, http] of [
      ['1.1', '1.1'],
      ['1.0', '1.0'],
    ] as const) {
      await using client = await command.connect();
      client.send(`GET /api/work-items HTTP/${version}\r\nHost: x\r\nX-Request-Id: http-${http}\r\n\r\n`);
      await client.reply();
      const line = await command.log(({ requestId }) => requestId === `http-${http}`, 'its line');
      assert.equal(line['http'], http);
    }
  });

  test('a failed call has agent and version, too [D62]', async () => {
    backend.answersOnce(answer('no', { status: 503 }));
    const line = await lineOf(command, '/api/work-items/78', [['User-Agent', 'test "1"\u00e9']]);
    assert.equal(line['level'], 'warn');
    assert.deepEqual([line['agent'], line['http']], [String.raw`test "1"\u00e9`, '1.1']);
  });

  test('a failed call has both, in the log and on the dashboard [D52]', async () => {
    backend.answersOnce(answer('no', { status: 503 }));
    const line = await lineOf(command, '/api/work-items/77?secret');
    assert.equal(line['level'], 'warn');
    assert.deepEqual([line['path'], line['client']], ['/api/work-items/77', '127.0.0.1']);
    await using viewer = await Viewer.open(command.adminPort);
    const { failures } = await viewer.message(({ failures: each }) => each !== undefined, 'the failures');
    const failure = failures?.find(({ requestId }) => requestId === line['requestId']);
    assert.deepEqual([failure?.path, failure?.client], ['/api/work-items/77', '127.0.0.1']);
  });

  test('a client that has gone is known all the same [D52]', async () => {
    const gate = createGate();
    backend.answersOnce(async (exchange) => {
      await Promise.race([gate.opened, exchange.closed]);
    });
    const calls = backend.requests.length;
    const client = await command.connect();
    client.send(requestBytes('GET', '/api/work-items/6', { headers: [['X-Request-Id', 'gone']] }));
    await backend.until(() => backend.requests.length > calls, 'the call');
    client.reset();
    const line = await command.log(({ requestId }) => requestId === 'gone', 'its line');
    gate.open();
    assert.deepEqual(
      [line['outcome'], line['path'], line['client']],
      ['client-gone', '/api/work-items/6', '127.0.0.1'],
    );
  });

  for (const [what, bytes] of [
    ['bytes that are no request', '\x00\r\n\r\n'],
    ['CONNECT', 'CONNECT user:secret@x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n'],
    ['a target with credentials', 'GET http://user:secret@x/api/work-items HTTP/1.1\r\nHost: x\r\n\r\n'],
  ] as const) {
    test(`the client of ${what} is in its line [D52]`, async () => {
      await using client = await command.connect();
      client.send(bytes);
      const id = (await client.reply()).header('x-request-id');
      const line = await command.log(({ requestId }) => requestId === id, 'its line');
      assert.deepEqual([line['msg'], line['client']], ['not a request', '127.0.0.1']);
      assert.doesNotMatch(command.stdout, /secret/);
    });
  }
});

describe('TRUSTED_PROXIES', () => {
  for (const workers of ['1', '2']) {
    test(`behind a trusted proxy the client is the forwarded one, WORKERS=${workers} [D52]`, async () => {
      await using command = await startCommand({
        BACKEND_URL: backend.url,
        TRUSTED_PROXIES: '127.0.0.1, 10.0.0.0/8',
        WORKERS: workers,
      });
      for (const [headers, client] of [
        [[], '127.0.0.1'],
        [[['X-Forwarded-For', '203.0.113.5']], '203.0.113.5'],
        [[['x-forwarded-for', '6.6.6.6, 203.0.113.5:8080, 10.1.1.1']], '203.0.113.5'],
        [
          [
            ['X-Forwarded-For', '6.6.6.6'],
            ['X-FORWARDED-FOR', '[2001:DB8::5]:81'],
          ],
          '2001:db8::5',
        ],
        [[['X-Forwarded-For', '203.0.113.5, "\\u001b'.concat('"')]], '127.0.0.1'],
        [[['Forwarded', 'for=203.0.113.5']], '127.0.0.1'],
        [[['X-Real-IP', '203.0.113.5']], '127.0.0.1'],
      ] as [Headers, string][]) {
        assert.equal((await lineOf(command, '/api/work-items', headers))['client'], client);
      }
    });
  }

  test('what is no address is a problem at the start [D32, D52]', async () => {
    await assert.rejects(startCommand({ TRUSTED_PROXIES: '10.0.0.0/8,proxy.internal' }), (error: Error) =>
      error.message.includes(
        'error: TRUSTED_PROXIES is "10.0.0.0/8,proxy.internal", but must be IP addresses and ranges separated by commas',
      ),
    );
  });
});

test('LOG_CLIENT=false leaves address and agent out everywhere [D52, D62]', async () => {
  await using command = await startCommand({
    BACKEND_URL: backend.url,
    LOG_CLIENT: 'false',
    TRUSTED_PROXIES: '127.0.0.1',
  });
  const forwarded: Headers = [
    ['X-Forwarded-For', '203.0.113.5'],
    ['User-Agent', 'curl'],
  ];
  const ok = await lineOf(command, '/api/work-items', forwarded);
  backend.answersOnce(answer('no', { status: 503 }));
  const failed = await lineOf(command, '/api/work-items/5', forwarded);
  await using client = await command.connect();
  client.send('\x00\r\n\r\n');
  const id = (await client.reply()).header('x-request-id');
  const malformed = await command.log(({ requestId }) => requestId === id, 'its line');
  for (const line of [ok, failed, malformed]) assert.ok(!('client' in line || 'agent' in line));
  assert.deepEqual([ok['http'], failed['http']], ['1.1', '1.1']);
  assert.equal(failed['path'], '/api/work-items/5');
  await using viewer = await Viewer.open(command.adminPort);
  const { failures } = await viewer.message(({ failures: each }) => each?.length === 2, 'the failures');
  for (const failure of failures ?? []) assert.ok(!('client' in failure));
});

test('an IPv6 client has its address, and an IPv4 client of an IPv6 listener its own [D52]', async (context) => {
  await using command = await startCommand({ BACKEND_URL: backend.url, HOST: '::' });
  const line = await lineOf(command, '/api/work-items');
  assert.equal(line['client'], '127.0.0.1');
  const hasIpv6 = await new Promise<boolean>((resolve) => {
    const socket = connect(command.port, '::1', () => {
      socket.destroy();
      resolve(true);
    }).on('error', () => {
      resolve(false);
    });
  });
  if (!hasIpv6) {
    context.skip('no IPv6 here');
    return;
  }
  await using client = await RawClient.open(command.port, '::1');
  await client.call('GET', '/api/work-items', { headers: [['X-Request-Id', 'six']] });
  const six = await command.log(({ requestId }) => requestId === 'six', 'its line');
  assert.equal(six['client'], '::1');
});

test('the line for people has both, too [D52]', async () => {
  await using command = await startUnseen({ BACKEND_URL: backend.url, LOG_FORMAT: 'pretty' });
  await command.call('GET', '/api/work-items/5?secret', { headers: [['X-Request-Id', 'one']] });
  await command.call('GET', '/a"b', { headers: [['X-Request-Id', 'two']] });
  await using client = await command.connect();
  client.send('\x00\r\n\r\n');
  await client.reply();
  await poll(() => command.stdout.includes('not a request'), 'the lines');
  const times = String.raw`\([\d.]+ ms(?:, backend [\d.]+ ms)?, \d+ bytes\)`;
  for (const line of [
    String.raw`INFO: read /api/work-items/5 200 ok ${times} 127\.0\.0\.1 one`,
    String.raw`INFO: GET /a"b 404 no-operation ${times} 127\.0\.0\.1 two`,
    String.raw`INFO: not a request: 400 127\.0\.0\.1 [0-9a-f-]{36} \{"code":"[^"]+"\}`,
  ]) {
    assert.match(command.stdout, new RegExp(line));
  }
});
