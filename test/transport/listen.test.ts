// Listening on an address, and on sockets passed by a service manager: what is served, and why a start fails.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { BoundSocket, connect, createServer, Server, type AddressInfo, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { text as readText } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import { listen, listenOnPassed } from '../../packages/core/hosts/common/listen.ts';
import { createGatewayServer } from '../../packages/core/hosts/index.ts';
import { StartError } from '../../packages/core/hosts/common/start-error.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { startGateway } from '../helpers/gateway.ts';
import { poll } from '../helpers/changes.ts';
import { isRefused } from '../helpers/raw-client.ts';

const [loopback = ''] =
  Object.entries(networkInterfaces()).find(([, all]) => all?.some(({ address }) => address === '::1')) ?? [];
const hasIpv6 = loopback !== '';
const names = { host: 'HOST', port: 'PORT' };

/** An echo server. It ends its side one event-loop turn after its client's FIN. */
function echo(): Server {
  return createServer({ allowHalfOpen: true }, (socket) =>
    socket.on('data', (data) => socket.write(data)).on('end', () => setImmediate(() => socket.end('.'))),
  );
}

async function echoes(port: number): Promise<string> {
  const socket = connect(port, '127.0.0.1').setEncoding('latin1');
  socket.end('x');
  const [text] = await Promise.all([readText(socket), once(socket, 'close')]);
  return text;
}

// The server closes the descriptors. These references keep the garbage collector from closing them first.
const bound: BoundSocket[] = [];

/** Binds sockets, as a service manager does before it passes them. */
function bind(count: number): { descriptors: number[]; ports: number[] } {
  const sockets = Array.from({ length: count }, () => new BoundSocket({ host: '127.0.0.1', port: 0 }));
  bound.push(...sockets);
  return { descriptors: sockets.map((socket) => socket.fd()), ports: sockets.map((socket) => socket.address().port) };
}

test('the URL of a listener can be used on this machine, also for the addresses 0.0.0.0 and ::', async () => {
  for (const [host, scheme, shown] of [
    ['localhost', 'http', 'localhost'],
    ['127.0.0.1', 'https', '127.0.0.1'],
    ['0.0.0.0', undefined, 'localhost'],
    ['::', 'http', 'localhost'],
    ['0::0', 'http', 'localhost'],
    ['::1', 'http', '[::1]'],
    // An address with a zone, which is the name of an interface.
    [`::1%${loopback}`, 'http', '[::1]'],
  ] as const) {
    if (!hasIpv6 && host.startsWith(':')) continue;
    const listener = await listen(echo(), host, 0, names, scheme);
    assert.equal(listener.url, `${scheme ?? 'http'}://${shown}:${listener.port}`);
    if (!host.startsWith('::1')) assert.equal(await echoes(listener.port), 'x.');
    await listener.close();
  }
});

test('if a server does not read its connections, this applies to both addresses of localhost', async (t) => {
  const sockets: Socket[] = [];
  const server = createServer({ pauseOnConnect: true }, (socket) => sockets.push(socket));
  const listener = await listen(server, 'localhost', 0, names);
  const clients = (hasIpv6 ? ['127.0.0.1', '::1'] : ['127.0.0.1']).map((address) => connect(listener.port, address));
  t.after(async () => {
    for (const socket of [...clients, ...sockets]) socket.destroy();
    await listener.close();
  });
  for (const client of clients) client.write('x');
  await poll(() => sockets.length === clients.length, 'all connections are accepted');
  // This connection ends only after a turn in which the server could have read the others.
  const other = createServer((socket) => socket.end('.')).listen(0, '127.0.0.1');
  await once(other, 'listening');
  await readText(connect((other.address() as AddressInfo).port, '127.0.0.1'));
  other.close();
  assert.deepEqual(
    sockets.map(({ bytesRead }) => bytesRead),
    clients.map(() => 0),
  );
});

for (const [host, port, message] of [
  ['192.0.2.1', 0, 'this machine has no address 192.0.2.1: listen on '],
  ['no-such-host.invalid', 0, 'this machine has no address no-such-host.invalid: listen on '],
  ['fe80::1', 0, 'this machine has no address fe80::1: listen on '],
  ['127.0.0.1', 70_000, 'cannot listen on 127.0.0.1 port 70000'],
] as const) {
  const skip = host === 'fe80::1' && !hasIpv6 && 'this system has no ::1';
  test(`listening on ${host} port ${port} fails: ${message}`, { skip }, async () => {
    const error: unknown = await listen(echo(), host, port, names).catch((reason: unknown) => reason);
    assert.ok(error instanceof StartError && error.cause instanceof Error);
    assert.ok(error.message.startsWith(message) && error.message.includes('HOST'), error.message);
    assert.deepEqual([error.name, error.code], ['StartError', Reflect.get(error.cause, 'code')]);
  });
}

/** Makes listening on `host` fail with `code`. The returned function returns the number of failures. */
function refuse(t: TestContext, host: string, code: string): () => number {
  // eslint-disable-next-line @typescript-eslint/unbound-method -- always called with the server it is for
  const { listen: original } = Server.prototype;
  let refused = 0;
  t.mock.method(Server.prototype, 'listen', function (this: Server, options: { host: string }) {
    if (options.host !== host) return original.call(this, options);
    refused += 1;
    process.nextTick(() => this.emit('error', Object.assign(new Error('refused'), { code })));
    return this;
  });
  return () => refused;
}

for (const [host, refused, used] of [
  ['localhost', '::1', '127.0.0.1'],
  ['::', '::', '0.0.0.0'],
  ['::0', '::0', '0.0.0.0'],
  ['0:0:0:0:0:0:0:0', '0:0:0:0:0:0:0:0', '0.0.0.0'],
] as const) {
  test(`without IPv6, a listener on ${host} uses ${used} [D31]`, async (t) => {
    for (const code of ['EADDRNOTAVAIL', 'EAFNOSUPPORT']) {
      refuse(t, refused, code);
      const server = echo();
      const listener = await listen(server, host, 0, names);
      assert.equal((server.address() as AddressInfo).address, used);
      assert.equal(listener.url, `http://localhost:${listener.port}`);
      assert.equal(await echoes(listener.port), 'x.');
      await listener.close();
      assert.equal(await isRefused(listener.port), true);
      t.mock.restoreAll();
    }
  });
}

test('the port in use on 0.0.0.0 is reported if the machine has no IPv6', async (t) => {
  const first = await listen(echo(), '0.0.0.0', 0, names);
  refuse(t, '::', 'EAFNOSUPPORT');
  await assert.rejects(listen(echo(), '::', first.port, names), { code: 'EADDRINUSE' });
  await first.close();
});

for (const [host, refusedHost, port, code, tries, message] of [
  ['localhost', '::1', 0, 'EADDRINUSE', 20, /^port 0 on localhost is in use: .*PORT$/],
  ['localhost', '::1', 0, 'EMFILE', 1, /^cannot listen on localhost port 0 \(from HOST and PORT\): refused$/],
  ['localhost', '::1', 'free', 'EADDRINUSE', 1, /^port \d+ on localhost is in use/],
  ['::1', '::1', 0, 'EADDRNOTAVAIL', 1, /^this machine has no address ::1: .* with HOST$/],
  ['::1', '::1', 0, 'EAFNOSUPPORT', 1, /^this machine has no address ::1: .* with HOST$/],
  ['127.0.0.1', '127.0.0.1', 80, 'EACCES', 1, /^port 80 on 127.0.0.1 needs .* above 1023 with PORT$/],
  ['a.example', 'a.example', 0, 'EAI_AGAIN', 1, /^this machine has no address a.example: .*HOST$/],
] as const) {
  test(`if the OS refuses ${refusedHost} with ${code}, listening on ${host} port ${port} fails (attempts: ${tries})`, async (t) => {
    const free = await listen(echo(), '127.0.0.1', 0, names);
    await free.close();
    const refusals = refuse(t, refusedHost, code);
    const server = echo();
    await assert.rejects(listen(server, host, port === 'free' ? free.port : port, names), { message });
    assert.equal(refusals(), tries);
    assert.equal(server.listening, false);
  });
}

for (const host of ['127.0.0.1', 'localhost']) {
  test(`before a listener on ${host} closes, it accepts the connections that wait in its queue [D33]`, async () => {
    const listener = await listen(echo(), host, 0, names);
    const addresses = host === 'localhost' && hasIpv6 ? ['127.0.0.1', '::1'] : ['127.0.0.1'];
    const texts = Array.from({ length: 20 }, (_, index) => {
      const socket = connect(listener.port, addresses[index % addresses.length]).setEncoding('latin1');
      socket.end('x');
      return readText(socket);
    });
    // In the next tick the OS opens the connections and puts them into the queues. None of them is accepted yet.
    await new Promise<void>((resolve) => process.nextTick(resolve));
    await listener.close();
    assert.deepEqual(new Set(await Promise.all(texts)), new Set(['x.']));
    assert.equal(await isRefused(listener.port), true);
  });
}

test('all passed sockets are served; after close they refuse new connections, and open connections stay open', async () => {
  const { descriptors, ports } = bind(2);
  const listener = await listenOnPassed(echo(), descriptors, 'https');
  assert.deepEqual([listener.port, listener.url], [ports[0], `https://127.0.0.1:${ports[0]}`]);
  const open = ports.map((port) => connect(port, '127.0.0.1'));
  for (const port of ports) assert.equal(await echoes(port), 'x.');
  await listener.close();
  for (const port of ports) assert.equal(await isRefused(port), true);
  for (const socket of open) {
    socket.write('y');
    assert.equal(String((await once(socket, 'data'))[0]), 'y');
    socket.destroy();
  }
});

test('listening fails if a passed descriptor is not a TCP socket, and the sockets passed before that descriptor are closed', async () => {
  for (const [descriptor, reason] of [
    [openSync('/dev/null', 'r'), ''],
    // An abstract Unix socket. The cast is needed because @types/node does not have `path` yet.
    [new BoundSocket({ path: `\0work-item-gateway-${process.pid}` } as never).fd(), 'it has no port'],
  ] as const) {
    const { descriptors, ports } = bind(1);
    await assert.rejects(listenOnPassed(echo(), [...descriptors, descriptor]), (error) => {
      assert.ok(error instanceof StartError);
      assert.match(error.message, new RegExp(`^descriptor ${descriptor}, passed .*socket: .*${reason}`));
      return true;
    });
    assert.equal(await isRefused(ports[0] ?? 0), true);
  }
});

// Errors for embedders name options of `createGatewayServer`, not variables of the command.

test('a server listens on localhost by default; its errors name the arguments of listen', async () => {
  const server = createGatewayServer({ backendUrl: 'http://localhost:1' });
  const taken = await listen(echo(), '127.0.0.1', 0, names);
  await assert.rejects(server.listen(0, '192.0.2.1'), /its own addresses with listen\(port, host\)$/);
  await assert.rejects(server.listen(taken.port, '127.0.0.1'), {
    code: 'EADDRINUSE',
    message: `port ${taken.port} on 127.0.0.1 is in use: stop the program that uses it, or choose another port with listen(port, host)`,
  });
  await taken.close();
  const { port, url } = await server.listen(0);
  assert.equal(url, `http://localhost:${port}`);
  await server.close();
});

test('the cause of a failed call to an untrusted backend names backendTls.ca', { skip: noOpenssl }, async () => {
  using folder = new CertificateFolder();
  const { cert, key } = folder.issue(folder.authority('authority'), 'server');
  const backend = createTlsServer({ cert, key }).listen(0, '127.0.0.1');
  await once(backend, 'listening');
  const { port } = backend.address() as AddressInfo;
  await using server = await startGateway({ settings: { backendUrl: `https://127.0.0.1:${port}` } });
  await using client = await server.connect();
  assert.equal((await client.call('GET', '/api/work-items/5')).status, 500);
  const cause = String(server.told.ended[0]?.cause);
  assert.match(cause, /: set backendTls\.ca to the authorities to trust$/);
  assert.doesNotMatch(cause, /[A-Z]+_[A-Z]+|--\w/);
  backend.close();
});
