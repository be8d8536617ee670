// The start of the built command, and the mistakes after which it refuses to start. D29 to D32.
// test/unit/settings.test.ts and cli.test.ts have more cases.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { logged, runCommand, runToEnd, startCommand } from '../helpers/command.ts';
import { assertReply, itemNotFound, succeeded } from '../helpers/expected.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
const flagOf = (variable: string) => `--${variable.toLowerCase().replaceAll('_', '-')} (${variable})`;

/** Free ports, so that a command that starts by mistake collides with no other process. */
const freePorts = { PORT: '0', ADMIN_PORT: '0', EMBEDDED_BACKEND_PORT: '0', LOG_FORMAT: 'json' };

test('--help prints help without colors, --version the version of the package, and both exit 0 [D32]', async () => {
  const help = await runToEnd(['--help']);
  assert.deepEqual([help.code, help.stderr], [0, '']);
  assert.match(help.stdout, /^Usage: work-item-gateway[^\u001b]*$/); // eslint-disable-line no-control-regex
  const file = readFileSync(resolve(import.meta.dirname, '../../package.json'), 'utf8');
  const { code, stdout } = await runToEnd(['--version']);
  assert.deepEqual([code, stdout], [0, `${(JSON.parse(file) as { version: string }).version}\n`]);
});

test('every problem of flags and variables is listed, the exit code is 1, and nothing is started [D32]', async () => {
  const variables = {
    ADMIN_PORT: '-1',
    LOG_LEVEL: 'loud',
    BACKEND_URL: 'nowhere',
    ITEM_ID_PARSING: 'x',
    IDLE_TIMEOUT_MS: 'Infinity',
  };
  const args = ['serve', '--request-bytes-max', 'x', '--nope', '--backend-timeout-ms=-1'];
  const { code, stdout, stderr } = await runToEnd(args, { ...freePorts, ...variables });
  assert.deepEqual([code, stdout], [1, '']);
  const names = [...Object.keys(variables), '--request-bytes-max', '--backend-timeout-ms', '--nope'];
  for (const name of names) assert.ok(stderr.includes(name), `${name} in\n${stderr}`);
  assert.equal(stderr.match(/^error: /gm)?.length, names.length, stderr);
  assert.doesNotMatch(stderr, /^ +at /m);
});

test('a flag takes precedence over a variable, and serve is the default command [D32]', async () => {
  const variables = { BACKEND_URL: 'http://127.0.0.1:1', ITEM_ID_PARSING: 'leading', REQUEST_BYTES_MAX: '' };
  const flags = ['--backend-url', backend.url, '--item-id-parsing=whole'];
  await using command = runCommand(flags, { ...freePorts, ...variables });
  const ready = await logged(command, 'ready');
  command.port = Number(new URL(String(ready['url'])).port);
  assert.equal((await command.call('GET', '/api/work-items')).status, 200);
  assert.equal((await command.call('GET', '/api/work-items/5x')).status, 400);
});

for (const [command, environment, places] of [
  ['serve', {}, ['PORT', 'ADMIN_PORT']],
  ['serve', { WORKERS: '2' }, ['PORT', 'ADMIN_PORT']],
  ['dev', {}, ['EMBEDDED_BACKEND_PORT', 'PORT', 'ADMIN_PORT']],
] as const) {
  test(`${command} ${JSON.stringify(environment)}: each port in use has an error line, and no other port is used [D31]`, async () => {
    await using holders = new AsyncDisposableStack();
    const taken: Record<string, string> = {};
    for (const variable of places) {
      const holder = holders.use(createServer());
      await once(holder.listen(0, '127.0.0.1'), 'listening');
      taken[variable] = String((holder.address() as AddressInfo).port);
      taken[variable.replace('PORT', 'HOST')] = '127.0.0.1';
    }
    const { code, stdout, stderr } = await runToEnd([command], { ...taken, LOG_FORMAT: 'json', ...environment });
    const lines = places.map((variable) => {
      const place = `port ${taken[variable]} on 127.0.0.1 is in use`;
      return `error: ${place}: stop the program that uses it, or choose another port with ${flagOf(variable)}\n`;
    });
    assert.deepEqual([code, stdout, stderr], [1, '', lines.join('')]);
  });
}

for (const [command, variable, environment] of [
  ['serve', 'HOST', { WORKERS: '2', LOG_LEVEL: 'silent' }],
  ['serve', 'ADMIN_HOST', {}],
  ['backend', 'EMBEDDED_BACKEND_HOST', {}],
] as const) {
  test(`${command}: ${variable} is not an address of this machine, so the exit code is 1 [D31]`, async () => {
    const host = '203.0.113.1';
    const { code, stderr } = await runHere([command], { ...freePorts, ...environment, [variable]: host });
    assert.equal(code, 1);
    assert.match(stderr, /^error: this machine has no address .*\n$/);
    assert.ok(stderr.includes(host) && stderr.includes(`with ${flagOf(variable)}\n`), stderr);
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
for (const environment of [{}, { WORKERS: '2', PORT: String(await findFreePort()) }]) {
  test(`${JSON.stringify(environment)}: without IPv6, listening on :: means 0.0.0.0, with one log line [D31]`, async () => {
    const places = { HOST: '::', ADMIN_HOST: '::', BACKEND_URL: backend.url, ...environment };
    await using command = await startCommand(places, { nodeFlags: ['--import', withoutIpv6] });
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

test('without IPv6, listening on ::1 is an error [D31]', async () => {
  const limits = { nodeFlags: ['--import', withoutIpv6] };
  const { code, stderr } = await runToEnd(['serve'], { ...freePorts, ADMIN_HOST: '::1' }, limits);
  assert.equal(code, 1);
  assert.match(stderr, /^error: this machine has no address ::1: .* with --admin-host \(ADMIN_HOST\)\n$/);
});

test('on ::, clients and operators are served over IPv4 and IPv6; an IPv4 client keeps its IPv4 address [D31, D46, D52, D57]', async (t) => {
  if (!hasIpv6) {
    t.skip('no IPv6 here');
    return;
  }
  await using command = await startCommand({
    ...{ BACKEND_URL: backend.url, HOST: '::', ADMIN_HOST: '::', WORKERS: '2' },
    ...{ ALLOWED_HOSTS: 'items.example', RATE_LIMIT: '3/60s', TRUSTED_PROXIES: '127.0.0.1,::1' },
  });
  // One client, in three spellings, over both families and in two workers.
  for (const [index, [peer, forwarded, status, client]] of [
    ['127.0.0.1', undefined, 200, '127.0.0.1'],
    ['::1', undefined, 200, '::1'],
    ['127.0.0.1', '203.0.113.5', 200, '203.0.113.5'],
    ['::1', '::ffff:203.0.113.5', 200, '203.0.113.5'],
    ['::1', '[::FFFF:cb00:7105]:80', 200, '203.0.113.5'],
    ['127.0.0.1', '203.0.113.5:80', 429, '203.0.113.5'],
  ].entries() as ArrayIterator<[number, [string, string | undefined, number, string]]>) {
    await using connection = await RawClient.open(command.port, peer);
    const host = peer.includes(':') ? `[${peer}]` : peer;
    const headers: [string, string][] = [
      ['Host', `${host}:${command.port}`],
      ['X-Request-Id', `dual-${index}`],
    ];
    if (forwarded !== undefined) headers.push(['X-Forwarded-For', forwarded]);
    assert.equal((await connection.call('GET', '/api/work-items', { headers })).status, status);
    const line = await command.log(({ requestId }) => requestId === `dual-${index}`, 'its line');
    assert.equal(line['client'], client);
    await using probe = await RawClient.open(command.adminPort, peer);
    assert.equal((await probe.call('GET', '/livez', { headers: [['Host', `${host}:9464`]] })).status, 200);
  }
});

test('port 0 is a free port, shown at every log level; localhost is every loopback address; each listener has its own paths [D31]', async () => {
  await using command = await startCommand({ HOST: 'localhost', ADMIN_HOST: 'localhost', LOG_LEVEL: 'fatal' });
  assert.ok(command.port > 0 && command.adminPort > 0 && command.port !== command.adminPort);
  const paths = [
    ['/api/work-items/x', 400, 404],
    ['/livez', 404, 200],
    ['/readyz', 404, 200],
    ['/metrics', 404, 200],
  ] as const;
  for (const host of ['127.0.0.1', 'localhost', ...(hasIpv6 ? ['::1'] : [])]) {
    for (const [path, forClient, forOperator] of paths) {
      for (const [port, status] of [
        [command.port, forClient],
        [command.adminPort, forOperator],
      ] as const) {
        await using client = await RawClient.open(port, host);
        assert.equal((await client.call('GET', path)).status, status, `${host} ${path}`);
      }
    }
  }
});

test('the first run of `dev` serves sample items and every operation, and shows a command to try next [D29]', async () => {
  await using command = runCommand(['dev'], freePorts);
  command.port = Number((await command.prints(/curl http:\/\/localhost:([0-9]+)\/api\/work-items/))[1]);
  const samples = await command.call('GET', '/api/work-items');
  assert.equal(samples.status, 200);
  assert.ok((JSON.parse(samples.text) as unknown[]).length > 0, 'a few sample work items');

  const created = await command.call('POST', '/api/work-items', { body: '{"title":"Paint the fence"}' });
  assert.equal(created.status, 201);
  const { id, title } = JSON.parse(created.text) as { id: number; title: string };
  assert.equal(title, 'Paint the fence');

  const path = `/api/work-items/${id}`;
  assert.equal((JSON.parse((await command.call('GET', path)).text) as { id: number }).id, id);
  assertReply(await command.call('PUT', path, { body: `{"id":${id},"title":"Painted"}` }), 200, succeeded);
  assert.match((await command.call('GET', path)).text, /Painted/);
  assertReply(await command.call('DELETE', path), 200, succeeded);
  assertReply(await command.call('GET', path), 404, itemNotFound);
});

test('check exits with 0 if the backend answers JSON, with 1 if it answers HTML or is down; if it is down, check names its address', async () => {
  const environment = { BACKEND_URL: backend.url };
  const well = await runToEnd(['check'], environment);
  assert.equal(well.code, 0, well.output);
  assert.doesNotMatch(well.output, /cors/i);
  backend.answers(answer('<p>'));
  assert.equal((await runHere(['check'], environment)).code, 1);
  await backend.stop();
  const down = await runHere(['check'], environment);
  await backend.restart();
  assert.equal(down.code, 1, down.output);
  assert.ok(down.output.includes(String(backend.port)), down.output);
});

test('check lists the origins in CORS_ORIGINS, and warns of origins with plain http [D45]', async () => {
  const origins = 'https://app.example.com,http://app.example.com';
  const { code, output } = await runHere(['check', '--cors-origins', origins], { BACKEND_URL: backend.url });
  assert.equal(code, 0, output);
  assert.match(output, /^cors: pages of https:\/\/app\.example\.com, http:\/\/app\.example\.com may call/m);
  assert.match(output, /^ {2}http:\/\/app\.example\.com is not https/m);
});
