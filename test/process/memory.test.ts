// What the built command holds while much is asked of it at once, and that it lets go of it.

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { totalmem } from 'node:os';
import { after, afterEach, before, test, type TestContext } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, notFound, unavailable } from '../helpers/expected.ts';
import { countDescriptors, figureIn, residentBytes } from '../helpers/process-figures.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import {
  answer,
  answerBytes,
  chunked,
  behind,
  ScriptedBackend,
  timeout,
} from '../helpers/scripted-backend.ts';
import { runCommand, startCommand, type Command } from '../helpers/targets.ts';

const mebibyte = 1024 * 1024;
const body = Buffer.from(`[${'{"id":1,"title":"Paint the fence","done":false},'.repeat(171_000)}1]`);

let backend: ScriptedBackend;
before(async () => {
  backend = await ScriptedBackend.start();
});
afterEach(() => {
  backend.reset();
});
after(() => backend.stop());

/** The command after its first call, and what it then holds. */
async function start(t: TestContext, environment: NodeJS.ProcessEnv = {}) {
  backend.answers(answer('[]'));
  const command = await startCommand({ BACKEND_URL: backend.url, LOG_LEVEL: 'warn', ...environment });
  t.after(() => command[Symbol.asyncDispose]());
  await command.call('GET', '/api/work-items');
  await command.call('PUT', '/api/work-items/1', { body: '[1]' });
  const { pid } = command.process;
  return { command, pid, base: residentBytes(pid, 'VmRSS'), descriptors: countDescriptors(pid) };
}

async function figure(command: Command, name: string): Promise<number | undefined> {
  return figureIn(await command.metrics(), `work_item_gateway_${name}`);
}

function tell(t: TestContext, pid: number | undefined, base: number | undefined): number | undefined {
  const peak = residentBytes(pid, 'VmHWM');
  if (base === undefined || peak === undefined) return undefined;
  const more = peak - base;
  t.diagnostic(`at rest ${(base / mebibyte).toFixed()} MiB, at most ${(more / mebibyte).toFixed()} MiB more`);
  return more;
}

/** The length of the reply to a GET, its bytes looked at and not kept. */
async function measureReply(port: number): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const socket = connect({ port, host: '127.0.0.1' });
  let length = 0;
  let headLength = 0;
  socket.on('error', reject);
  socket.on('data', (data: Buffer) => {
    if (length === 0) headLength = data.indexOf('\r\n\r\n') + 4;
    length += data.length;
    // Each byte is where it belongs: compared with the body from behind the head.
    const from = Math.max(0, length - data.length - headLength);
    const piece = length === data.length ? data.subarray(headLength) : data;
    if (!piece.equals(body.subarray(from, from + piece.length))) reject(new Error(`other bytes at ${from}`));
    if (length === headLength + body.length) resolve(length - headLength);
  });
  socket.on('close', () => {
    reject(new Error(`closed after ${length} bytes`));
  });
  socket.write(requestBytes('GET', '/api/work-items'));
  try {
    return await promise;
  } finally {
    socket.destroy();
  }
}

test('64 lists of 8 MB at once take no more than 1.3 times their bytes beyond the process at rest', async (t) => {
  const { command, pid, base } = await start(t);
  const gate = createGate();
  const bytes = answerBytes(body);
  backend.answers(async (exchange) => {
    await gate.opened;
    // As it is: 64 copies would be this process's memory.
    exchange.socket.write(bytes);
  });
  const lengths = Promise.all(Array.from({ length: 64 }, () => measureReply(command.port)));
  const seen = backend.requests.length;
  await backend.until(() => backend.requests.length === seen + 64, '64 calls at once');
  gate.open();
  assert.deepEqual(new Set(await lengths), new Set([body.length]));
  const more = tell(t, pid, base);
  assert.ok(more === undefined || more <= 64 * body.length * 1.3, `${more} bytes more`);
  assert.equal(await figure(command, 'buffered_bytes'), 0);
});

test('2,000 reads whose clients leave: all cancelled at the backend, descriptors and memory back to base [D21]', async (t) => {
  const { command, pid, base, descriptors } = await start(t, {
    IN_FLIGHT_MAX: '2000',
    BACKEND_IDLE_TIMEOUT_MS: '500',
  });
  for (let round = 0; round < 2; round += 1) {
    backend.answers(timeout);
    const clients = await Promise.all(Array.from({ length: 2000 }, () => command.connect()));
    const seen = backend.requests.length;
    for (const client of clients) client.send(requestBytes('GET', '/api/work-items/7'));
    await backend.until(() => backend.requests.length === seen + 2000, '2,000 calls');
    for (const client of clients) {
      if (round % 2 === 0) client.destroy();
      else client.reset();
    }
    const left = performance.now();
    await backend.until(() => backend.connectionsOpen === 0, 'all are cancelled');
    t.diagnostic(
      `the last call was cancelled ${(performance.now() - left).toFixed()} ms after the last client left`,
    );
    assert.ok(performance.now() - left < 5000);
    await poll(async () => (await figure(command, 'requests_in_flight')) === 0, 'no call is under way');
    await poll(
      () => descriptors === undefined || (countDescriptors(pid) ?? 0) <= descriptors + 2,
      'descriptors are back to base',
    );
    backend.answers(answer('[]'));
    assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
  }
  const rest = residentBytes(pid, 'VmRSS');
  if (rest !== undefined && base !== undefined) {
    t.diagnostic(`${((rest - base) / mebibyte).toFixed()} MiB more than before the first of 4,000`);
    // The heap has grown for 4,000 sockets at once, and is not given back soon.
    assert.ok(rest - base < 200 * mebibyte, `${rest - base} bytes more`);
  }
});

test('large bodies beyond BUFFERED_BYTES_MAX: some are 503, the others are served, the process lives [D26]', async (t) => {
  const { command, pid, base } = await start(t, { BUFFERED_BYTES_MAX: String(32 * mebibyte) });
  const gate = createGate();
  backend.answers(behind(gate, answer('[]')));
  const clients = await Promise.all(Array.from({ length: 40 }, () => command.connect()));
  const started = clients.map(async (client, index) => {
    client.send(requestBytes('PUT', `/api/work-items/${index}`, { body }));
    // One that is still sending when it is refused may not live to read it.
    return await client.reply().catch(() => undefined);
  });
  const refused =
    (await figureAtLeast(command, 'work_item_gateway_requests_total{operation="update",status="503"}', 36)) ??
    0;
  gate.open();
  const replies = await Promise.all(started);
  const served = replies.filter((reply) => reply?.status === 200);
  for (const reply of replies) {
    if (reply !== undefined && reply.status !== 200) assertReply(reply, 503, unavailable, ['retry-after']);
  }
  assert.ok(served.length >= 1 && served.length <= 4, `${served.length} of 40 served`);
  assert.ok(refused >= 36);
  assert.ok(
    backend.requests
      .filter(({ method }) => method === 'PUT')
      .every((call) => call.body.length === body.length || call.body.equals(Buffer.from('[1]'))),
  );
  await poll(async () => (await figure(command, 'buffered_bytes')) === 0, 'nothing is held');
  const more = tell(t, pid, base);
  // All 40 would be 320 MiB.
  assert.ok(more === undefined || more < 32 * mebibyte * 6, `${more} bytes more`);
  assertReply(await command.call('PUT', '/api/work-items/1', { body }), 200, '{"success":true}');
});

test('limits that add up to more memory than there is: check and the start say so, with what is needed', async () => {
  const environment = {
    BACKEND_URL: backend.url,
    BUFFERED_BYTES_MAX: String(2 ** 40),
    CONNECTIONS_MAX: '1000',
  };
  const needed = Math.ceil((2 ** 40 * 4) / 3) + 200_000_000 + 1_000 * 5_000;
  backend.answers(answer('[]'));
  await using gateway = await startCommand(environment);
  const line = await gateway.log(({ msg }) => String(msg).startsWith('too little memory'), 'the warning');
  assert.equal(line['level'], 'warn');
  assert.equal(line['needed'], needed);
  const limit = Number(line['limit']);
  assert.ok(limit > 0 && limit <= totalmem());
  await using check = runCommand(['check'], environment);
  assert.equal(await check.exitCode(), 0, check.output);
  const said =
    /^warning: too little memory .*: .* lower BUFFERED_BYTES_MAX, CONNECTIONS_MAX or WORKERS \((.*)\)$/m;
  assert.equal(
    said.exec(check.stdout)?.[1],
    `limit ${limit}, needed ${needed}, bufferedBytesMax ${2 ** 40}, connectionsMax 1000, workers 1`,
  );
  await using fits = runCommand(['check'], {
    BACKEND_URL: backend.url,
    BUFFERED_BYTES_MAX: '1000',
    CONNECTIONS_MAX: '1',
  });
  assert.equal(await fits.exitCode(), 0, fits.output);
  assert.doesNotMatch(fits.output, /warning/);
});

async function figureAtLeast(command: Command, name: string, least: number): Promise<number | undefined> {
  let value: number | undefined;
  await poll(async () => {
    const text = await command.metrics();
    value = Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.slice(name.length + 1) ?? 0,
    );
    return value >= least;
  }, `${name} is at least ${least}`);
  return value;
}

test('bodies in chunks of one byte, either way, take little more than their bytes', async (t) => {
  const { command, pid, base } = await start(t);
  const chunks = '1\r\n1\r\n'.repeat(10_000);
  await using client = await command.connect();
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
  await client.sendPieces(Array.from({ length: 30 }, () => chunks));
  client.send('0\r\n\r\n');
  assertReply(await client.reply(), 200, '{"success":true}');
  backend.answersOnce(chunked(`${chunks.repeat(30)}0\r\n\r\n`));
  const reply = await client.call('GET', '/api/work-items/5');
  assert.ok(reply.body.equals(Buffer.alloc(300_000, '1')));
  const more = tell(t, pid, base);
  assert.ok(more === undefined || more < 80 * mebibyte, `${more} bytes more`);
});

test('requests sent ahead of a slow reply, 64 KB on each of 120 connections, fit into a heap of 64 MB [D58]', async (t) => {
  const { command } = await start(t, { NODE_OPTIONS: '--max-old-space-size=64' });
  const gate = createGate();
  backend.answers(behind(gate, answer('[]')));
  const clients = await Promise.all(Array.from({ length: 120 }, () => command.connect()));
  const seen = backend.requests.length;
  for (const client of clients) client.send(requestBytes('GET', '/api/work-items'));
  await backend.until(() => backend.requests.length === seen + clients.length, 'each has its slow call');
  const short = 'GET / HTTP/1.1\r\nHost:\r\n\r\n';
  for (const client of clients) client.send(short.repeat(65_536 / short.length));
  // As long as others are served, so would these have been taken.
  for (let round = 0; round < 100; round += 1) {
    assert.equal((await command.call('OPTIONS', '/api/work-items')).status, 204);
  }
  gate.open();
  await Promise.all(
    clients.map(async (client) => {
      assertReply(await client.reply(), 200, '[]');
      for (let index = 0; index < 50; index += 1) assertReply(await client.reply(), 404, notFound);
      client.destroy();
    }),
  );
  assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
});
