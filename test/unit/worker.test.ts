// A worker process obeys the messages of its primary process. The test acts as the primary.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { connect } from 'node:tls';
import { toPlain, type FromWorker, type ToWorker } from '../../packages/command/cluster/messages.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { Figures } from '../../packages/figures/figures.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply } from '../helpers/expected.ts';
import { audience, createPair, goodToken, issuerName, KeyServer, keySetOf, sending } from '../helpers/issuer.ts';
import { Program } from '../helpers/program.ts';
import { closed, RawClient, request, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';
import { bearer } from '../helpers/tokens.ts';

const backend = await useBackend();
const folder = useFolder();
const main = join(import.meta.dirname, '../../packages/command/worker-main.ts');
const read = { withProcessMetrics: false, probesBackend: false };

type Start = Extract<ToWorker, { kind: 'start' }>;

type Flags = Readonly<Record<string, string>>;

function plainSettings(flags: Flags) {
  const all = { host: '127.0.0.1', port: '0', logLevel: 'silent', backendUrl: backend.url, ...flags };
  return toPlain(resolveSettings('serve', all, {}).settings);
}

class TestedWorker extends Program {
  readonly messages: FromWorker[] = [];
  readonly #passed = new Map<number, Socket>();
  readonly #server = createServer({ pauseOnConnect: true }, (socket) => this.pass(socket));

  constructor(flags: Flags = {}, changes: Partial<Start> = {}, environment: NodeJS.ProcessEnv = {}) {
    const env = { ...process.env, ...environment };
    super([process.execPath, main], { stdio: ['ignore', 'pipe', 'pipe', 'ipc'], env });
    this.process.on('message', (message: FromWorker) => {
      this.messages.push(message);
      if (message.kind === 'taken') this.#passed.get(message.number)?.destroy();
    });
    this.send({ kind: 'start', settings: plainSettings(flags), tls: {}, keys: undefined, ...changes });
  }

  /** Passes a connection to the worker, as the primary process does. */
  pass(socket: Socket): void {
    const number = this.#passed.size + 1;
    this.#passed.set(number, socket);
    this.process.send({ kind: 'connection', number }, socket, { keepOpen: true }, () => undefined);
  }

  /** The last connection passed to the worker. */
  unconfirmed(): Socket {
    return this.#passed.get(this.#passed.size) ?? assert.fail();
  }

  reload(id: number, flags: Flags): void {
    this.send({ kind: 'reload', id, settings: plainSettings(flags), tls: {} });
  }

  send(message: ToWorker): void {
    this.process.send(message);
  }

  async message<Kind extends FromWorker['kind']>(kind: Kind): Promise<Extract<FromWorker, { kind: Kind }>> {
    type Found = Extract<FromWorker, { kind: Kind }>;
    const find = () => this.messages.find((each): each is Found => each.kind === kind);
    await poll(() => find() !== undefined, `the message ${kind}`);
    return find() ?? assert.fail();
  }

  /** Asserts that the worker ends with this exit code. */
  async ends(code: number): Promise<void> {
    await poll(() => this.process.exitCode !== null, 'it ends');
    assert.equal(this.process.exitCode, code);
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    for (const socket of this.#passed.values()) socket.destroy();
    if (this.process.exitCode === null) await super[Symbol.asyncDispose]();
  }

  /** The port of a server that passes its connections to the worker. */
  async port(): Promise<number> {
    await this.message('ready');
    if (!this.#server.listening) await once(this.#server.listen(0, '127.0.0.1'), 'listening');
    return (this.#server.address() as AddressInfo).port;
  }
}

const list = requestBytes('GET', '/api/work-items');

test('a worker reports its figures when asked, and a last time at its end', async () => {
  await using worker = new TestedWorker();
  {
    await using client = await RawClient.open(await worker.port());
    client.send(list);
    assert.equal((await client.reply()).status, 200);
  }
  worker.send({ kind: 'report', id: 5, request: read });
  const { id, report } = await worker.message('report');
  assert.deepEqual([id, report?.pid], [5, worker.process.pid]);
  assert.equal(new Figures(report?.figures).requests('list', 200), 1);
  worker.send({ kind: 'finish-drain' });
  await worker.ends(0);
  const last = worker.messages.at(-1);
  assert.ok(last?.kind === 'report');
  assert.deepEqual([last.id, last.report?.pid], [-1, worker.process.pid]);
});

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1'] as const) {
  test(`${signal} does not end a worker that is loading its first files, and opens no debugger`, async () => {
    await using worker = new TestedWorker(
      {},
      {},
      {
        NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import ${resolve(import.meta.dirname, '../process/strike.ts')}`,
        STRIKE_AT: '/packages/command/',
        STRIKE_SKIP: '1',
        STRIKE_SIGNAL: signal,
        STRIKE_ONCE: join(folder, signal),
      },
    );
    await worker.message('ready');
    worker.send({ kind: 'finish-drain' });
    await worker.ends(0);
    assert.equal(worker.output, '');
  });
}

test('in a drain, a worker closes connections after their next reply, and finishes calls in flight [D33]', async () => {
  await using worker = new TestedWorker();
  const port = await worker.port();
  await using idle = await RawClient.open(port);
  idle.send(list);
  assert.equal((await idle.reply()).header('connection'), 'keep-alive');
  worker.send({ kind: 'begin-drain' });
  worker.send({ kind: 'report', id: 0, request: read });
  await worker.message('report');
  idle.send(list);
  assert.equal((await idle.reply()).header('connection'), 'close');
  worker.send({ kind: 'finish-drain' });
  await worker.ends(0);
});

test('a worker that receives the message "cut" ends its calls in flight, and its exit code is 1 [D33]', async () => {
  await using worker = new TestedWorker({ shutdownTimeoutMs: '60000' });
  await using client = await RawClient.open(await worker.port());
  backend.answers(({ closed: isClosed }) => isClosed);
  client.send(list);
  await backend.nextRequest();
  worker.send({ kind: 'cut' });
  await worker.ends(1);
  backend.answers(answer('[]'));
});

test('a worker ignores signals to the process group, and drains when its primary ends', async () => {
  await using worker = new TestedWorker();
  await worker.message('ready');
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) worker.process.kill(signal);
  worker.send({ kind: 'report', id: 1, request: read });
  await worker.message('report');
  // After `disconnect`, a `ChildProcess` emits no `close`; so `ends` polls the exit code.
  worker.process.disconnect();
  await worker.ends(0);
});

test('if a worker cannot start, it reports the reason, and its exit code is 1', async () => {
  await using worker = new TestedWorker({ authIssuer: issuerName, authAudience: audience, authJwksFile: '/dev/null' });
  const { message } = await worker.message('start-error');
  assert.match(message, /^AUTH_JWKS_FILE \(.+\) cannot be used: /);
  await worker.ends(1);
});

test('a bug during the start is printed with its stack', async () => {
  await using worker = new TestedWorker({}, { tls: null as never });
  await worker.ends(1);
  assert.match(worker.stderr, /^error: TypeError: .*\n +at /);
  assert.deepEqual(worker.messages, []);
});

test('new connections use new certificates [D37]', { skip: noOpenssl }, async () => {
  using folder = new CertificateFolder();
  const authority = folder.authority('authority');
  const [one, two] = ['one', 'two'].map((name) => {
    const { certFile, keyFile } = folder.issue(authority, name);
    const clients = { cert: readFileSync(certFile, 'utf8'), key: readFileSync(keyFile, 'utf8') };
    return { name, tls: { clients }, certFile, keyFile };
  });
  assert.ok(one && two);
  const flags = { tlsCertFile: one.certFile, tlsKeyFile: one.keyFile };
  await using worker = new TestedWorker(flags, { tls: one.tls });
  const port = await worker.port();
  const subject = async (): Promise<unknown> => {
    const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false });
    await once(socket, 'secureConnect');
    const name = socket.getPeerCertificate().subject.CN;
    socket.destroy();
    await closed(socket);
    return name;
  };
  assert.equal(await subject(), 'one');
  worker.send({ kind: 'renew-tls', tls: two.tls });
  worker.send({ kind: 'report', id: 2, request: read });
  await worker.message('report');
  assert.equal(await subject(), 'two');
});

test('for the rate limit, the primary process counts the requests of a worker [D47]', async () => {
  await using worker = new TestedWorker({ rateLimit: '9/60s' });
  await using client = await RawClient.open(await worker.port());
  client.send(list);
  const { requests } = await worker.message('count');
  assert.deepEqual(requests, [{ key: '127.0.0.1', rate: { limit: 9, windowMs: 60_000 } }]);
  // No request is left.
  worker.send({ kind: 'counted', taken: [{ left: -1, msLeft: 5_000 }] });
  assert.equal((await client.reply()).status, 429);
});

test('a worker passes on the keys that it fetches, and serves with keys that another worker has fetched [D44]', async () => {
  const pair = createPair('one', 'ES256');
  const text = keySetOf(pair);
  await using issuer = await KeyServer.start(text);
  const flags = { authIssuer: issuerName, authAudience: audience, authJwksUrl: issuer.url };
  await using first = new TestedWorker(flags);
  const { jwksUrl, keys } = await first.message('keys');
  assert.deepEqual([jwksUrl, keys.text], [issuer.url, text]);
  issuer.respond = sending('', 500);
  await using second = new TestedWorker(flags, { keys });
  const headers = [bearer(goodToken(pair))];
  assertReply(await request(await second.port(), 'GET', '/api/work-items', { headers }), 200, '[]');
});

test('a failed reload keeps the old settings and reports the reason; a later reload applies all new settings [D65]', async () => {
  await using worker = new TestedWorker({ requestBytesMax: '10' });
  const port = await worker.port();
  const create = async (): Promise<number> =>
    (await request(port, 'POST', '/api/work-items', { body: '{"title":"long"}' })).status;
  const tokens = { authIssuer: issuerName, authAudience: audience, authJwksFile: '/dev/null' };
  worker.reload(1, tokens);
  const { id, problem } = await worker.message('reloaded');
  assert.equal(id, 1);
  assert.match(String(problem), /^AUTH_JWKS_FILE \(.+\) cannot be used: /);
  assert.equal((await worker.message('reload-finished')).id, 1);
  assert.equal(await create(), 413);
  assert.equal(worker.output, '');
  worker.messages.length = 0;
  worker.reload(2, { logLevel: 'info' });
  assert.deepEqual(await worker.message('reloaded'), { kind: 'reloaded', id: 2 });
  assert.equal((await worker.message('reload-finished')).id, 2);
  assert.equal(await create(), 201);
  await worker.prints(/"status":201/);
});

test('a worker answers a ping with the number of its connections', async () => {
  await using worker = new TestedWorker();
  await using client = await RawClient.open(await worker.port());
  client.send(list);
  await client.reply();
  assert.partialDeepStrictEqual(await worker.message('taken'), { number: 1 });
  worker.send({ kind: 'ping', number: 7 });
  assert.partialDeepStrictEqual(await worker.message('pong'), { number: 7, open: 1 });
});

test('a worker that has a fault says so first, finishes its calls, and takes no further connection [D33]', async () => {
  const injection = join(import.meta.dirname, '../process/broken-node.ts');
  const environment = { NODE_OPTIONS: `--import ${injection}`, FAULTS: 'rejection' };
  await using worker = new TestedWorker({ shutdownTimeoutMs: '60000' }, {}, environment);
  await using other = new TestedWorker();
  const port = await worker.port();
  await other.message('ready');
  const gate = createGate();
  backend.answers(behind(gate, answer('[1]')));
  await using client = await RawClient.open(port);
  client.send(list);
  await backend.nextRequest();
  const before = worker.messages.length;
  worker.process.kill('SIGUSR2');
  await worker.message('fault');
  assert.equal(worker.messages[before]?.kind, 'fault');
  backend.answers(answer('[2]'));
  await using late = await RawClient.open(port);
  late.send(list);
  worker.send({ kind: 'report', id: 3, request: read });
  await worker.message('report');
  assert.deepEqual(
    worker.messages.filter(({ kind }) => kind === 'taken').map((each) => each.kind === 'taken' && each.number),
    [1],
  );
  // Another worker gets the connection, with all of its bytes.
  other.pass(worker.unconfirmed());
  assert.equal((await late.reply()).text, '[2]');
  gate.open();
  assert.equal((await client.reply()).text, '[1]');
  await worker.ends(1);
  backend.answers(answer('[]'));
});
