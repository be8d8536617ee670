// Starting, and refusing to start: D29 to D32.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { assertReply, operations } from '../helpers/expected.ts';
import { RawClient, request } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { runCommand, startCommand, type Command } from '../helpers/targets.ts';

/** Runs the command until it ends by itself. */
async function runToEnd(args: readonly string[], environment: NodeJS.ProcessEnv = {}) {
  await using command = runCommand(args, environment);
  const code = await command.exitCode();
  return { code, stdout: command.stdout, stderr: command.stderr, output: command.stdout + command.stderr };
}

/** Free ports for what listens, so that a command that wrongly starts collides with nothing. */
const freePorts = { PORT: '0', ADMIN_PORT: '0', LOG_FORMAT: 'json' };

describe('settings', () => {
  const defaults: [variable: string, fallback: string][] = [
    ['BACKEND_URL', 'http://localhost:5104'],
    ['HOST', 'localhost'],
    ['PORT', '3000'],
    ['ADMIN_HOST', 'localhost'],
    ['ADMIN_PORT', '9464'],
    ['REQUEST_BYTES_MAX', '10485760'],
    ['RESPONSE_BYTES_MAX', '67108864'],
    ['BACKEND_TIMEOUT_MS', '30000'],
    ['BACKEND_CONNECT_TIMEOUT_MS', '5000'],
    ['IN_FLIGHT_MAX', '1024'],
    ['ITEM_ID_PARSING', 'leading'],
    ['REQUEST_HEADERS_TIMEOUT_MS', '10000'],
    ['REQUEST_TIMEOUT_MS', '30000'],
    ['REPLY_STALL_TIMEOUT_MS', '30000'],
    ['IDLE_TIMEOUT_MS', '72000'],
    ['SHUTDOWN_DELAY_MS', '0'],
    ['SHUTDOWN_TIMEOUT_MS', '10000'],
  ];

  test('--help lists every setting as a flag and as a variable, with its default [D32]', async () => {
    const { code, stdout, stderr } = await runToEnd(['serve', '--help']);
    assert.equal(code, 0);
    assert.equal(stderr, '');
    const text = stdout.replace(/\s+/g, ' ');
    for (const [variable, fallback] of [
      ...defaults,
      ['LOG_LEVEL', 'info'],
      ['LOG_FORMAT', 'auto'],
    ] as const) {
      const flag = `--${variable.toLowerCase().replaceAll('_', '-')}`;
      assert.ok(text.includes(`${flag} `), flag);
      assert.ok(text.includes(`default ${fallback}; ${variable})`), `${variable}, default ${fallback}`);
    }
  });

  for (const args of [
    ['--help'],
    ['-h'],
    ['serve', '-h'],
    ['dev', '--help'],
    ['backend', '--help'],
    ['check', '--help'],
  ]) {
    test(`${args.join(' ')} explains and exits 0 [D32]`, async () => {
      const { code, stdout, stderr } = await runToEnd(args);
      assert.equal(code, 0);
      assert.match(stdout, /Usage: work-item-gateway/);
      assert.equal(stderr, '');
      assert.doesNotMatch(stdout, /\u001b\[/, 'no colours where there is no terminal'); // eslint-disable-line no-control-regex
    });
  }

  test('--version prints the version of the package and exits 0 [D32]', async () => {
    const file = readFileSync(resolve(import.meta.dirname, '../../package.json'), 'utf8');
    const { version } = JSON.parse(file) as { version: string };
    const { code, stdout } = await runToEnd(['--version']);
    assert.deepEqual({ code, stdout }, { code: 0, stdout: `${version}\n` });
  });

  // A bad value of each setting; each run has one of every setting that has any left.
  const badValues: Record<string, string[]> = {
    PORT: ['abc', '-1', '65536', '80.5', '1e3', '0x50', ' '],
    ADMIN_PORT: ['99999'],
    REQUEST_BYTES_MAX: ['-1', '10MB'],
    RESPONSE_BYTES_MAX: ['none'],
    BACKEND_TIMEOUT_MS: ['0', '30s'],
    BACKEND_CONNECT_TIMEOUT_MS: ['-5'],
    IN_FLIGHT_MAX: ['many', '0.5'],
    ITEM_ID_PARSING: ['strict', 'LEADING'],
    REQUEST_HEADERS_TIMEOUT_MS: ['x'],
    REQUEST_TIMEOUT_MS: ['x'],
    REPLY_STALL_TIMEOUT_MS: ['x'],
    IDLE_TIMEOUT_MS: ['x', 'Infinity'],
    SHUTDOWN_DELAY_MS: ['-1'],
    SHUTDOWN_TIMEOUT_MS: ['x'],
    LOG_LEVEL: ['loud'],
    LOG_FORMAT: ['xml'],
    BACKEND_URL: ['localhost:5104', 'ftp://localhost', 'http://', 'not a url', 'http://localhost:99999'],
    HOST: ['a b'],
  };
  for (let round = 0; round < 7; round += 1) {
    const environment = Object.fromEntries(
      Object.entries(badValues).flatMap(([variable, values]) => {
        const value = values[round];
        return value === undefined ? [] : [[variable, value]];
      }),
    );
    test(`bad values are all named, exit code 1, nothing started: ${JSON.stringify(environment)} [D32]`, async () => {
      const { code, output, stderr } = await runToEnd(['serve'], { ...freePorts, ...environment });
      assert.equal(code, 1);
      for (const variable of Object.keys(environment))
        assert.ok(stderr.includes(variable), `${variable} in\n${stderr}`);
      assert.equal(stderr.match(/^error: /gm)?.length, Object.keys(environment).length, stderr);
      assert.doesNotMatch(output, /"ready"|^ +at /m, 'not started, and no stack');
    });
  }

  test('every problem is listed at once, of flags and of variables [D32]', async () => {
    const { code, stderr } = await runToEnd(
      ['serve', '--request-bytes-max', 'x', '--nope', '--backend-timeout-ms=-1'],
      {
        PORT: 'abc',
        ADMIN_PORT: '-1',
        LOG_LEVEL: 'loud',
        BACKEND_URL: 'nowhere',
        ITEM_ID_PARSING: 'sometimes',
      },
    );
    assert.equal(code, 1);
    for (const name of [
      'PORT',
      'ADMIN_PORT',
      'LOG_LEVEL',
      'BACKEND_URL',
      'ITEM_ID_PARSING',
      '--request-bytes-max',
      '--backend-timeout-ms',
      '--nope',
    ]) {
      // prettier-ignore
      assert.ok(stderr.includes(name), `${name} in\n${stderr}`);
    }
  });

  for (const args of [
    ['--nope'],
    ['serve', '--nope'],
    ['serve', '-x'],
    ['nope'],
    ['serve', 'nope'],
    ['serve', '--port'],
  ]) {
    test(`${args.join(' ')} is refused: exit code 1, nothing started [D32]`, async () => {
      const { code, stdout, stderr } = await runToEnd(args, freePorts);
      assert.equal(code, 1);
      assert.notEqual(stderr, '');
      assert.doesNotMatch(stdout, /"ready"/);
    });
  }

  test('a flag goes before a variable, and serve is what runs when no command is named [D32]', async () => {
    await using backend = disposable(await ScriptedBackend.start());
    backend.value.answers(answer('[]'));
    await using command = runCommand(['--backend-url', backend.value.url, '--item-id-parsing=whole'], {
      ...freePorts,
      BACKEND_URL: 'http://127.0.0.1:1',
      ITEM_ID_PARSING: 'leading',
    });
    const ready = await command.log((line) => line['msg'] === 'ready', 'ready');
    const port = Number(new URL(String(ready['url'])).port);
    assert.equal((await request(port, 'GET', '/api/work-items')).status, 200);
    assert.equal((await request(port, 'GET', '/api/work-items/5x')).status, 400);
  });

  test('an empty variable is as one that is not set [D32]', async () => {
    await using command = await startCommand({ REQUEST_BYTES_MAX: '', ITEM_ID_PARSING: '', LOG_LEVEL: '' });
    assert.ok(command.port > 0);
  });
});

describe('listening', () => {
  test('a port in use: a clear message and exit code 1, never another port [D31]', async () => {
    const holder = createServer();
    await new Promise<void>((resolve_) => holder.listen(0, '127.0.0.1', resolve_));
    const taken = String((holder.address() as AddressInfo).port);
    try {
      for (const variable of ['PORT', 'ADMIN_PORT']) {
        const { code, output } = await runToEnd(['serve'], {
          ...freePorts,
          HOST: '127.0.0.1',
          ADMIN_HOST: '127.0.0.1',
          [variable]: taken,
        });
        assert.equal(code, 1);
        assert.ok(output.includes(taken) && /in use/i.test(output), output);
        assert.doesNotMatch(output, /"ready"|^ +at /m);
      }
    } finally {
      await new Promise((resolve_) => holder.close(resolve_));
    }
  });

  test('the port of a gateway that runs is in use for a second one, which leaves the first alone [D31]', async () => {
    await using first = await startCommand({});
    const { code, output } = await runToEnd(['serve'], {
      ...freePorts,
      HOST: '127.0.0.1',
      PORT: String(first.port),
    });
    assert.equal(code, 1);
    assert.match(output, /in use/i);
    assert.equal((await first.call('GET', '/api/work-items/x')).status, 400);
  });

  for (const [command, variable, environment] of [
    ['serve', 'HOST', {}],
    ['serve', 'HOST', { WORKERS: '2' }],
    ['serve', 'ADMIN_HOST', {}],
    ['dev', 'HOST', {}],
    ['backend', 'EMBEDDED_BACKEND_HOST', {}],
  ] as const) {
    for (const host of ['203.0.113.1', 'no-such-name.invalid', 'fe80::1', '999.1.1.1']) {
      test(`an address that is not of this machine: ${command} ${JSON.stringify(environment)} names ${variable}=${host} and exits 1 [D31]`, async () => {
        const { code, output, stderr } = await runToEnd([command], {
          ...freePorts,
          EMBEDDED_BACKEND_PORT: '0',
          // Node 22 warns of its SQLite.
          NODE_NO_WARNINGS: '1',
          ...environment,
          [variable]: host,
        });
        assert.equal(code, 1);
        const flag = `--${variable.toLowerCase().replaceAll('_', '-')}`;
        assert.match(stderr, /^error: this machine has no address .*\n$/);
        assert.ok(stderr.includes(host) && stderr.includes(`with ${flag} (${variable})\n`), stderr);
        assert.doesNotMatch(output, /^ +at /m);
      });
    }
  }

  test('port 0 picks a free one and the start-up line says which, at every log level [D31]', async () => {
    for (const level of ['warn', 'fatal']) {
      await using command = await startCommand({ LOG_LEVEL: level });
      assert.ok(command.port > 0 && command.adminPort > 0 && command.port !== command.adminPort);
      assert.equal((await command.call('GET', '/api/work-items/x')).status, 400);
      assert.equal((await command.admin('/livez')).status, 200);
    }
  });

  test('localhost, the default, is this machine alone and served on every loopback address [D31]', async () => {
    await using command = await startCommand({ HOST: 'localhost', ADMIN_HOST: 'localhost' });
    for (const host of ['127.0.0.1', 'localhost', ...((await hasIpv6()) ? ['::1'] : [])]) {
      for (const [port, path, status] of [[command.port, '/api/work-items/x', 400], [command.adminPort, '/livez', 200]] as const) {
        await using client = await RawClient.open(port, host);
        assert.equal((await client.call('GET', path)).status, status, `${host} ${path}`);
      }
    }
  }); // prettier-ignore

  test('the admin listener serves no work items, and the client listener no admin pages [D31]', async () => {
    await using command = await startCommand({});
    assert.equal((await command.admin('/api/work-items')).status, 404);
    for (const path of ['/livez', '/readyz', '/metrics']) {
      assert.equal((await command.admin(path)).status, 200);
      assert.equal((await command.call('GET', path)).status, 404);
    }
  });
});

describe('the backend address', () => {
  test('it may carry a base path, with and without a slash at its end [D30]', async () => {
    await using backend = disposable(await ScriptedBackend.start());
    for (const base of ['/base/path', '/base/path/', '/a%20b', '/']) {
      await using command = await startCommand({ BACKEND_URL: `${backend.value.url}${base}` });
      const prefix = base.replace(/\/$/, '');
      for (const { method, path, options, backendTarget } of operations) {
        await command.call(method, path, options);
        assert.equal((await backend.value.nextRequest()).target, `${prefix}${backendTarget}`);
      }
    }
  });

  for (const [name, hosts] of [
    ['IPv4 only', ['127.0.0.1']],
    ['IPv6 only', ['::1']],
    ['both', ['127.0.0.1', '::1']],
  ] as const) {
    test(`localhost is tried on IPv4 and IPv6: a backend on ${name} is found [D30]`, async (context) => {
      if (hosts.some((host) => host === '::1') && !(await hasIpv6())) {
        context.skip('this machine has no IPv6');
        return;
      }
      const backends: ScriptedBackend[] = [];
      for (const host of hosts)
        backends.push(await ScriptedBackend.start({ host, port: backends[0]?.port ?? 0 }));
      try {
        await using command = await startCommand({
          BACKEND_URL: `http://localhost:${backends[0]?.port ?? 0}`,
        });
        for (const { method, path, options, status } of operations) {
          assert.equal((await command.call(method, path, options)).status, status);
        }
        const calls = backends.flatMap((backend) => backend.requests);
        assert.equal(calls.length, operations.length, 'one call each');
        assert.ok(calls.every((call) => call.header('host') === `localhost:${backends[0]?.port ?? 0}`));
      } finally {
        for (const backend of backends) await backend.stop();
      }
    });
  }
});

describe('the embedded backend', () => {
  let command: Command | undefined;
  let port = 0;
  before(async () => {
    command = runCommand(['dev'], { ...freePorts, EMBEDDED_BACKEND_PORT: '0' });
    const started = command;
    const deadline = AbortSignal.timeout(10_000);
    while (port === 0) {
      deadline.throwIfAborted();
      port = Number(/http:\/\/localhost:([0-9]+)\/api\/work-items/.exec(started.stdout)?.[1] ?? 0);
      await new Promise((resolve_) => setImmediate(resolve_));
    }
  });
  after(() => command?.stop());

  test('npm start is the gateway and the embedded backend together [D29]', () => {
    const file = readFileSync(resolve(import.meta.dirname, '../../package.json'), 'utf8');
    const { scripts } = JSON.parse(file) as { scripts: Record<string, string> };
    assert.match(scripts['start'] ?? '', /start\.cjs dev$/);
    assert.match(scripts['serve'] ?? '', /start\.cjs serve$/);
  });

  test('a newcomer has the main job running: samples, create, read, update, delete [D29]', async () => {
    const samples = await request(port, 'GET', '/api/work-items');
    assert.equal(samples.status, 200);
    assert.ok((JSON.parse(samples.text) as unknown[]).length > 0, 'a few sample work items');

    const created = await request(port, 'POST', '/api/work-items', { body: '{"title":"Paint the fence"}' });
    assert.equal(created.status, 201);
    const { id, title } = JSON.parse(created.text) as { id: number; title: string };
    assert.equal(title, 'Paint the fence');

    const path = `/api/work-items/${id}`;
    assert.equal((JSON.parse((await request(port, 'GET', path)).text) as { id: number }).id, id);
    const update = await request(port, 'PUT', path, { body: `{"id":${id},"title":"Painted"}` });
    assertReply(update, 200, '{"success":true}');
    assert.match((await request(port, 'GET', path)).text, /Painted/);
    assertReply(await request(port, 'DELETE', path), 200, '{"success":true}');
    assertReply(await request(port, 'GET', path), 404, '{"error":"Work item not found"}');
  });

  test('the terminal says what to try next [D29]', () => {
    assert.match(command?.stdout ?? '', new RegExp(`curl http://localhost:${port}/api/work-items`));
  });
});

describe('check', () => {
  test('it tries the backend once and exits 0 when it answers', async () => {
    await using backend = disposable(await ScriptedBackend.start());
    backend.value.answers(answer('[]'));
    const { code, output } = await runToEnd(['check'], { BACKEND_URL: backend.value.url });
    assert.equal(code, 0, output);
  });

  test('it says what it found and exits 1 when the backend is away or speaks something else', async () => {
    await using backend = disposable(await ScriptedBackend.start());
    backend.value.answers(answer('<p>'));
    const html = await runToEnd(['check'], { BACKEND_URL: backend.value.url });
    assert.equal(html.code, 1, html.output);
    await backend.value.stop();
    const away = await runToEnd(['check'], { BACKEND_URL: backend.value.url });
    assert.equal(away.code, 1, away.output);
    assert.ok(away.output.includes(String(backend.value.port)), away.output);
  });

  test('it says which pages may call, and what is unwise about that [D45]', async () => {
    await using backend = disposable(await ScriptedBackend.start());
    backend.value.answers(answer('[]'));
    const environment = { BACKEND_URL: backend.value.url };
    const none = await runToEnd(['check'], environment);
    assert.doesNotMatch(none.output, /cors/i);
    const origins = 'https://app.example.com,http://app.example.com';
    const some = await runToEnd(['check', '--cors-origins', origins], environment);
    assert.equal(some.code, 0, some.output);
    assert.match(
      some.output,
      /^cors: pages of https:\/\/app\.example\.com, http:\/\/app\.example\.com may call/m,
    );
    assert.match(some.output, /^ {2}http:\/\/app\.example\.com is not https/m);
  });

  test('it reports every problem of the settings and exits 1', async () => {
    const { code, output } = await runToEnd(['check'], { PORT: 'x', BACKEND_URL: 'y' });
    assert.equal(code, 1);
    assert.ok(output.includes('PORT') && output.includes('BACKEND_URL'));
  });
});

function disposable(backend: ScriptedBackend): AsyncDisposable & { value: ScriptedBackend } {
  return { value: backend, [Symbol.asyncDispose]: () => backend.stop() };
}

async function hasIpv6(): Promise<boolean> {
  const server = createServer();
  return await new Promise((resolve_) => {
    server.once('error', () => {
      resolve_(false);
    });
    server.listen(0, '::1', () => {
      server.close(() => {
        resolve_(true);
      });
    });
  });
}
