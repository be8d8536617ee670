// The log line of a request: path, client, agent, HTTP version. D52, D62. test/unit/described-path.test.ts,
// client-address.test.ts, log.test.ts and pretty-log.test.ts have more cases.

import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import { after, describe, test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { type Command, type LogLine, startCommand } from '../helpers/command.ts';
import { RawClient, requestBytes, type Headers } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer, behind, raw } from '../helpers/scripted-backend.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend(answer('{"id":5}'));

let count = 0;

/** Sends one request and returns its log line. */
async function lineOf(command: Command, target: string, headers: Headers = []): Promise<LogLine> {
  const id = `line-${(count += 1)}`;
  await command.call('GET', target, { headers: [...headers, ['X-Request-Id', id]] });
  return await command.log((line) => line['requestId'] === id, `the line of ${target}`);
}

const command = await startCommand({ BACKEND_URL: backend.url });
after(() => command.stop());

describe('by default', () => {
  test('the line has the first user-agent field, cut at 128 characters; non-ASCII characters are escaped [D62]', async () => {
    for (const [agents, expected] of [
      [[], undefined],
      [['curl/8.5.0'], 'curl/8.5.0'],
      [[String.raw`a "b" \c`], String.raw`a "b" \c`],
      [['first', 'second'], 'first'],
      [['x'.repeat(1_000)], 'x'.repeat(128)],
      [['caf\u00e9 \u0085'], String.raw`caf\u00e9 \u0085`],
      [['\u00e9'.repeat(128)], String.raw`\u00e9`.repeat(22).slice(0, 128)],
    ] as const) {
      const headers = agents.map((agent) => ['User-Agent', agent] as const);
      assert.equal((await lineOf(command, '/api/work-items', headers))['agent'], expected);
    }
  });

  test('the line has the HTTP version of the request [D62]', async () => {
    for (const http of ['1.1', '1.0']) {
      await using client = await command.connect();
      client.send(`GET /api/work-items HTTP/${http}\r\nHost: x\r\nX-Request-Id: http-${http}\r\n\r\n`);
      await client.reply();
      const line = await command.log(({ requestId }) => requestId === `http-${http}`, 'its line');
      assert.equal(line['http'], http);
    }
  });

  test('the line of a failed call has the path, client, agent and HTTP version; the dashboard shows the path and client [D52, D62]', async () => {
    backend.answersOnce(answer('no', { status: 503 }));
    const line = await lineOf(command, '/api/work-items/77?secret', [['User-Agent', 'test "1"\u00e9']]);
    const expected = { path: '/api/work-items/77', client: '127.0.0.1' };
    assert.partialDeepStrictEqual(line, { ...expected, level: 'warn', agent: String.raw`test "1"\u00e9`, http: '1.1' });
    const isIt = ({ requestId }: { readonly requestId: string }) => requestId === line['requestId'];
    const { failures } = await readState(command.adminPort, (state) => state.failures.some(isIt), 'the failure');
    assert.partialDeepStrictEqual(failures.find(isIt), expected);
  });

  test('if the client has left, the line still has the address of the client [D52]', async () => {
    const gate = createGate();
    backend.answersOnce(behind(gate, answer('{}')));
    const calls = backend.requests.length;
    const client = await command.connect();
    client.send(requestBytes('GET', '/api/work-items/6', { headers: [['X-Request-Id', 'gone']] }));
    await backend.until(() => backend.requests.length > calls, 'the call');
    client.reset();
    const line = await command.log(({ requestId }) => requestId === 'gone', 'its line');
    gate.open();
    assert.partialDeepStrictEqual(line, { outcome: 'client-gone', path: '/api/work-items/6', client: '127.0.0.1' });
  });

  test('the lines of malformed requests, of CONNECT and of targets with credentials have the client but no credentials [D52]', async () => {
    for (const bytes of [
      '\x00\r\n\r\n',
      'CONNECT user:secret@x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n',
      'GET http://user:secret@x/api/work-items HTTP/1.1\r\nHost: x\r\n\r\n',
    ]) {
      await using client = await command.connect();
      client.send(bytes);
      const id = (await client.reply()).header('x-request-id');
      const line = await command.log(({ requestId }) => requestId === id, 'its line');
      assert.deepEqual([line['msg'], line['client']], ['malformed request', '127.0.0.1']);
    }
    assert.doesNotMatch(command.stdout, /secret/);
  });

  test('no body and no header value is logged, except the user-agent of a client', async () => {
    backend.answersOnce(
      answer('{"SECRET-1":1}', { headers: [['X-Extra', 'SECRET-2']] }),
      answer('<SECRET-3>'),
      answer('SECRET-4', { status: 500 }),
      raw('HTTP/1.1 200 SECRET-5\r\nContent-Length: +1\r\nX: SECRET-6\r\n\r\nx'),
    );
    const headers = [
      ['Authorization', 'SECRET-7'],
      ['Cookie', 'SECRET-8'],
      ['Accept', 'SECRET-9'],
    ] as const;
    for (let round = 0; round < 4; round += 1) {
      await command.call('GET', '/api/work-items/5?SECRET-10', { headers });
    }
    await command.call('PUT', '/api/work-items/5', { headers, body: '{SECRET-11' });
    await command.call('POST', '/api/work-items', { headers, body: '"SECRET-12"' });
    await lineOf(command, '/api/work-items');
    assert.doesNotMatch(command.output, /SECRET/);
  });
});

test('with TRUSTED_PROXIES the line has the forwarded address as client; an invalid address in TRUSTED_PROXIES is reported at the start [D32, D52]', async () => {
  const proxies = { TRUSTED_PROXIES: '127.0.0.1, 10.0.0.0/8', WORKERS: '2' };
  await using proxied = await startCommand({ BACKEND_URL: backend.url, ...proxies });
  for (const [headers, client] of [
    [[], '127.0.0.1'],
    [[['x-forwarded-for', '6.6.6.6, 203.0.113.5:8080, 10.1.1.1']], '203.0.113.5'],
    [[['X-Real-IP', '203.0.113.5']], '127.0.0.1'],
  ] as [Headers, string][]) {
    assert.equal((await lineOf(proxied, '/api/work-items', headers))['client'], client);
  }
  const { code, stderr } = await runHere(['serve'], { TRUSTED_PROXIES: '10.0.0.0/8,proxy.internal' });
  assert.equal(code, 1);
  assert.match(stderr, /^error: TRUSTED_PROXIES is "10\.0\.0\.0\/8,proxy\.internal", but must be IP addresses/);
  const mapped = await runHere(['serve'], { TRUSTED_PROXIES: '::ffff:10.0.0.0/8' });
  assert.equal(mapped.code, code);
  assert.match(
    mapped.stderr,
    /^error: TRUSTED_PROXIES must not have ::ffff:10\.0\.0\.0\/8, .*: write 10\.0\.0\.0\/8$/m,
  );
});

test('with LOG_CLIENT=false, lines and the failures on the dashboard have no address and no agent [D52, D62]', async () => {
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
  const { failures } = await readState(command.adminPort, (state) => state.failures.length === 2, 'the failures');
  for (const failure of failures) assert.ok(!('client' in failure));
});

test('an IPv6 listener logs the IPv6 address of an IPv6 client and the IPv4 address of an IPv4 client [D52]', async (context) => {
  await using dual = await startCommand({ BACKEND_URL: backend.url, HOST: '::' });
  assert.equal((await lineOf(dual, '/api/work-items'))['client'], '127.0.0.1');
  if (!Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'))) {
    context.skip('no IPv6 here');
    return;
  }
  await using client = await RawClient.open(dual.port, '::1');
  await client.call('GET', '/api/work-items', { headers: [['X-Request-Id', 'six']] });
  const six = await dual.log(({ requestId }) => requestId === 'six', 'its line');
  assert.equal(six['client'], '::1');
});
