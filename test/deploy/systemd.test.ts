// The systemd units: systemd's tools accept them, inherited sockets and notifications work, and a restart loses no connection.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync, existsSync } from 'node:fs';
import { BoundSocket } from 'node:net';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { settingNames, variableOf } from '../../packages/command/settings/settings.ts';
import { poll } from '../helpers/changes.ts';
import { Command, logged } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { childrenOf } from '../helpers/process-figures.ts';
import { request } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';
import { neededWithConnections } from './needed-memory.ts';

const root = resolve(import.meta.dirname, '../..');
const units = join(root, 'deploy/systemd');
const skipWithout = (program: string): string | false =>
  spawnSync(program, ['--version']).error !== undefined &&
  `${program} is not installed, so nothing was tested here; on Debian: apt-get install systemd`;

const skipActivate = skipWithout('systemd-socket-activate');

const folder = useFolder();
const backend = await useBackend();
const list = '/api/work-items';

const names = ['work-item-gateway.service', 'work-item-gateway.socket', 'work-item-gateway-admin.socket'];
const [service = '', clients = '', admin = '', secrets = ''] = [...names, 'secrets.env'].map((name) =>
  readFileSync(join(units, name), 'utf8'),
);

describe('the systemd units', () => {
  test('systemd accepts them, with an exposure of at most 1.5 of 10', { skip: skipWithout('systemd-analyze') }, () => {
    const analyze = (...args: readonly string[]) => spawnSync('systemd-analyze', args, { encoding: 'utf8' });
    // The installed program does not exist here, so the built program replaces it.
    const program = 'ExecStart=/usr/local/bin/work-item-gateway ';
    assert.ok(service.includes(program));
    const built = service.replace(program, `ExecStart=${process.execPath} dist/command/main.js `);
    for (const [index, text] of [built, clients, admin].entries())
      writeFileSync(join(folder, names[index] ?? ''), text);
    const paths = names.map((name) => join(folder, name));
    const { status, stdout, stderr } = analyze('verify', '--man=no', ...paths);
    // systemd-analyze also reports other units of this machine.
    const ours = `${stdout}${stderr}`.split('\n').filter((line) => line.includes('work-item-gateway'));
    assert.deepEqual([status, ...ours], [0]);
    const security = analyze('security', '--offline=true', '--threshold=15', join(units, 'work-item-gateway.service'));
    assert.match(security.stdout, /Overall exposure level for work-item-gateway\.service: \d/);
    assert.equal(security.status, 0, security.stdout + security.stderr);
  });

  test('they fit the gateway: names of the sockets, machine code for V8, the debugger, the time to stop, the memory', () => {
    assert.match(clients, /^FileDescriptorName=clients$/m);
    assert.match(admin, /^FileDescriptorName=admin$/m);
    assert.match(admin, /^ListenStream=127\.0\.0\.1:9464$/m);
    assert.doesNotMatch(service, /^MemoryDenyWriteExecute/m);
    assert.match(service, /^Environment=.* NODE_OPTIONS=--disable-sigusr1$/m);
    const { settings } = resolveSettings('serve', {}, {});
    // After the drain, the stop takes at most 4 s.
    const stopS = 4;
    assert.ok(Number(/^TimeoutStopSec=(\d+)$/m.exec(service)?.[1]) > settings.shutdownTimeoutMs / 1_000 + stopS);
    const gibibytes = Math.ceil(neededWithConnections({ ...settings, http2: true }) / 2 ** 30);
    assert.match(service, new RegExp(`^MemoryMax=${gibibytes}G$`, 'm'));
  });

  test('`check` accepts the settings file; the examples of the secrets file, which systemd reads as root, are valid', async () => {
    const file = join(units, 'settings.env');
    const variables = readFileSync(file, 'utf8').match(/^[A-Z_]+(?==)/gm);
    assert.deepEqual(variables, ['BACKEND_URL']);
    // The file's backend does not exist here, so a flag, which takes precedence, names another.
    const { code, output } = await runHere(['check', '--settings-file', file, '--backend-url', backend.url]);
    assert.equal(code, 0, output);
    assert.match(service, /^EnvironmentFile=-\/etc\/work-item-gateway\/secrets\.env$/m);
    assert.doesNotMatch(secrets, /^[^#\n]/m, 'every line is a comment');
    const examples = Object.fromEntries(
      [...secrets.matchAll(/^#([A-Z_]+)=(.*)$/gm)].map(([, name = '', value = '']) => [name, value]),
    );
    const known = settingNames.map(variableOf);
    for (const name of Object.keys(examples)) assert.ok(known.includes(name), `${name} is a setting`);
    const others = { RATE_LIMIT: '100/60s', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://localhost:4318' };
    assert.equal(resolveSettings('serve', {}, { ...others, ...examples }).sources.rateLimitRedisUrl, 'environment');
  });
});

// Opens the listening sockets and passes them to the gateway, as systemd does.
class Manager implements Disposable {
  readonly #clients = new BoundSocket({ host: '127.0.0.1', port: 0 });
  readonly #admin = new BoundSocket({ host: '127.0.0.1', port: 0 });
  readonly port = this.#clients.address().port;
  readonly adminPort = this.#admin.address().port;

  async start(environment: NodeJS.ProcessEnv, ...others: readonly BoundSocket[]): Promise<Command> {
    const log = { LOG_FORMAT: 'json', LOG_LEVEL: 'warn' };
    const variables = { BACKEND_URL: backend.url, LISTEN_FDNAMES: 'admin:clients', ...log, ...environment };
    const passed = [this.#admin, this.#clients, ...others].map((socket) => socket.fd());
    const command = new Command(['serve'], variables, { passed });
    const ready = await logged(command, 'ready');
    assert.equal(ready['url'], `http://127.0.0.1:${this.port}`);
    assert.equal(ready['adminUrl'], `http://127.0.0.1:${this.adminPort}`);
    return command;
  }

  [Symbol.dispose](): void {
    this.#clients.close();
    this.#admin.close();
  }
}

describe('inherited sockets', { skip: process.platform !== 'linux' && 'only Linux has systemd' }, () => {
  test('restarts lose no connection', async (t) => {
    using manager = new Manager();
    await using stack = new AsyncDisposableStack();
    let gateway = stack.use(await manager.start({ WORKERS: '2' }));
    const statuses: number[] = [];
    let isOver = false;
    // Each call opens a connection, so that connections arrive during each restart.
    const callers = Array.from({ length: 8 }, async () => {
      while (!isOver) statuses.push((await request(manager.port, 'GET', list)).status);
    });
    for (let restarts = 0; restarts < 2; restarts += 1) {
      const served = statuses.length;
      await poll(() => statuses.length > served + 100, 'calls are served');
      gateway.signal('SIGTERM');
      assert.equal(await gateway.exitCode(), 0, gateway.output);
      gateway = stack.use(await manager.start({ WORKERS: '2' }));
    }
    isOver = true;
    // Rejects if a connection was lost.
    await Promise.all(callers);
    t.diagnostic(`${statuses.length} calls, 2 restarts`);
    const failed = statuses.filter((status) => status !== 200);
    assert.deepEqual(failed, []);
  });

  test('several sockets of one name are served and shown, also after a reload and after the death of all workers', async () => {
    using other = new BoundSocket({ host: '127.0.0.1', port: 0 });
    using manager = new Manager();
    const ignored = { HOST: '192.0.2.1', PORT: '1', ADMIN_PORT: '2' };
    const file = join(folder, 'inherited.env');
    const name = (instance: string): void => writeFileSync(file, `INSTANCE_NAME=${instance}\n`);
    name('before');
    const processes = { WORKERS: '2', LOG_LEVEL: 'info', LISTEN_FDNAMES: 'admin:clients:clients' };
    const settings = { SETTINGS_FILE: file, ...processes, ...ignored };
    await using gateway = await manager.start(settings, other);
    const places = {
      HOST: '127.0.0.1 and 1 more',
      PORT: `${manager.port} and 1 more`,
      ADMIN_HOST: '127.0.0.1',
      ADMIN_PORT: manager.adminPort,
    };
    const { host, port, adminHost, adminPort } = (await logged(gateway, 'ready'))['settings'] as Record<string, string>;
    assert.deepEqual(
      [host, port, adminHost, adminPort],
      Object.values(places).map((place) => `${place} (socket)`),
    );
    const serves = async (instance: string) => {
      for (const each of [manager.port, other.address().port]) {
        const replies = await Promise.all(Array.from({ length: 4 }, () => request(each, 'GET', list)));
        assert.deepEqual(
          replies.map(({ status }) => status),
          [200, 200, 200, 200],
        );
      }
      // The dashboard may show the state of a second ago.
      const isNow = ({ facts }: Awaited<ReturnType<typeof readState>>) => facts.instanceName === instance;
      const { facts } = await readState(manager.adminPort, isNow, `the dashboard shows ${instance}`);
      const shown = facts.settings.filter(({ variable }) => variable in places);
      assert.deepEqual(
        shown.map(({ variable, value, source }) => [variable, value, source]).toSorted(),
        Object.entries(places)
          .map(([name, place]) => [name, String(place), 'socket'])
          .toSorted(),
      );
    };
    await serves('before');
    name('after');
    gateway.signal('SIGHUP');
    await logged(gateway, /^reloaded/);
    await serves('after');
    const pids = childrenOf(gateway.process.pid) ?? [];
    assert.equal(pids.length, 2);
    for (const pid of pids) process.kill(pid, 'SIGKILL');
    // No process accepts connections now, but they are not refused: they wait.
    await serves('after');
    await poll(() => childrenOf(gateway.process.pid)?.length === 2, 'both workers have been replaced');
    gateway.signal('SIGTERM');
    assert.equal(await gateway.exitCode(), 0, gateway.output);
  });

  test('a passed descriptor without a socket is reported at the start', async () => {
    // Passes standard input, which is not a socket.
    const environment = { BACKEND_URL: backend.url, WORKERS: '2', ADMIN_PORT: '0' };
    await using command = new Command(['serve'], environment, { passed: [0] });
    assert.equal(await command.exitCode(), 1);
    assert.match(command.stderr, /error: descriptor \d, passed by another process, is not a listening TCP socket: /);
  });

  test('systemd starts the gateway at the first connection', { skip: skipActivate }, async () => {
    const [port, adminPort] = [await findFreePort(), await findFreePort()];
    const args = [
      ...['-l', `127.0.0.1:${port}`, '-l', `127.0.0.1:${adminPort}`, '--fdname=clients:admin'],
      ...['-E', `BACKEND_URL=${backend.url}`, '-E', 'WORKERS=2'],
      ...[process.execPath, join(root, 'dist/command/main.js'), 'serve'],
    ];
    const activator = spawn('systemd-socket-activate', args, { stdio: ['ignore', 'ignore', 'pipe'] });
    try {
      await once(activator.stderr, 'data');
      const { status, text } = await request(port, 'GET', list);
      assert.deepEqual({ status, text }, { status: 200, text: '[]' });
      assert.equal((await request(adminPort, 'GET', '/readyz')).status, 200);
    } finally {
      activator.kill('SIGTERM');
      await once(activator, 'exit');
    }
    assert.equal(activator.exitCode, 0);
  });
});

const skipNotify = skipWithout('systemd-notify') || skipActivate;

describe('notifications to systemd', { skip: skipNotify }, () => {
  // Writes the messages of a Unix datagram socket to a file. Uses a tool of systemd: Node.js has no such sockets.
  async function listenForNotes(name: string) {
    const [socket, file] = [join(folder, `${name}.socket`), join(folder, `${name}.notes`)];
    const args = ['--datagram', '--inetd', '-l', socket, 'sh', '-c', `exec cat > ${file}`];
    const reader = spawn('systemd-socket-activate', args, { stdio: ['ignore', 'ignore', 'pipe'] });
    await poll(() => existsSync(socket), 'the socket exists');
    return {
      socket,
      // Removes the barrier that systemd-notify adds.
      notes: () => (existsSync(file) ? readFileSync(file, 'utf8').replaceAll('BARRIER=1', '') : ''),
      [Symbol.dispose]: () => reader.kill('SIGKILL'),
    };
  }

  test('are sent in this order: ready, watchdog (but not while the process is frozen), reloading, ready again, stopping', async () => {
    using listener = await listenForNotes('life');
    using manager = new Manager();
    const watchdog = { NOTIFY_SOCKET: listener.socket, WATCHDOG_USEC: '400000' };
    await using gateway = await manager.start({ ...watchdog, LOG_LEVEL: 'info' });
    await poll(() => listener.notes().split('WATCHDOG=1').length > 3, 'watchdog messages');
    assert.match(
      listener.notes(),
      new RegExp(`^STATUS=serving at http://127\\.0\\.0\\.1:${manager.port}\\nREADY=1(?:WATCHDOG=1)+$`),
    );
    gateway.signal('SIGSTOP');
    // Messages sent before the signal still arrive.
    let [last, since] = ['', performance.now()];
    await poll(() => {
      if (listener.notes() !== last) [last, since] = [listener.notes(), performance.now()];
      return performance.now() - since > 1_000;
    }, 'no message arrives for 1 s');
    gateway.signal('SIGCONT');
    await poll(() => listener.notes() !== last, 'messages arrive again');
    // Type=notify-reload needs the time on the monotonic clock, in the message that has RELOADING=1.
    const before = process.hrtime.bigint() / 1_000n;
    gateway.signal('SIGHUP');
    await poll(() => /RELOADING=1[^]*STATUS=serving[^]*READY=1/.test(listener.notes()), 'ready again');
    const [, time = ''] = /STATUS=reloading\nRELOADING=1\nMONOTONIC_USEC=(\d+)/.exec(listener.notes()) ?? [];
    const after = process.hrtime.bigint() / 1_000n;
    assert.ok(before <= BigInt(time) && BigInt(time) <= after, listener.notes());
    gateway.signal('SIGTERM');
    await poll(() => /READY=1[^]*STATUS=draining[^]*STOPPING=1/.test(listener.notes()), 'it stops');
    assert.equal(await gateway.exitCode(), 0, gateway.output);
    assert.equal(gateway.stderr, '');
  });

  test('have no watchdog message when WATCHDOG_PID names another process', async () => {
    using listener = await listenForNotes('other');
    using manager = new Manager();
    const watchdog = { NOTIFY_SOCKET: listener.socket, WATCHDOG_USEC: '1000', WATCHDOG_PID: '1' };
    await using gateway = await manager.start(watchdog);
    await poll(() => listener.notes().includes('READY=1'), 'READY=1 arrives');
    gateway.signal('SIGTERM');
    await poll(() => listener.notes().includes('STOPPING=1'), 'it stops');
    assert.doesNotMatch(listener.notes(), /WATCHDOG/);
    assert.equal(await gateway.exitCode(), 0);
  });

  test('cannot be sent without systemd-notify: the gateway logs an error and serves', async () => {
    using manager = new Manager();
    await using gateway = await manager.start({ NOTIFY_SOCKET: '/nowhere', PATH: '/nowhere:/bin/none' });
    const { msg, code } = await gateway.log(({ level }) => level === 'error', 'the line with the error');
    assert.deepEqual([msg, code], ['cannot notify the service manager any more', 127]);
    assert.equal((await request(manager.port, 'GET', list)).status, 200);
  });
});
