// A worker process obeys the messages of its primary process. The test acts as the primary.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { toPlain, type FromWorker, type ToWorker } from '../../packages/command/cluster/messages.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { createPair, keySetOf } from '../helpers/issuer.ts';
import { Program } from '../helpers/program.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';

const backend = await useBackend();
const folder = useFolder();
const main = join(import.meta.dirname, '../../packages/command/worker-main.ts');
const read = { withProcessMetrics: false, probesBackend: false };

const flags = { logLevel: 'silent', backendUrl: backend.url, shutdownTimeoutMs: '60000' };
const settings = toPlain(resolveSettings('serve', flags, {}).settings);

/** A worker whose primary process is the test. */
class TestedWorker extends Program {
  readonly messages: FromWorker[] = [];
  readonly #passed: Socket[] = [];
  readonly #server = createServer({ pauseOnConnect: true }, (socket) => this.pass(socket));

  constructor(environment: NodeJS.ProcessEnv = {}, changes: Partial<Extract<ToWorker, { kind: 'start' }>> = {}) {
    const env = { ...process.env, ...environment };
    super([process.execPath, main], { stdio: ['ignore', 'pipe', 'pipe', 'ipc'], env });
    this.process.on('message', (message: FromWorker) => {
      this.messages.push(message);
      if (message.kind === 'taken') this.#passed[message.number - 1]?.destroy();
    });
    this.send({ kind: 'start', settings, tls: {}, keys: undefined, ...changes });
  }

  /** Passes a connection to the worker, as the primary process does. */
  pass(socket: Socket): void {
    const number = this.#passed.push(socket);
    this.process.send({ kind: 'connection', number }, socket, { keepOpen: true }, () => undefined);
  }

  /** The last connection passed to the worker. */
  get last(): Socket {
    return this.#passed.at(-1) ?? assert.fail();
  }

  send(message: ToWorker): void {
    this.process.send(message);
  }

  async received(kind: FromWorker['kind']): Promise<void> {
    await poll(() => this.messages.some((each) => each.kind === kind), `the message ${kind}`);
  }

  /** Asserts that the worker ends with this exit code. */
  async ends(code: number): Promise<void> {
    await poll(() => this.process.exitCode !== null, 'it ends');
    assert.equal(this.process.exitCode, code);
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    for (const socket of this.#passed) socket.destroy();
    if (this.process.exitCode === null) await super[Symbol.asyncDispose]();
  }

  /** The port of a server that passes its connections to the worker. */
  async port(): Promise<number> {
    await this.received('ready');
    await once(this.#server.listen(0, '127.0.0.1'), 'listening');
    return (this.#server.address() as AddressInfo).port;
  }
}

const list = requestBytes('GET', '/api/work-items');

for (const signal of ['SIGTERM', 'SIGHUP'] as const) {
  test(`${signal} does not end a worker that is loading its first files`, async () => {
    await using worker = new TestedWorker({
      NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import ${resolve(import.meta.dirname, '../process/strike.ts')}`,
      STRIKE_AT: '/packages/command/',
      STRIKE_SKIP: '1',
      STRIKE_SIGNAL: signal,
      STRIKE_ONCE: join(folder, signal),
    });
    await worker.received('ready');
    worker.send({ kind: 'finish-drain' });
    await worker.ends(0);
    assert.equal(worker.output, '');
  });
}

test('a bug during the start is printed with its stack', async () => {
  await using worker = new TestedWorker({}, { tls: null as never });
  await worker.ends(1);
  assert.match(worker.stderr, /^error: TypeError: .*\n +at /);
  assert.deepEqual(worker.messages, []);
});

test('a worker starts with the keys that another worker has fetched, while the issuer is down [D44]', async () => {
  const tokens = { authIssuer: 'https://issuer.test', authAudience: 'api', authJwksUrl: 'http://127.0.0.1:1/keys' };
  const withTokens = toPlain(resolveSettings('serve', { ...flags, ...tokens }, {}).settings);
  const keys = { text: keySetOf(createPair('one', 'ES256')), ageMs: 0 };
  await using worker = new TestedWorker({}, { settings: withTokens, keys });
  await worker.received('ready');
  const ready = worker.messages.find((each) => each.kind === 'ready');
  assert.equal(ready?.report?.keys?.keys, 1);
});

test('a worker that has a fault says so first, finishes its calls, and takes no further connection [D33]', async () => {
  const injection = join(import.meta.dirname, '../process/broken-node.ts');
  const environment = { NODE_OPTIONS: `--import ${injection}`, FAULTS: 'rejection' };
  await using worker = new TestedWorker(environment);
  await using other = new TestedWorker();
  const port = await worker.port();
  await other.received('ready');
  const gate = createGate();
  backend.answers(behind(gate, answer('[1]')));
  await using client = await RawClient.open(port);
  client.send(list);
  await backend.nextRequest();
  const before = worker.messages.length;
  worker.process.kill('SIGUSR2');
  await worker.received('fault');
  assert.equal(worker.messages[before]?.kind, 'fault');
  backend.answers(answer('[2]'));
  await using late = await RawClient.open(port);
  late.send(list);
  worker.send({ kind: 'report', id: 3, request: read });
  await worker.received('report');
  assert.equal(worker.messages.filter(({ kind }) => kind === 'taken').length, 1);
  // Another worker gets the connection, with all of its bytes.
  other.pass(worker.last);
  assert.equal((await late.reply()).text, '[2]');
  gate.open();
  assert.equal((await client.reply()).text, '[1]');
  await worker.ends(1);
  backend.answers(answer('[]'));
});
