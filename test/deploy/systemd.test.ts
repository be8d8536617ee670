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
const units = ['work-item-gateway.service', 'work-item-gateway.socket', 'work-item-gateway-admin.socket'];
const isInstalled = (program: string): boolean => spawnSync(program, ['--version']).error === undefined;
const skipWithout = (program: string): string | false =>
  !isInstalled(program) &&
  `${program} is not installed, so nothing was tested here; on Debian: apt-get install systemd`;

const folder = useFolder();
const backend = await useBackend();

function readUnit(name: string): string {
  return readFileSync(join(root, 'deploy/systemd', name), 'utf8');
}

describe('the systemd units', () => {
  test('systemd-analyze accepts them', { skip: skipWithout('systemd-analyze') }, () => {
    // The installed program does not exist here, so the built program replaces it.
    const program = '/usr/local/bin/work-item-gateway ';
    const paths = units.map((name) => {
      const path = join(folder, name);
      const text = readUnit(name);
      assert.equal(text.includes(`ExecStart=${program}`), name.endsWith('.service'));
      writeFileSync(path, text.replace(`ExecStart=${program}`, `ExecStart=${process.execPath} dist/command/main.js `));
      return path;
    });
    const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', ...paths], {
      encoding: 'utf8',
    });
    // systemd-analyze also reports other units of this machine.
    const ours = `${stdout}${stderr}`.split('\n').filter((line) => line.includes('work-item-gateway'));
    assert.deepEqual(ours, []);
    assert.equal(status, 0, stderr);
  });

  test('the exposure of the service is at most 1.5 of 10', { skip: skipWithout('systemd-analyze') }, () => {
    const { status, stdout, stderr } = spawnSync(
      'systemd-analyze',
      ['security', '--offline=true', '--threshold=15', join(root, 'deploy/systemd/work-item-gateway.service')],
      { encoding: 'utf8' },
    );
    assert.match(stdout, /Overall exposure level for work-item-gateway\.service: \d/);
    assert.equal(status, 0, stdout + stderr);
  });

  test('the service may write machine code, which V8 requires', () =>
    assert.doesNotMatch(readUnit('work-item-gateway.service'), /^MemoryDenyWriteExecute/m));

  test('the sockets have the names that the gateway requires', () => {
    assert.match(readUnit('work-item-gateway.socket'), /^FileDescriptorName=clients$/m);
    assert.match(readUnit('work-item-gateway-admin.socket'), /^FileDescriptorName=admin$/m);
    assert.match(readUnit('work-item-gateway-admin.socket'), /^ListenStream=127\.0\.0\.1:9464$/m);
  });

  test('SIGUSR1 cannot open the debugger of Node', () =>
    assert.match(readUnit('work-item-gateway.service'), /^Environment=.* NODE_OPTIONS=--disable-sigusr1$/m));

  test('the stop timeout is longer than the shutdown timeout of the gateway', () => {
    const [, seconds] = /^TimeoutStopSec=(\d+)$/m.exec(readUnit('work-item-gateway.service')) ?? [];
    const shutdownTimeoutS = 10;
    const stopS = 4;
    assert.ok(Number(seconds) > shutdownTimeoutS + stopS);
  });

  test('the memory limit is what the default settings with HTTP/2 need, rounded up to GiB', () => {
    const [, gibibytes] = /^MemoryMax=(\d+)G$/m.exec(readUnit('work-item-gateway.service')) ?? [];
    const { settings } = resolveSettings('serve', {}, {});
    const needed = neededWithConnections({ ...settings, http2: true });
    assert.equal(Number(gibibytes), Math.ceil(needed / 2 ** 30));
  });

  test('`check` accepts the settings file', async () => {
    const file = join(root, 'deploy/systemd/settings.env');
    const variables = [...readFileSync(file, 'utf8').matchAll(/^([A-Z_]+)=/gm)].map(([, name]) => name);
    assert.deepEqual(variables, ['BACKEND_URL']);
    assert.ok(settingNames.map(variableOf).includes('BACKEND_URL'));
    // The file's backend does not exist here, so a flag, which takes precedence, names another.
    const { code, output } = await runHere(['check', '--settings-file', file, '--backend-url', backend.url]);
    assert.equal(code, 0, output);
  });
});

describe('the secrets file', () => {
  test('is read by systemd as root, and its examples are valid settings', () => {
    assert.match(readUnit('work-item-gateway.service'), /^EnvironmentFile=-\/etc\/work-item-gateway\/secrets\.env$/m);
    const text = readUnit('secrets.env');
    const examples = Object.fromEntries(
      [...text.matchAll(/^#([A-Z_]+)=(.*)$/gm)].map(([, name = '', value = '']) => [name, value]),
    );
    assert.ok(Object.keys(examples).length > 1);
    const names = settingNames.map(variableOf);
    for (const name of Object.keys(examples)) assert.ok(names.includes(name), `${name} is a setting`);
    // Every line is a comment; the examples in comments are valid.
    assert.doesNotMatch(text, /^[^#\n]/m);
    const others = { RATE_LIMIT: '100/60s', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://localhost:4318' };
    const { sources } = resolveSettings('serve', {}, { ...others, ...examples });
    assert.equal(sources.rateLimitRedisUrl, 'environment');
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
    const scheme = environment['TLS_CERT_FILE'] === undefined ? 'http' : 'https';
    assert.equal(ready['url'], `${scheme}://127.0.0.1:${this.port}`);
    assert.equal(ready['adminUrl'], `http://127.0.0.1:${this.adminPort}`);
    command.port = this.port;
    command.adminPort = this.adminPort;
    return command;
  }

  [Symbol.dispose](): void {
    this.#clients.close();
    this.#admin.close();
  }
}

const isLinux = process.platform === 'linux';

describe('inherited sockets', { skip: !isLinux && 'only Linux has systemd' }, () => {
  test('restarts lose no connection', async (t) => {
    using manager = new Manager();
    const environment = { WORKERS: '2' };
    await using stack = new AsyncDisposableStack();
    let gateway = stack.use(await manager.start(environment));
    const statuses: number[] = [];
    let isOver = false;
    // Each call opens a connection, so that connections arrive during each restart.
    const callers = Array.from({ length: 8 }, async () => {
      while (!isOver) {
        const { status } = await request(manager.port, 'GET', '/api/work-items');
        statuses.push(status);
      }
    });
    for (let restarts = 0; restarts < 3; restarts += 1) {
      const served = statuses.length;
      await poll(() => statuses.length > served + 100, 'calls are served');
      gateway.signal('SIGTERM');
      assert.equal(await gateway.exitCode(), 0, gateway.output);
      gateway = stack.use(await manager.start(environment));
    }
    isOver = true;
    // Rejects if a connection was lost.
    await Promise.all(callers);
    t.diagnostic(`${statuses.length} calls, 3 restarts`);
    const failed = statuses.filter((status) => status !== 200);
    assert.deepEqual(failed, []);
  });

  test('a reload replaces every worker; if all workers are killed, new workers serve waiting connections', async () => {
    using manager = new Manager();
    await using gateway = await manager.start({ WORKERS: '2', LOG_LEVEL: 'info' });
    gateway.signal('SIGHUP');
    await logged(gateway, /^reloaded/);
    const callers = Array.from({ length: 8 }, () => request(manager.port, 'GET', '/api/work-items'));
    assert.ok((await Promise.all(callers)).every(({ status }) => status === 200));
    const pids = childrenOf(gateway.process.pid) ?? [];
    assert.equal(pids.length, 2);
    for (const pid of pids) process.kill(pid, 'SIGKILL');
    // No process accepts connections now, but they are not refused: they wait.
    assert.equal((await request(manager.port, 'GET', '/api/work-items')).status, 200);
    await poll(() => childrenOf(gateway.process.pid)?.length === 2, 'both workers have been replaced');
  });

  test('several sockets with the same name are served', async () => {
    using other = new BoundSocket({ host: '127.0.0.1', port: 0 });
    using manager = new Manager();
    await using gateway = await manager.start({ WORKERS: '2', LISTEN_FDNAMES: 'admin:clients:clients' }, other);
    for (const port of [manager.port, other.address().port]) {
      assert.equal((await request(port, 'GET', '/api/work-items')).status, 200);
    }
    gateway.signal('SIGTERM');
    assert.equal(await gateway.exitCode(), 0, gateway.output);
  });

  test("log and dashboard show the sockets' addresses instead of the unused settings, even after a reload", async () => {
    using manager = new Manager();
    const ignored = { HOST: '192.0.2.1', PORT: '1', ADMIN_PORT: '2' };
    await using gateway = await manager.start({ WORKERS: '2', LOG_LEVEL: 'info', ...ignored });
    const ready = gateway.logs.find(({ msg }) => msg === 'ready');
    const places = { host: '127.0.0.1 (socket)', port: `${manager.port} (socket)` };
    assert.partialDeepStrictEqual(ready?.['settings'], {
      ...places,
      adminHost: '127.0.0.1 (socket)',
      adminPort: `${manager.adminPort} (socket)`,
    });
    for (const when of ['at the start', 'after a reload']) {
      if (when === 'after a reload') {
        gateway.signal('SIGHUP');
        await logged(gateway, /^reloaded/);
      }
      const { facts } = await readState(manager.adminPort);
      const shown = facts.settings.filter(({ variable }) => /^(?:ADMIN_)?(?:HOST|PORT)$/.test(variable));
      assert.deepEqual(
        shown.map(({ variable, value, source }) => `${variable} ${value} ${source}`).toSorted(),
        [
          'ADMIN_HOST 127.0.0.1 socket',
          `ADMIN_PORT ${manager.adminPort} socket`,
          'HOST 127.0.0.1 socket',
          `PORT ${manager.port} socket`,
        ],
        when,
      );
    }
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

  test(
    'systemd-socket-activate starts the gateway at the first connection',
    { skip: skipWithout('systemd-socket-activate') },
    async () => {
      const port = await findFreePort();
      const adminPort = await findFreePort();
      const activator = spawn(
        'systemd-socket-activate',
        [
          ...['-l', `127.0.0.1:${port}`, '-l', `127.0.0.1:${adminPort}`, '--fdname=clients:admin'],
          ...['-E', `BACKEND_URL=${backend.url}`, '-E', 'WORKERS=2'],
          ...[process.execPath, join(root, 'dist/command/main.js'), 'serve'],
        ],
        { stdio: ['ignore', 'ignore', 'pipe'] },
      );
      try {
        await once(activator.stderr, 'data');
        const { status, text } = await request(port, 'GET', '/api/work-items');
        assert.deepEqual({ status, text }, { status: 200, text: '[]' });
        assert.equal((await request(adminPort, 'GET', '/readyz')).status, 200);
      } finally {
        activator.kill('SIGTERM');
        await once(activator, 'exit');
      }
      assert.equal(activator.exitCode, 0);
    },
  );
});

const skipNotify = skipWithout('systemd-notify') || skipWithout('systemd-socket-activate');

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

  test('are sent in this order: ready, watchdog, reloading, ready again, stopping', async () => {
    using listener = await listenForNotes('life');
    using manager = new Manager();
    const watchdog = { NOTIFY_SOCKET: listener.socket, WATCHDOG_USEC: '400000' };
    await using gateway = await manager.start({ ...watchdog, LOG_LEVEL: 'info' });
    await poll(() => listener.notes().split('WATCHDOG=1').length > 3, 'watchdog messages');
    assert.match(
      listener.notes(),
      new RegExp(`^STATUS=serving at http://127\\.0\\.0\\.1:${manager.port}\\nREADY=1(?:WATCHDOG=1)+$`),
    );
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
    const watchdog = { NOTIFY_SOCKET: listener.socket, WATCHDOG_USEC: '1000' };
    await using gateway = await manager.start({ ...watchdog, WATCHDOG_PID: '1' });
    await poll(() => listener.notes().includes('READY=1'), 'READY=1 arrives');
    gateway.signal('SIGTERM');
    await poll(() => listener.notes().includes('STOPPING=1'), 'it stops');
    assert.doesNotMatch(listener.notes(), /WATCHDOG/);
    assert.equal(await gateway.exitCode(), 0);
  });

  test('have no watchdog message while the process is stopped by SIGSTOP', async () => {
    using listener = await listenForNotes('hung');
    using manager = new Manager();
    await using gateway = await manager.start({ NOTIFY_SOCKET: listener.socket, WATCHDOG_USEC: '200000' });
    await poll(() => listener.notes().includes('WATCHDOG=1'), 'a watchdog message');
    gateway.signal('SIGSTOP');
    // Messages sent before the signal still arrive.
    let last = '';
    let since = performance.now();
    await poll(() => {
      if (listener.notes() !== last) {
        last = listener.notes();
        since = performance.now();
      }
      return performance.now() - since > 1_000;
    }, 'no message arrives for 1 s');
    gateway.signal('SIGCONT');
    await poll(() => listener.notes() !== last, 'messages arrive again');
  });

  test('cannot be sent without systemd-notify: the gateway logs an error and serves', async () => {
    using manager = new Manager();
    await using gateway = await manager.start({ NOTIFY_SOCKET: '/nowhere', PATH: '/nowhere:/bin/none' });
    const line = await gateway.log((each) => each['level'] === 'error', 'the line with the error');
    assert.equal(line['msg'], 'cannot notify the service manager any more');
    assert.equal(line['code'], 127);
    assert.equal((await request(manager.port, 'GET', '/api/work-items')).status, 200);
  });
});
