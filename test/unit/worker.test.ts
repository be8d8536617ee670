// A worker process, as it follows the messages of its primary process: this test.

import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect } from 'node:tls';
import type { FromWorker, ToWorker } from '../../packages/command/cluster/messages.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { Figures } from '../../packages/figures/figures.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { Changes } from '../helpers/changes.ts';
import { killAtExit } from '../helpers/program.ts';
import { closed, isRefused, RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
const main = join(import.meta.dirname, '../../packages/command/worker-main.ts');
const read = { withProcessMetrics: false, probesBackend: false };

type Start = Extract<ToWorker, { kind: 'start' }>;

class TestedWorker implements AsyncDisposable {
  readonly process: ChildProcess;
  readonly messages: FromWorker[] = [];
  readonly exited: Promise<unknown[]>;
  readonly #changes = new Changes();

  constructor(flags: Readonly<Record<string, string>> = {}, changes: Partial<Start> = {}) {
    this.process = killAtExit(fork(main, { execArgv: [], stdio: ['ignore', 'pipe', 'pipe', 'ipc'] }));
    this.exited = once(this.process, 'exit');
    this.process.on('message', (message: FromWorker) => {
      this.messages.push(message);
      this.#changes.notify();
    });
    const all = { host: '127.0.0.1', port: '0', logLevel: 'silent', backendUrl: backend.url, ...flags };
    const { settings } = resolveSettings('serve', all, {});
    const plain = { ...settings, backendUrl: settings.backendUrl.href };
    const more = { sharing: 'none', tls: {}, passed: [], keys: undefined } as const;
    this.send({ kind: 'start', settings: plain, ...more, ...changes });
  }

  send(message: ToWorker): void {
    this.process.send(message);
  }

  async message<Kind extends FromWorker['kind']>(kind: Kind): Promise<Extract<FromWorker, { kind: Kind }>> {
    type Found = Extract<FromWorker, { kind: Kind }>;
    const find = () => this.messages.find((each): each is Found => each.kind === kind);
    return await this.#changes.until(find, () => `the message ${kind}`);
  }

  async port(): Promise<number> {
    return Number(new URL((await this.message('ready')).url).port);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.process.kill('SIGKILL');
    await this.exited;
  }
}

const list = requestBytes('GET', '/api/work-items');

test('it reports its figures when asked, and a last time at its end', async () => {
  await using worker = new TestedWorker();
  {
    await using client = await RawClient.open(await worker.port());
    client.send(list);
    assert.equal((await client.reply()).status, 200);
  }
  worker.send({ kind: 'report', id: 5, request: read });
  const { id, reports } = await worker.message('reports');
  assert.equal(id, 5);
  assert.deepEqual(
    reports.map(({ pid, figures }) => [pid, new Figures(figures).requests('list', 200)]),
    [[worker.process.pid, 1]],
  );
  worker.send({ kind: 'finish-drain' });
  assert.deepEqual(await worker.exited, [0, null]);
  const last = worker.messages.at(-1);
  assert.ok(last?.kind === 'reports');
  assert.deepEqual([last.id, last.reports.length], [-1, 1]);
});

test('in a drain it closes connections after their next reply, and finishes calls in flight [D33]', async () => {
  await using worker = new TestedWorker();
  const port = await worker.port();
  await using idle = await RawClient.open(port);
  idle.send(list);
  assert.equal((await idle.reply()).header('connection'), 'keep-alive');
  worker.send({ kind: 'begin-drain' });
  worker.send({ kind: 'report', id: 0, request: read });
  await worker.message('reports');
  idle.send(list);
  assert.equal((await idle.reply()).header('connection'), 'close');
  worker.send({ kind: 'finish-drain' });
  assert.deepEqual(await worker.exited, [0, null]);
  assert.equal(await isRefused(port), true);
});

test('if it is cut, calls in flight end, and the exit code is 1 [D33]', async () => {
  await using worker = new TestedWorker();
  await using client = await RawClient.open(await worker.port());
  backend.answers(({ closed: isClosed }) => isClosed);
  client.send(list);
  await backend.nextRequest();
  worker.send({ kind: 'cut' });
  assert.deepEqual(await worker.exited, [1, null]);
  backend.answers(answer('[]'));
});

test('it ignores signals to the process group, and drains when its primary ends', async () => {
  await using worker = new TestedWorker();
  const port = await worker.port();
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) worker.process.kill(signal);
  worker.send({ kind: 'report', id: 1, request: read });
  await worker.message('reports');
  assert.equal(await isRefused(port), false);
  worker.process.disconnect();
  assert.deepEqual(await worker.exited, [0, null]);
});

test('an operator reads why it cannot start; its exit code is 1', async () => {
  await using first = new TestedWorker();
  const port = String(await first.port());
  await using second = new TestedWorker({ port });
  const { message } = await second.message('start-error');
  assert.match(message, new RegExp(`${port}.* in use`));
  assert.deepEqual(await second.exited, [1, null]);
});

test('a bug during the start is printed with its stack', async () => {
  await using worker = new TestedWorker({}, { tls: null as never });
  let stderr = '';
  worker.process.stderr?.on('data', (data: Buffer) => (stderr += data.toString()));
  assert.deepEqual(await worker.exited, [1, null]);
  assert.match(stderr, /^error: TypeError: .*\n +at /);
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
  await worker.message('reports');
  assert.equal(await subject(), 'two');
});
