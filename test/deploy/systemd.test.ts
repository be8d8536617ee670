// The units for systemd: its own tools take them, its sockets and its protocol work, and a restart loses no connection.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync, existsSync } from 'node:fs';
import { BoundSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';

import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { settingNames, variableOf } from '../../packages/command/settings/settings.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { anyCertificate } from '../helpers/http2-client.ts';
import { RawClient, request } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { neededWithConnections } from '../helpers/needed-memory.ts';
import { Command, runCommand } from '../helpers/targets.ts';
import { Viewer } from '../helpers/viewer.ts';

const root = resolve(import.meta.dirname, '../..');
const units = ['work-item-gateway.service', 'work-item-gateway.socket', 'work-item-gateway-admin.socket'];
const isInstalled = (program: string): boolean => spawnSync(program, ['--version']).error === undefined;
const skipWithout = (program: string): string | false =>
  !isInstalled(program) &&
  `${program} is not installed, so nothing was tested here; on Debian: apt-get install systemd`;

let folder = '';
let backend: ScriptedBackend;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-'));
  backend = await ScriptedBackend.start();
});
beforeEach(() => {
  backend.reset();
  backend.answers(answer('[]'));
});
after(async () => {
  rmSync(folder, { recursive: true });
  await backend.stop();
});

function readUnit(name: string): string {
  return readFileSync(join(root, 'deploy/systemd', name), 'utf8');
}

describe('the units', () => {
  test('systemd has nothing to say against them', { skip: skipWithout('systemd-analyze') }, () => {
    // Where it is installed on a machine, there is none here.
    const program = '/usr/local/bin/work-item-gateway ';
    const paths = units.map((name) => {
      const path = join(folder, name);
      const text = readUnit(name);
      assert.equal(text.includes(`ExecStart=${program}`), name.endsWith('.service'));
      writeFileSync(
        path,
        text.replace(`ExecStart=${program}`, `ExecStart=${process.execPath} dist/command/main.js `),
      );
      return path;
    });
    const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', ...paths], {
      encoding: 'utf8',
    });
    // Of units of the machine it has words too; those name other files.
    const ours = `${stdout}${stderr}`.split('\n').filter((line) => line.includes('work-item-gateway'));
    assert.deepEqual(ours, []);
    assert.equal(status, 0, stderr);
  });

  test('the service is exposed to at most 1.5 of 10', { skip: skipWithout('systemd-analyze') }, () => {
    const { status, stdout, stderr } = spawnSync(
      'systemd-analyze',
      [
        'security',
        '--offline=true',
        '--threshold=15',
        join(root, 'deploy/systemd/work-item-gateway.service'),
      ],
      { encoding: 'utf8' },
    );
    assert.match(stdout, /Overall exposure level for work-item-gateway\.service: \d/);
    assert.equal(status, 0, stdout + stderr);
  });

  test('the service may write machine code, which V8 cannot live without', () => {
    assert.doesNotMatch(readUnit('work-item-gateway.service'), /^MemoryDenyWriteExecute/m);
  });

  test('the sockets have the names that the gateway knows', () => {
    assert.match(readUnit('work-item-gateway.socket'), /^FileDescriptorName=clients$/m);
    assert.match(readUnit('work-item-gateway-admin.socket'), /^FileDescriptorName=admin$/m);
    assert.match(readUnit('work-item-gateway-admin.socket'), /^ListenStream=127\.0\.0\.1:9464$/m);
  });

  test('a stop may take longer than the gateway gives its calls', () => {
    const [, seconds] = /^TimeoutStopSec=(\d+)$/m.exec(readUnit('work-item-gateway.service')) ?? [];
    const shutdownTimeoutS = 10;
    const stopS = 4;
    assert.ok(Number(seconds) > shutdownTimeoutS + stopS);
  });

  test('it has as much memory as it can need by the default settings, HTTP/2 included, and no more', () => {
    const [, gibibytes] = /^MemoryMax=(\d+)G$/m.exec(readUnit('work-item-gateway.service')) ?? [];
    const { settings } = resolveSettings('serve', {}, {});
    const needed = neededWithConnections({ ...settings, http2: true });
    assert.equal(Number(gibibytes), Math.ceil(needed / 2 ** 30));
  });

  test('the settings file has settings in it, and `check` takes them', async () => {
    const file = join(root, 'deploy/systemd/settings.env');
    const variables = [...readFileSync(file, 'utf8').matchAll(/^([A-Z_]+)=/gm)].map(([, name]) => name);
    assert.deepEqual(variables, ['BACKEND_URL']);
    assert.ok(settingNames.map(variableOf).includes('BACKEND_URL'));
    // Flags go before the file: its backend is not here.
    await using check = runCommand(['check', '--settings-file', file, '--backend-url', backend.url]);
    assert.equal(await check.exitCode(), 0, check.output);
  });
});

describe('the secrets file', () => {
  test('the service reads it as root, and its examples are settings that the gateway takes', () => {
    assert.match(
      readUnit('work-item-gateway.service'),
      /^EnvironmentFile=-\/etc\/work-item-gateway\/secrets\.env$/m,
    );
    const text = readUnit('secrets.env');
    const examples = Object.fromEntries(
      [...text.matchAll(/^#([A-Z_]+)=(.*)$/gm)].map(([, name = '', value = '']) => [name, value]),
    );
    assert.ok(Object.keys(examples).length > 1);
    const names = settingNames.map(variableOf);
    for (const name of Object.keys(examples)) assert.ok(names.includes(name), `${name} is a setting`);
    // As it is, nothing is set; with the examples, the gateway takes it.
    assert.doesNotMatch(text, /^[^#\n]/m);
    const others = { RATE_LIMIT: '100/60s', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://localhost:4318' };
    const { sources } = resolveSettings('serve', {}, { ...others, ...examples });
    assert.equal(sources.rateLimitRedisUrl, 'environment');
  });
});

// What has the sockets, as systemd has them: it never takes a connection itself.
class Manager implements Disposable {
  readonly #clients = new BoundSocket({ host: '127.0.0.1', port: 0 });
  readonly #admin = new BoundSocket({ host: '127.0.0.1', port: 0 });
  readonly port = this.#clients.address().port;
  readonly adminPort = this.#admin.address().port;

  async start(environment: NodeJS.ProcessEnv, ...others: readonly BoundSocket[]): Promise<Command> {
    const command = new Command(
      ['serve'],
      {
        BACKEND_URL: backend.url,
        LOG_FORMAT: 'json',
        LOG_LEVEL: 'warn',
        LISTEN_FDNAMES: 'admin:clients',
        ...environment,
      },
      { passed: [this.#admin, this.#clients, ...others].map((socket) => socket.fd()) },
    );
    const ready = await command.log((line) => line['msg'] === 'ready', 'the line that says ready');
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

describe('sockets that are passed on', { skip: !isLinux && 'only Linux has systemd' }, () => {
  for (const workers of [1, 2]) {
    test(`restarts lose no connection: ${workers} worker${workers === 1 ? '' : 's'}`, async (t) => {
      using manager = new Manager();
      const environment = { WORKERS: String(workers) };
      await using stack = new AsyncDisposableStack();
      let gateway = stack.use(await manager.start(environment));
      const statuses: number[] = [];
      let isOver = false;
      // Each call on a connection of its own, so that there is one at every moment.
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
      // A connection that was lost is a failure here.
      await Promise.all(callers);
      t.diagnostic(`${statuses.length} calls, 3 restarts`);
      assert.deepEqual(
        statuses.filter((status) => status !== 200),
        [],
      );
    });
  }

  test(
    'TLS is served on them, and a restart loses no connection that waits',
    { skip: noOpenssl },
    async () => {
      using manager = new Manager();
      const { certFile, keyFile } = anyCertificate();
      for (const workers of ['1', '2']) {
        const environment = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, WORKERS: workers };
        await using gateway = await manager.start(environment);
        const call = async () => {
          await using client = await RawClient.openSecure(manager.port, { rejectUnauthorized: false });
          return (await client.call('GET', '/api/work-items')).status;
        };
        assert.equal(await call(), 200);
        gateway.signal('SIGTERM');
        assert.equal(await gateway.exitCode(), 0, gateway.output);
        // It waits in the socket, which nobody listens on meanwhile.
        const waiting = call();
        const next = await manager.start(environment);
        assert.equal(await waiting, 200);
        await next.stop();
      }
    },
  );

  test('a reload replaces every worker, and a worker that dies leaves the socket to the others', async () => {
    using manager = new Manager();
    await using gateway = await manager.start({ WORKERS: '2', LOG_LEVEL: 'info' });
    gateway.signal('SIGHUP');
    await gateway.log((line) => String(line['msg']).startsWith('reloaded'), 'the reload is done');
    const callers = Array.from({ length: 8 }, () => request(manager.port, 'GET', '/api/work-items'));
    assert.ok((await Promise.all(callers)).every(({ status }) => status === 200));
    const pids = workerPids(gateway);
    assert.equal(pids.length, 2);
    for (const pid of pids) process.kill(pid, 'SIGKILL');
    // Nobody takes it now, and nobody refuses it.
    assert.equal((await request(manager.port, 'GET', '/api/work-items')).status, 200);
    await poll(() => workerPids(gateway).length === 2, 'both have been replaced');
  });

  test('several sockets of one name are all served', async () => {
    using other = new BoundSocket({ host: '127.0.0.1', port: 0 });
    using manager = new Manager();
    for (const workers of ['1', '2']) {
      await using gateway = await manager.start(
        { WORKERS: workers, LISTEN_FDNAMES: 'admin:clients:clients' },
        other,
      );
      for (const port of [manager.port, other.address().port]) {
        assert.equal((await request(port, 'GET', '/api/work-items')).status, 200);
      }
      gateway.signal('SIGTERM');
      assert.equal(await gateway.exitCode(), 0, gateway.output);
    }
  });

  test('the log and the dashboard name them in place of settings that nobody looks at, after a reload too', async () => {
    using manager = new Manager();
    for (const workers of ['1', '2']) {
      const ignored = { HOST: '192.0.2.1', PORT: '1', ADMIN_PORT: '2' };
      await using gateway = await manager.start({ WORKERS: workers, LOG_LEVEL: 'info', ...ignored });
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
          await gateway.log((line) => String(line['msg']).startsWith('reloaded'), 'the reload is done');
        }
        await using viewer = await Viewer.open(manager.adminPort);
        const { facts } = await viewer.message((message) => message.facts !== undefined, 'the settings');
        const shown = facts?.settings.filter(({ variable }) => /^(?:ADMIN_)?(?:HOST|PORT)$/.test(variable));
        assert.deepEqual(
          shown?.map(({ variable, value, source }) => `${variable} ${value} ${source}`).toSorted(),
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
    }
  });

  test('what does not go together is said at the start', async () => {
    using manager = new Manager();
    await assert.rejects(
      manager.start({ WORKERS: '2', PORT_SHARING: 'reuse-port' }),
      /error: PORT_SHARING is reuse-port, but workers share the socket that LISTEN_FDS passes on: leave it out/,
    );
    await assert.rejects(
      manager.start({ LISTEN_FDNAMES: 'admin:client' }),
      /error: 2 sockets were passed on by LISTEN_FDS, and it is not clear which are for whom/,
    );
    for (const workers of ['1', '2']) {
      // Its standard input, and a file.
      await using command = new Command(
        ['serve'],
        { BACKEND_URL: backend.url, WORKERS: workers, ADMIN_PORT: '0' },
        { passed: [0] },
      );
      assert.equal(await command.exitCode(), 1);
      assert.match(
        command.stderr,
        /error: descriptor \d, which LISTEN_FDS passes on, is no listening TCP socket: /,
      );
    }
  });

  test(
    'systemd-socket-activate starts it at the first connection',
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

/** By what the process table of Linux says. */
function workerPids(gateway: Command): number[] {
  const { pid } = gateway.process;
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return children.split(' ').filter(Boolean).map(Number);
}

const skipNotify = skipWithout('systemd-notify') || skipWithout('systemd-socket-activate');

describe('what systemd is told', { skip: skipNotify }, () => {
  // A datagram socket of Unix, which Node.js has none of; what comes is written to a file, as it comes.
  async function listenForNotes(
    name: string,
  ): Promise<{ socket: string; notes: () => string; [Symbol.dispose]: () => void }> {
    const socket = join(folder, `${name}.socket`);
    const file = join(folder, `${name}.notes`);
    const reader = spawn(
      'systemd-socket-activate',
      ['--datagram', '--inetd', '-l', socket, 'sh', '-c', `exec cat > ${file}`],
      { stdio: ['ignore', 'ignore', 'pipe'] },
    );
    await poll(() => existsSync(socket), 'the socket is there');
    return {
      socket,
      // Without what systemd-notify adds, to hear that it was heard.
      notes: () => (existsSync(file) ? readFileSync(file, 'utf8').replaceAll('BARRIER=1', '') : ''),
      [Symbol.dispose]: () => {
        reader.kill('SIGKILL');
      },
    };
  }

  test('that it is ready, lives, reloads, is ready again, and stops', async () => {
    using listener = await listenForNotes('life');
    using manager = new Manager();
    await using gateway = await manager.start({
      NOTIFY_SOCKET: listener.socket,
      WATCHDOG_USEC: '400000',
      LOG_LEVEL: 'info',
    });
    await poll(() => listener.notes().split('WATCHDOG=1').length > 3, 'signs of life');
    assert.match(
      listener.notes(),
      new RegExp(`^STATUS=serving at http://127\\.0\\.0\\.1:${manager.port}READY=1(?:WATCHDOG=1)+$`),
    );
    gateway.signal('SIGHUP');
    await poll(() => /RELOADING=1[^]*STATUS=serving[^]*READY=1/.test(listener.notes()), 'it was ready again');
    gateway.signal('SIGTERM');
    await poll(() => /READY=1[^]*STATUS=draining[^]*STOPPING=1/.test(listener.notes()), 'it stops');
    assert.equal(await gateway.exitCode(), 0, gateway.output);
    assert.equal(gateway.stderr, '');
  });

  test('nothing is said for a process that the watchdog does not mean', async () => {
    using listener = await listenForNotes('other');
    using manager = new Manager();
    await using gateway = await manager.start({
      NOTIFY_SOCKET: listener.socket,
      WATCHDOG_USEC: '1000',
      WATCHDOG_PID: '1',
    });
    await poll(() => listener.notes().includes('READY=1'), 'it says that it is ready');
    gateway.signal('SIGTERM');
    await poll(() => listener.notes().includes('STOPPING=1'), 'it stops');
    assert.doesNotMatch(listener.notes(), /WATCHDOG/);
    assert.equal(await gateway.exitCode(), 0);
  });

  test('an event loop that does not turn any more gives no sign of life', async () => {
    using listener = await listenForNotes('hung');
    using manager = new Manager();
    await using gateway = await manager.start({ NOTIFY_SOCKET: listener.socket, WATCHDOG_USEC: '200000' });
    await poll(() => listener.notes().includes('WATCHDOG=1'), 'a sign of life');
    gateway.signal('SIGSTOP');
    // What had been said before is told to its end.
    let last = '';
    let since = performance.now();
    await poll(() => {
      if (listener.notes() !== last) {
        last = listener.notes();
        since = performance.now();
      }
      return performance.now() - since > 1_000;
    }, 'it falls silent');
    gateway.signal('SIGCONT');
    await poll(() => listener.notes() !== last, 'it lives again');
  });

  test('where systemd-notify is missing, it says so and serves', async () => {
    using manager = new Manager();
    await using gateway = await manager.start({ NOTIFY_SOCKET: '/nowhere', PATH: '/nowhere:/bin/none' });
    const line = await gateway.log((each) => each['level'] === 'error', 'the line that says it');
    assert.equal(line['msg'], 'the service manager can be told nothing more');
    assert.equal(line['code'], 127);
    assert.equal((await request(manager.port, 'GET', '/api/work-items')).status, 200);
  });
});
