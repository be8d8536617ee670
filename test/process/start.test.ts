// The start of the built command, and the mistakes after which it refuses to start. D29 to D32.
// test/unit/settings.test.ts and cli.test.ts have more cases.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { resolve } from 'node:path';
import { describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { logged, runCommand, runToEnd, startCommand } from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { RawClient, request } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));

/** Free ports, so that a command that starts by mistake collides with no other process. */
const freePorts = { PORT: '0', ADMIN_PORT: '0', LOG_FORMAT: 'json' };

describe('settings', () => {
  test('--help prints help without colors and exits 0 [D32]', async () => {
    const { code, stdout, stderr } = await runToEnd(['--help']);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
    assert.match(stdout, /Usage: work-item-gateway/);
    assert.doesNotMatch(stdout, /\u001b\[/); // eslint-disable-line no-control-regex
  });

  test('--version prints the version of the package and exits 0 [D32]', async () => {
    const file = readFileSync(resolve(import.meta.dirname, '../../package.json'), 'utf8');
    const { version } = JSON.parse(file) as { version: string };
    const { code, stdout } = await runToEnd(['--version']);
    assert.deepEqual({ code, stdout }, { code: 0, stdout: `${version}\n` });
  });

  test('every problem of flags and variables is listed, the exit code is 1, and nothing is started [D32]', async () => {
    const variables = {
      ADMIN_PORT: '-1',
      LOG_LEVEL: 'loud',
      BACKEND_URL: 'nowhere',
      ITEM_ID_PARSING: 'sometimes',
      IDLE_TIMEOUT_MS: 'Infinity',
    };
    const { code, output, stderr } = await runToEnd(
      ['serve', '--request-bytes-max', 'x', '--nope', '--backend-timeout-ms=-1'],
      { ...freePorts, ...variables },
    );
    assert.equal(code, 1);
    const names = [...Object.keys(variables), '--request-bytes-max', '--backend-timeout-ms', '--nope'];
    for (const name of names) assert.ok(stderr.includes(name), `${name} in\n${stderr}`);
    assert.equal(stderr.match(/^error: /gm)?.length, names.length, stderr);
    assert.doesNotMatch(output, /"ready"|^ +at /m);
  });

  test('a flag takes precedence over a variable, and serve is the default command [D32]', async () => {
    await using command = runCommand(['--backend-url', backend.url, '--item-id-parsing=whole'], {
      ...freePorts,
      BACKEND_URL: 'http://127.0.0.1:1',
      ITEM_ID_PARSING: 'leading',
      REQUEST_BYTES_MAX: '',
    });
    const ready = await logged(command, 'ready');
    const port = Number(new URL(String(ready['url'])).port);
    assert.equal((await request(port, 'GET', '/api/work-items')).status, 200);
    assert.equal((await request(port, 'GET', '/api/work-items/5x')).status, 400);
  });
});

describe('listening', () => {
  test('if a port is in use, an error names the port, the exit code is 1, and no other port is used [D31]', async () => {
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

  for (const [command, environment] of [
    ['serve', {}],
    ['serve', { WORKERS: '2' }],
    ['dev', {}],
  ] as const) {
    test(`${command} ${JSON.stringify(environment)}: if all ports are in use, each has an error line [D31]`, async () => {
      const places = ['PORT', 'ADMIN_PORT', ...(command === 'dev' ? ['EMBEDDED_BACKEND_PORT'] : [])];
      await using holders = new AsyncDisposableStack();
      const taken: Record<string, string> = {};
      for (const variable of places) {
        const holder = holders.use(createServer());
        await once(holder.listen(0, '127.0.0.1'), 'listening');
        taken[variable] = String((holder.address() as AddressInfo).port);
        taken[variable.replace('PORT', 'HOST')] = '127.0.0.1';
      }
      const { code, stdout, stderr } = await runToEnd([command], {
        ...taken,
        // Node 22 warns that its SQLite is experimental.
        NODE_NO_WARNINGS: '1',
        LOG_FORMAT: 'json',
        ...environment,
      });
      assert.equal(code, 1);
      const lines = places.map((variable) => {
        const flag = `--${variable.toLowerCase().replaceAll('_', '-')}`;
        return `error: port ${taken[variable]} on 127.0.0.1 is in use: stop the program that uses it, or choose another port with ${flag} (${variable})\n`;
      });
      assert.deepEqual(stderr, command === 'dev' ? [lines[2], lines[0], lines[1]].join('') : lines.join(''));
      assert.equal(stdout, '');
    });
  }

  for (const [command, variable, environment] of [
    ['serve', 'HOST', {}],
    ['serve', 'HOST', { WORKERS: '2' }],
    ['serve', 'ADMIN_HOST', {}],
    ['backend', 'EMBEDDED_BACKEND_HOST', {}],
  ] as const) {
    const host = '203.0.113.1';
    test(`${command} ${JSON.stringify(environment)}: ${variable}=${host} is not an address of this machine, so the exit code is 1 [D31]`, async () => {
      const { code, output, stderr } = await runToEnd([command], {
        ...freePorts,
        EMBEDDED_BACKEND_PORT: '0',
        // Node 22 warns that its SQLite is experimental.
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

  // Listening fails as on a Linux that was started without IPv6.
  const withoutIpv6 = `data:text/javascript,${encodeURIComponent(`
    const { Server } = process.getBuiltinModule('node:net');
    const { listen } = Server.prototype;
    Server.prototype.listen = function (place, ...rest) {
      if (!place.host?.includes(':')) return listen.call(this, place, ...rest);
      process.nextTick(() => this.emit('error', Object.assign(new Error('refused'), { code: 'EAFNOSUPPORT' })));
      return this;
    };
  `)}`;
  for (const environment of [{}, { WORKERS: '2' }, { WORKERS: '2', PORT: 'free' }, { ADMIN_HOST: '::1' }]) {
    const starts = !('ADMIN_HOST' in environment);
    test(`${JSON.stringify(environment)}: without IPv6, listening on :: ${starts ? 'means 0.0.0.0, with one log line' : 'is possible, but not on ::1'} [D31]`, async () => {
      const places = { HOST: '::', ADMIN_HOST: '::', PORT: '0', ADMIN_PORT: '0', ...environment };
      if (places.PORT === 'free') places.PORT = String(await findFreePort());
      const limits = { nodeFlags: ['--import', withoutIpv6] };
      if (!starts) {
        const { code, stderr } = await runToEnd(['serve'], { ...freePorts, ...places }, limits);
        assert.equal(code, 1);
        assert.match(stderr, /^error: this machine has no address ::1: .* with --admin-host \(ADMIN_HOST\)\n$/);
        return;
      }
      await using command = await startCommand({ BACKEND_URL: backend.url, ...places }, limits);
      assert.equal((await command.call('GET', '/api/work-items')).status, 200);
      assert.equal((await command.admin('/readyz')).status, 200);
      const lines = command.logs.filter(({ msg }) => String(msg).includes('IPv6'));
      assert.deepEqual(
        lines.map(({ level, msg }) => [level, msg]),
        [['info', 'this machine has no IPv6: listening on 0.0.0.0 instead of ::']],
      );
      assert.equal(command.stderr, '');
    });
  }

  test('on ::, clients and operators are served over IPv4 and IPv6; an IPv4 client keeps its IPv4 address [D31, D46, D52, D57]', async (t) => {
    if (!hasIpv6) {
      t.skip('no IPv6 here');
      return;
    }
    const guards = { ALLOWED_HOSTS: 'items.example', RATE_LIMIT: '3/60s', TRUSTED_PROXIES: '127.0.0.1,::1' };
    await using command = await startCommand({
      ...{ BACKEND_URL: backend.url, HOST: '::', ADMIN_HOST: '::', WORKERS: '2' },
      ...guards,
    });
    let calls = 0;
    const clientOf = async (peer: string, forwarded?: string): Promise<unknown> => {
      await using client = await RawClient.open(command.port, peer);
      const host = peer.includes(':') ? `[${peer}]` : peer;
      calls += 1;
      const { status } = await client.call('GET', '/api/work-items', {
        headers: [
          ['Host', `${host}:${command.port}`],
          ['X-Request-Id', `dual-${calls}`],
          ...(forwarded === undefined ? [] : [['X-Forwarded-For', forwarded] as const]),
        ],
      });
      const line = await command.log(({ requestId }) => requestId === `dual-${calls}`, 'its line');
      return [status, line['client']];
    };
    assert.deepEqual(await clientOf('127.0.0.1'), [200, '127.0.0.1']);
    assert.deepEqual(await clientOf('::1'), [200, '::1']);
    // One client, in three spellings and over both families.
    assert.deepEqual(await clientOf('127.0.0.1', '203.0.113.5'), [200, '203.0.113.5']);
    assert.deepEqual(await clientOf('::1', '::ffff:203.0.113.5'), [200, '203.0.113.5']);
    assert.deepEqual(await clientOf('::1', '[::FFFF:cb00:7105]:80'), [200, '203.0.113.5']);
    assert.deepEqual(await clientOf('127.0.0.1', '203.0.113.5:80'), [429, '203.0.113.5']);
    for (const peer of ['127.0.0.1', '::1']) {
      await using probe = await RawClient.open(command.adminPort, peer);
      const headers = [['Host', peer.includes(':') ? `[${peer}]:9464` : peer]] as const;
      assert.equal((await probe.call('GET', '/livez', { headers })).status, 200);
    }
  });

  test('with port 0 a free port is used, and the start-up line names this port at every log level [D31]', async () => {
    await using command = await startCommand({ LOG_LEVEL: 'fatal' });
    assert.ok(command.port > 0 && command.adminPort > 0 && command.port !== command.adminPort);
    assert.equal((await command.call('GET', '/api/work-items/x')).status, 400);
    assert.equal((await command.admin('/livez')).status, 200);
  });

  test('localhost, the default, is served on every loopback address; each listener serves only its own paths [D31]', async () => {
    await using command = await startCommand({ HOST: 'localhost', ADMIN_HOST: 'localhost' });
    for (const host of ['127.0.0.1', 'localhost', ...(hasIpv6 ? ['::1'] : [])]) {
      for (const [port, path, status] of [[command.port, '/api/work-items/x', 400], [command.adminPort, '/livez', 200]] as const) {
        await using client = await RawClient.open(port, host);
        assert.equal((await client.call('GET', path)).status, status, `${host} ${path}`);
      }
    }
    assert.equal((await command.admin('/api/work-items')).status, 404);
    for (const path of ['/livez', '/readyz', '/metrics']) {
      assert.equal((await command.admin(path)).status, 200);
      assert.equal((await command.call('GET', path)).status, 404);
    }
  }); // prettier-ignore
});

test('the first run of `dev` serves sample items and every operation, and shows a command to try next [D29]', async () => {
  await using command = runCommand(['dev'], { ...freePorts, EMBEDDED_BACKEND_PORT: '0' });
  const shown = /curl http:\/\/localhost:([0-9]+)\/api\/work-items/;
  await poll(() => shown.test(command.stdout), 'the command to try next');
  command.port = Number(shown.exec(command.stdout)?.[1]);
  const samples = await command.call('GET', '/api/work-items');
  assert.equal(samples.status, 200);
  assert.ok((JSON.parse(samples.text) as unknown[]).length > 0, 'a few sample work items');

  const created = await command.call('POST', '/api/work-items', { body: '{"title":"Paint the fence"}' });
  assert.equal(created.status, 201);
  const { id, title } = JSON.parse(created.text) as { id: number; title: string };
  assert.equal(title, 'Paint the fence');

  const path = `/api/work-items/${id}`;
  assert.equal((JSON.parse((await command.call('GET', path)).text) as { id: number }).id, id);
  const update = await command.call('PUT', path, { body: `{"id":${id},"title":"Painted"}` });
  assertReply(update, 200, '{"success":true}');
  assert.match((await command.call('GET', path)).text, /Painted/);
  assertReply(await command.call('DELETE', path), 200, '{"success":true}');
  assertReply(await command.call('GET', path), 404, '{"error":"Work item not found"}');
});

describe('check', () => {
  test('check exits with 0 if the backend answers JSON, with 1 if it answers HTML or is down; if it is down, check names its address', async () => {
    const environment = { BACKEND_URL: backend.url };
    const check = () => runHere(['check'], environment);
    const well = await runToEnd(['check'], environment);
    assert.equal(well.code, 0, well.output);
    backend.answers(answer('<p>'));
    const html = await check();
    assert.equal(html.code, 1, html.output);
    await backend.stop();
    const down = await check();
    await backend.restart();
    assert.equal(down.code, 1, down.output);
    assert.ok(down.output.includes(String(backend.port)), down.output);
  });

  test('check lists the origins in CORS_ORIGINS, and warns of origins with plain http [D45]', async () => {
    const environment = { BACKEND_URL: backend.url };
    const none = await runHere(['check'], environment);
    assert.doesNotMatch(none.output, /cors/i);
    const origins = 'https://app.example.com,http://app.example.com';
    const some = await runHere(['check', '--cors-origins', origins], environment);
    assert.equal(some.code, 0, some.output);
    assert.match(some.output, /^cors: pages of https:\/\/app\.example\.com, http:\/\/app\.example\.com may call/m);
    assert.match(some.output, /^ {2}http:\/\/app\.example\.com is not https/m);
  });
});
