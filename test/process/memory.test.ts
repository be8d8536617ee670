// The memory of the built command during many large concurrent calls, and the release of this memory.

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { totalmem } from 'node:os';
import { test, type TestContext } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { figureOf, logged, startCommand } from '../helpers/command.ts';
import { assertReply, unavailable } from '../helpers/expected.ts';
import { countDescriptors, residentBytes } from '../helpers/process-figures.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer, answerBytes, behind } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const mebibyte = 1024 * 1024;
const body = Buffer.from(`[${'{"id":1,"title":"Paint the fence","done":false},'.repeat(171_000)}1]`);

const backend = await useBackend();

/** Starts the command and makes two calls. Returns its memory and number of descriptors after the calls. */
async function start(t: TestContext, environment: NodeJS.ProcessEnv = {}) {
  const command = await startCommand({ BACKEND_URL: backend.url, LOG_LEVEL: 'warn', ...environment });
  t.after(() => command[Symbol.asyncDispose]());
  await command.call('GET', '/api/work-items');
  await command.call('PUT', '/api/work-items/1', { body: '[1]' });
  const { pid } = command.process;
  return { command, pid, base: residentBytes(pid, 'VmRSS'), descriptors: countDescriptors(pid) };
}

/** The peak of memory minus `base`, in bytes. */
function peakAbove(t: TestContext, pid: number | undefined, base: number | undefined): number | undefined {
  const peak = residentBytes(pid, 'VmHWM');
  if (base === undefined || peak === undefined) return undefined;
  const more = peak - base;
  t.diagnostic(`idle ${(base / mebibyte).toFixed()} MiB, at most ${(more / mebibyte).toFixed()} MiB more`);
  return more;
}

/** Makes a GET and returns the length of the reply's body. Compares the bytes with `body`, and does not store them. */
async function measureReply(port: number): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const socket = connect({ port, host: '127.0.0.1' });
  let length = 0;
  let headLength = 0;
  socket.on('error', reject);
  socket.on('data', (data: Buffer) => {
    if (length === 0) headLength = data.indexOf('\r\n\r\n') + 4;
    length += data.length;
    const from = Math.max(0, length - data.length - headLength);
    const piece = length === data.length ? data.subarray(headLength) : data;
    if (!piece.equals(body.subarray(from, from + piece.length))) reject(new Error(`other bytes at ${from}`));
    if (length === headLength + body.length) resolve(length - headLength);
  });
  socket.on('close', () => reject(new Error(`closed after ${length} bytes`)));
  socket.write(requestBytes('GET', '/api/work-items'));
  try {
    return await promise;
  } finally {
    socket.destroy();
  }
}

test('64 concurrent lists of 8 MB need memory of at most 1.3 times their size', async (t) => {
  const { command, pid, base } = await start(t);
  const gate = createGate();
  const bytes = answerBytes(body);
  backend.answers(async (exchange) => {
    await gate.opened;
    // All answers share `bytes`, because 64 copies would fill the memory of this process.
    exchange.socket.write(bytes);
  });
  const lengths = Promise.all(Array.from({ length: 64 }, () => measureReply(command.port)));
  const seen = backend.requests.length;
  await backend.until(() => backend.requests.length === seen + 64, '64 concurrent calls');
  gate.open();
  assert.deepEqual(new Set(await lengths), new Set([body.length]));
  const more = peakAbove(t, pid, base);
  assert.ok(more === undefined || more <= 64 * body.length * 1.3, `${more} bytes more`);
  assert.equal(await figureOf(command, 'buffered_bytes'), 0);
});

test('if large bodies exceed BUFFERED_BYTES_MAX, some calls get 503, the others are served, and the process keeps running [D26]', async (t) => {
  const { command, pid, base } = await start(t, { BUFFERED_BYTES_MAX: String(32 * mebibyte) });
  const gate = createGate();
  backend.answers(behind(gate, answer('[]')));
  const clients = await Promise.all(Array.from({ length: 40 }, () => command.connect()));
  const started = clients.map(async (client, index) => {
    client.send(requestBytes('PUT', `/api/work-items/${index}`, { body }));
    // A client that still sends when it is refused may be reset before it reads the reply.
    return await client.reply().catch(() => undefined);
  });
  await poll(async () => {
    const count = /requests_total\{operation="update",status="503"\} (\d+)/.exec(await command.metrics())?.[1];
    return Number(count) >= 36;
  }, '36 calls are refused');
  gate.open();
  const replies = await Promise.all(started);
  const served = replies.filter((reply) => reply?.status === 200);
  for (const reply of replies) {
    if (reply !== undefined && reply.status !== 200) assertReply(reply, 503, unavailable, ['retry-after']);
  }
  assert.ok(served.length >= 1 && served.length <= 4, `${served.length} of 40 served`);
  assert.ok(
    backend.requests
      .filter(({ method }) => method === 'PUT')
      .every((call) => call.body.length === body.length || call.body.equals(Buffer.from('[1]'))),
  );
  await poll(async () => (await figureOf(command, 'buffered_bytes')) === 0, 'no bytes are buffered');
  const more = peakAbove(t, pid, base);
  // Much less than all 40 bodies, which would need 320 MiB.
  assert.ok(more === undefined || more < 32 * mebibyte * 6, `${more} bytes more`);
  assertReply(await command.call('PUT', '/api/work-items/1', { body }), 200, '{"success":true}');
});

test('if the limits need more memory than the machine has, check and serve warn with both amounts', async () => {
  const environment = { BACKEND_URL: backend.url, BUFFERED_BYTES_MAX: String(2 ** 40), CONNECTIONS_MAX: '1000' };
  const needed = Math.ceil((2 ** 40 * 4) / 3) + 200_000_000 + 1_000 * 16_000;
  backend.answers(answer('[]'));
  await using gateway = await startCommand(environment);
  const line = await logged(gateway, /^too little memory/);
  assert.equal(line['level'], 'warn');
  assert.equal(line['needed'], needed);
  const limit = Number(line['limit']);
  assert.ok(limit > 0 && limit <= totalmem());
  const check = await runHere(['check'], environment);
  assert.equal(check.code, 0, check.output);
  const warning = /^warning: too little memory .*: .* lower BUFFERED_BYTES_MAX, CONNECTIONS_MAX or WORKERS \((.*)\)$/m;
  assert.equal(
    warning.exec(check.stdout)?.[1],
    `limit ${limit}, needed ${needed}, bufferedBytesMax ${2 ** 40}, connectionsMax 1000, workers 1`,
  );
  const small = { BACKEND_URL: backend.url, BUFFERED_BYTES_MAX: '1000', CONNECTIONS_MAX: '1' };
  const fits = await runHere(['check'], small);
  assert.equal(fits.code, 0, fits.output);
  assert.doesNotMatch(fits.output, /warning/);
});
