// The memory of the built command during many large concurrent calls, and the release of this memory.

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { totalmem } from 'node:os';
import { test, type TestContext } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { figureOf, logged, startCommand } from '../helpers/command.ts';
import { assertReply, succeeded, unavailable } from '../helpers/expected.ts';
import { residentBytes } from '../helpers/process-figures.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer, answerBytes, behind } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const mebibyte = 1024 * 1024;
const body = Buffer.from(`[${'{"id":1,"title":"Paint the fence","done":false},'.repeat(171_000)}1]`);

const backend = await useBackend();

/** Starts the command and makes two calls. `assertPeak` fails if its memory grew by more than `bytes` since then. */
async function start(t: TestContext, environment: NodeJS.ProcessEnv = {}) {
  const command = await startCommand({ BACKEND_URL: backend.url, LOG_LEVEL: 'warn', ...environment });
  t.after(() => command[Symbol.asyncDispose]());
  await command.call('GET', '/api/work-items');
  await command.call('PUT', '/api/work-items/1', { body: '[1]' });
  const { pid } = command.process;
  const base = residentBytes(pid, 'VmRSS') ?? 0;
  const assertPeak = (bytes: number): void => {
    const more = (residentBytes(pid, 'VmHWM') ?? 0) - base;
    t.diagnostic(`idle ${(base / mebibyte).toFixed()} MiB, at most ${(more / mebibyte).toFixed()} MiB more`);
    assert.ok(more <= bytes, `${more} bytes more`);
  };
  return Object.assign(command, { assertPeak });
}

/** Makes a GET whose reply must have the body `body`. Compares the bytes, and does not store them. */
async function readBody(port: number): Promise<void> {
  const socket = connect({ port, host: '127.0.0.1' });
  socket.write(requestBytes('GET', '/api/work-items'));
  let at = -1;
  for await (const data of socket as AsyncIterable<Buffer>) {
    const piece = at < 0 ? data.subarray(data.indexOf('\r\n\r\n') + 4) : data;
    at = Math.max(at, 0);
    assert.ok(piece.equals(body.subarray(at, at + piece.length)), `other bytes after ${at}`);
    at += piece.length;
    if (at === body.length) return;
  }
  assert.fail(`closed after ${at} bytes`);
}

test('64 concurrent lists of 8 MB need memory of at most 1.3 times their size', async (t) => {
  const command = await start(t);
  const gate = createGate();
  const bytes = answerBytes(body);
  backend.answers(async (exchange) => {
    await gate.opened;
    // All answers share `bytes`, because 64 copies would fill the memory of this process.
    exchange.socket.write(bytes);
  });
  const reads = Promise.all(Array.from({ length: 64 }, () => readBody(command.port)));
  const seen = backend.requests.length;
  await backend.until(() => backend.requests.length === seen + 64, '64 concurrent calls');
  gate.open();
  await reads;
  command.assertPeak(64 * body.length * 1.3);
  assert.equal(await figureOf(command, 'buffered_bytes'), 0);
});

test('if large bodies exceed BUFFERED_BYTES_MAX, some calls get 503, the others are served, and the process keeps running [D26]', async (t) => {
  const command = await start(t, { BUFFERED_BYTES_MAX: String(32 * mebibyte) });
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
  const replies = (await Promise.all(started)).filter((reply) => reply !== undefined);
  const refused = replies.filter(({ status }) => status !== 200);
  for (const reply of refused) assertReply(reply, 503, unavailable, ['retry-after']);
  const served = replies.length - refused.length;
  assert.ok(served >= 1 && served <= 4, `${served} of 40 served`);
  const writes = backend.requests.filter(({ method }) => method === 'PUT').slice(1);
  assert.ok(writes.every((call) => call.body.length === body.length));
  await poll(async () => (await figureOf(command, 'buffered_bytes')) === 0, 'no bytes are buffered');
  // Much less than all 40 bodies, which would need 320 MiB.
  command.assertPeak(32 * mebibyte * 6);
  assertReply(await command.call('PUT', '/api/work-items/1', { body }), 200, succeeded);
});

test('if the limits need more memory than the machine has, check and serve warn with both amounts', async () => {
  const environment = { BACKEND_URL: backend.url, BUFFERED_BYTES_MAX: String(2 ** 40), CONNECTIONS_MAX: '1000' };
  const needed = Math.ceil((2 ** 40 * 4) / 3) + 200_000_000 + 1_000 * 16_000;
  await using gateway = await startCommand(environment);
  const line = await logged(gateway, /^too little memory/);
  assert.partialDeepStrictEqual(line, { level: 'warn', needed });
  const limit = Number(line['limit']);
  assert.ok(limit > 0 && limit <= totalmem());
  const check = await runHere(['check'], environment);
  assert.equal(check.code, 0, check.output);
  const warning = /^warning: too little memory .*: .* lower BUFFERED_BYTES_MAX, CONNECTIONS_MAX or WORKERS \((.*)\)$/m;
  const amounts = `limit ${limit}, needed ${needed}, bufferedBytesMax ${2 ** 40}, connectionsMax 1000, workers 1`;
  assert.equal(warning.exec(check.stdout)?.[1], amounts);
  const fits = await runHere(['check'], { ...environment, BUFFERED_BYTES_MAX: '1000', CONNECTIONS_MAX: '1' });
  assert.equal(fits.code, 0, fits.output);
  assert.doesNotMatch(fits.output, /warning/);
});
