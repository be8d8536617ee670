// The log line of a request: path, client, agent, HTTP version. D52, D62. test/unit/texts.test.ts, admission.test.ts and
// log.test.ts have more cases, start.test.ts clients over IPv6.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { type Command, type LogLine, startCommand } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { requestBytes, type Headers } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer, behind, raw } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend(answer('{"id":5}'));
const command = await startCommand({ BACKEND_URL: backend.url });
const withoutClients = await startCommand({
  BACKEND_URL: backend.url,
  LOG_CLIENT: 'false',
  TRUSTED_PROXIES: '127.0.0.1',
});
after(() => Promise.all([command.stop(), withoutClients.stop()]));
const unavailable = answer('no', { status: 503 });

let count = 0;

/** The log line of the request with this id. */
const lineWith = (to: Command, id: string | undefined): Promise<LogLine> =>
  to.log(({ requestId }) => requestId === id, `the line of ${id}`);

/** Sends one request and returns its log line. */
async function lineOf(to: Command, target: string, headers: Headers = []): Promise<LogLine> {
  const id = `line-${(count += 1)}`;
  await to.call('GET', target, { headers: [...headers, ['X-Request-Id', id]] });
  return await lineWith(to, id);
}

/** Sends bytes that are not a request of the gateway; returns the log line. */
async function lineOfBytes(to: Command, bytes: string): Promise<LogLine> {
  await using client = await to.connect();
  client.send(bytes);
  return await lineWith(to, (await client.reply()).header('x-request-id'));
}

for (const [agents, expected] of [
  [[], undefined],
  [[String.raw`a "b" \c`], String.raw`a "b" \c`],
  [['first', 'second'], 'first'],
  [['x'.repeat(1_000)], 'x'.repeat(128)],
  [['\u00e9'.repeat(128)], String.raw`\u00e9`.repeat(22).slice(0, 128)],
] as const) {
  test(`the line has the first user-agent field, cut at 128 characters, with non-ASCII escaped: ${String(agents).slice(0, 20)} [D62]`, async () => {
    const headers = agents.map((agent) => ['User-Agent', agent] as const);
    assert.equal((await lineOf(command, '/api/work-items', headers))['agent'], expected);
  });
}

test('the line of a failed call has the path, client, agent and HTTP version; the dashboard shows the path and client [D52, D62]', async () => {
  backend.answersOnce(unavailable);
  const line = await lineOf(command, '/api/work-items/77?secret', [['User-Agent', 'test "1"\u00e9']]);
  const expected = { path: '/api/work-items/77', client: '127.0.0.1' };
  assert.partialDeepStrictEqual(line, { ...expected, level: 'warn', agent: String.raw`test "1"\u00e9`, http: '1.1' });
  const isIt = ({ requestId }: { readonly requestId: string }) => requestId === line['requestId'];
  const { failures } = await readState(command.adminPort, (state) => state.failures.some(isIt), 'the failure');
  assert.partialDeepStrictEqual(failures.find(isIt), expected);
});

test('the line has HTTP version 1.0 of a request [D62]', async () => {
  assert.equal((await lineOfBytes(command, 'GET /api/work-items HTTP/1.0\r\nHost: x\r\n\r\n'))['http'], '1.0');
});

test('if the client has left, the line still has the address of the client [D52]', async () => {
  const gate = createGate();
  backend.answersOnce(behind(gate, answer('{}')));
  const client = await command.connect();
  client.send(requestBytes('GET', '/api/work-items/6', { headers: [['X-Request-Id', 'gone']] }));
  await backend.nextRequest();
  client.reset();
  const line = await lineWith(command, 'gone');
  gate.open();
  assert.partialDeepStrictEqual(line, { outcome: 'client-gone', path: '/api/work-items/6', client: '127.0.0.1' });
});

test('the lines of malformed requests, of CONNECT and of targets with credentials have the client but no credentials [D52]', async () => {
  for (const bytes of [
    '\x00\r\n\r\n',
    'CONNECT user:secret@x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n',
    'GET http://user:secret@x/api/work-items HTTP/1.1\r\nHost: x\r\n\r\n',
  ]) {
    const { msg, client } = await lineOfBytes(command, bytes);
    assert.deepEqual([msg, client], ['malformed request', '127.0.0.1']);
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
  const headers = ['Authorization', 'Cookie', 'Accept'].map((name, index) => [name, `SECRET-${7 + index}`] as const);
  for (let round = 0; round < 4; round += 1) await lineOf(command, '/api/work-items/5?SECRET-10', headers);
  await command.call('PUT', '/api/work-items/5', { headers, body: '{SECRET-11' });
  await command.call('POST', '/api/work-items', { headers, body: '"SECRET-12"' });
  await lineOf(command, '/api/work-items');
  assert.doesNotMatch(command.output, /SECRET/);
});

test('with TRUSTED_PROXIES the line has the forwarded address as client, in each worker [D52]', async () => {
  const proxies = { TRUSTED_PROXIES: '127.0.0.1, 10.0.0.0/8', WORKERS: '2' };
  await using proxied = await startCommand({ BACKEND_URL: backend.url, ...proxies });
  for (const [name, value, expected] of [
    ['x-forwarded-for', '6.6.6.6, 203.0.113.5:8080, 10.1.1.1', '203.0.113.5'],
    ['X-Real-IP', '203.0.113.5', '127.0.0.1'],
  ] as const) {
    await proxied.call('GET', '/api/work-items', {
      headers: [
        [name, value],
        ['X-Request-Id', name],
      ],
    });
    assert.equal((await lineWith(proxied, name))['client'], expected);
  }
});

test('an invalid address in TRUSTED_PROXIES is reported at the start [D32, D52]', async () => {
  for (const [value, problem] of [
    [
      '10.0.0.0/8,proxy.internal',
      /^error: TRUSTED_PROXIES is "10\.0\.0\.0\/8,proxy\.internal", but must be IP addresses/,
    ],
    ['::ffff:10.0.0.0/8', /^error: TRUSTED_PROXIES must not have ::ffff:10\.0\.0\.0\/8, .*: write 10\.0\.0\.0\/8$/m],
  ] as const) {
    const { code, stderr } = await runHere(['serve'], { TRUSTED_PROXIES: value });
    assert.equal(code, 1);
    assert.match(stderr, problem);
  }
});

test('with LOG_CLIENT=false, lines and the failures on the dashboard have no address and no agent [D52, D62]', async () => {
  const forwarded = [
    ['X-Forwarded-For', '203.0.113.5'],
    ['User-Agent', 'curl'],
  ] as const;
  const ok = await lineOf(withoutClients, '/api/work-items', forwarded);
  backend.answersOnce(unavailable);
  const failed = await lineOf(withoutClients, '/api/work-items/5', forwarded);
  const malformed = await lineOfBytes(withoutClients, '\x00\r\n\r\n');
  for (const line of [ok, failed, malformed]) assert.ok(!('client' in line || 'agent' in line));
  assert.deepEqual([ok['http'], failed['http'], failed['path']], ['1.1', '1.1', '/api/work-items/5']);
  const { adminPort } = withoutClients;
  const { failures } = await readState(adminPort, (state) => state.failures.length === 2, 'the failures');
  for (const failure of failures) assert.ok(!('client' in failure));
});
