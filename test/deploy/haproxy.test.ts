// deploy/haproxy.cfg with a real HAProxy: variations, time limits and retries. ../process/under-load.test.ts restarts
// gateways behind HAProxy; ../fleet runs a whole fleet.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { parse } from 'yaml';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { startBlackHole } from '../helpers/black-hole.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { sorted } from '../helpers/expected.ts';
import { findFreePort, Haproxy, haproxyProgram, shippedConfiguration, type Variations } from '../helpers/haproxy.ts';
import { isRefused, RawClient, request, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer, behind, resetPeer, ScriptedBackend, timeout } from '../helpers/scripted-backend.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';

const backend = await useBackend();
const program = haproxyProgram ?? '';
const skip =
  haproxyProgram === undefined &&
  'haproxy is not installed, so nothing was tested here; on Debian: apt-get install haproxy';
const list = '/api/work-items';

test('the time limits of HAProxy fit the defaults of the gateway, and only calls whose connection failed are sent again', () => {
  const { settings } = resolveSettings('serve', {}, {});
  const of = (name: string): number => {
    const [, number, unit] = new RegExp(`^\\s*[^#]*\\b${name} (\\d+)(m?s)?\\b`, 'm').exec(shippedConfiguration) ?? [];
    return Number(number) * (unit === 's' ? 1_000 : 1);
  };
  const downAfterMs = of('inter') * of('fall');
  // Otherwise HAProxy gives up before the gateway's own reply, whose form the clients know.
  assert.ok(of('timeout server') > settings.backendConnectTimeoutMs + settings.backendTimeoutMs + 1_000);
  assert.ok(of('timeout client') > settings.requestTimeoutMs);
  assert.ok(of('timeout http-request') > settings.requestHeadersTimeoutMs);
  assert.ok(2 * of('pool-purge-delay') < settings.idleTimeoutMs, 'HAProxy closes idle connections first');
  assert.ok(of('check .* maxconn') < settings.inFlightMax);
  const [, delayMs] = /SHUTDOWN_DELAY_MS=(\d+)/.exec(shippedConfiguration) ?? [];
  assert.ok(downAfterMs + 1_000 < Number(delayMs), 'HAProxy detects a shutdown in time');
  assert.ok(
    of('timeout connect') <= downAfterMs,
    'another gateway is tried before an unreachable one is marked as down',
  );
  const retries = shippedConfiguration.match(/^\s*(?:retry-on|option redispatch|http-request .*retry).*/gm) ?? [];
  assert.deepEqual(
    retries.map((line) => line.trim()),
    ['retry-on conn-failure', 'option redispatch 1'],
  );
});

describe('a call to a gateway that dies is not sent again', { skip }, () => {
  // The gateways are scripted servers. Both are always ready, and reset connections when a test requires it.
  let gateways: readonly ScriptedBackend[] = [];
  let admin: ScriptedBackend;
  let haproxy: Haproxy;
  before(async () => {
    gateways = await Promise.all([ScriptedBackend.start(), ScriptedBackend.start()]);
    admin = await ScriptedBackend.start();
    haproxy = await Haproxy.start(
      program,
      gateways.map(({ port }) => ({ port, adminPort: admin.port })),
    );
  });
  const allAnswer = (each: ReturnType<typeof answer>) => {
    for (const gateway of gateways) gateway.answers(each);
  };
  beforeEach(() => {
    for (const gateway of gateways) gateway.reset();
    allAnswer(answer('[]'));
  });
  after(async () => {
    await haproxy[Symbol.asyncDispose]();
    await Promise.all([...gateways, admin].map((each) => each.stop()));
  });
  const timesOf = (marker: string): number =>
    gateways.flatMap(({ requests }) => requests).filter((each) => each.header('x-request-id') === marker).length;
  const send = (client: RawClient, method: string, marker: string): void =>
    client.send(requestBytes(method, list, { headers: [['X-Request-Id', marker]], body: '{}' }));

  for (const method of ['GET', 'POST']) {
    test(`${method} is sent once: the first call on a connection gets 502, a later one no reply`, async () => {
      allAnswer(resetPeer());
      await using first = await RawClient.open(haproxy.port);
      send(first, method, 'first');
      assert.equal((await first.reply()).status, 502);
      allAnswer(answer('[]'));
      await using later = await RawClient.open(haproxy.port);
      send(later, method, 'before');
      assert.equal((await later.reply()).status, 200);
      allAnswer(resetPeer());
      send(later, method, 'later');
      await later.closed();
      assert.equal(later.unread.length, 0);
      assert.deepEqual([timesOf('first'), timesOf('later')], [1, 1]);
    });
  }

  test('the log has a line with the request id for each failed call, and no line for other calls', async () => {
    await using client = await RawClient.open(haproxy.port);
    send(client, 'GET', 'goes-well');
    await client.reply();
    allAnswer(answer('{"error":"x"}', { status: 500 }));
    send(client, 'GET', 'goes-wrong');
    await client.reply();
    await poll(() => haproxy.lines().some((line) => line.includes('{goes-wrong}')), 'a line is there');
    assert.ok(!haproxy.lines().some((line) => line.includes('{goes-well}')));
  });
});

/** Asserts an error in JSON, with the headers of D24 except `x-request-id`. */
function assertError(reply: Reply, status: number, error = 'Service unavailable'): void {
  const body = JSON.stringify({ error });
  const headers = sorted(reply.headers).filter((header) => header !== 'connection: close');
  const length = `content-length: ${body.length}`;
  const expected = [
    'cache-control: no-store',
    length,
    'content-type: application/json',
    'x-content-type-options: nosniff',
  ];
  assert.deepEqual([reply.status, reply.text, ...headers], [status, body, ...expected]);
}

describe('the errors of HAProxy are JSON of the fixed form [D66]', { skip }, () => {
  test('if a gateway resets its connection, if a request body becomes malformed, or if no gateway listens', async (t) => {
    const [gateway, admin] = await Promise.all([ScriptedBackend.start(), ScriptedBackend.start()]);
    t.after(() => Promise.all([gateway.stop(), admin.stop()]));
    await using haproxy = await Haproxy.start(program, [{ port: gateway.port, adminPort: admin.port }]);
    gateway.answersOnce(resetPeer());
    assertError(await request(haproxy.port, 'GET', list), 502);
    const isSent = createGate();
    gateway.answersAtHead = isSent.open;
    await using client = await RawClient.open(haproxy.port);
    client.send(`POST ${list} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`);
    await isSent.opened;
    client.send('no chunk\r\n');
    assertError(await client.reply(), 400, 'Bad request');
    await Promise.all([gateway.stop(), admin.stop()]);
    // The reply takes some seconds if HAProxy has not marked the gateway as down yet.
    assertError(await request(haproxy.port, 'GET', list), 503);
  });

  test('if the Ingress has no pod, or its pod does not answer', async (t) => {
    const pod = await ScriptedBackend.start();
    t.after(() => pod.stop());
    pod.answers(timeout);
    const manifest = readFileSync(join(import.meta.dirname, '../../deploy/kubernetes/ingress/ingress.yaml'), 'utf8');
    const { metadata } = parse(manifest) as { metadata: { annotations: Record<string, string> } };
    const snippet = metadata.annotations['haproxy.org/backend-config-snippet'] ?? '';
    assert.ok(snippet.includes('timeout server 40s'));
    const [own, other, nobody] = [await findFreePort(), await findFreePort(), await findFreePort()];
    // The essential lines of the Ingress controller's configuration.
    const place = (name: string, port: number, to: number) => `frontend ${name}
  bind 127.0.0.1:${port}
  default_backend pods-${name}
backend pods-${name}
${snippet.replace('timeout server 40s', 'timeout server 500ms').replaceAll(/^/gm, '  ')}
  server pod 127.0.0.1:${to}
`;
    const defaults = 'defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n';
    const configuration = defaults + place('silent', own, pod.port) + place('gone', other, nobody);
    await using haproxy = await Haproxy.startWith(program, configuration, own);
    await haproxy.listens(other);
    assertError(await request(own, 'GET', list), 504);
    assertError(await request(other, 'GET', list), 503);
  });
});

describe('a gateway that accepts no more calls', { skip }, () => {
  /** Sends `count` creates at the same time, each on its own connection. Their request ids begin with `name`. */
  const create = (port: number, name: string, count: number): Promise<Reply[]> =>
    Promise.all(
      Array.from({ length: count }, async (_, index) => {
        await using client = await RawClient.open(port);
        const headers = [['X-Request-Id', `${name}-${index}`]] as const;
        client.send(requestBytes('POST', list, { headers, body: '{}' }));
        // Half of `timeout server`: no client may wait that long.
        return await client.reply({ limitMs: 20_000 });
      }),
    );
  const assertNoneTwice = (): void => {
    const markers = backend.requests.map((each) => each.header('x-request-id'));
    assert.equal(new Set(markers).size, markers.length);
  };

  test('if a gateway is frozen, its calls get 502 within seconds, other calls are served, and no write is sent twice', async () => {
    await using frozen = await startCommand({ BACKEND_URL: backend.url });
    await using other = await startCommand({ BACKEND_URL: backend.url });
    await using haproxy = await Haproxy.start(program, [frozen, other]);
    await create(haproxy.port, 'before', 10);
    frozen.signal('SIGSTOP');
    try {
      const replies = await create(haproxy.port, 'while', 10);
      const failed = replies.filter(({ status }) => status !== 201);
      assert.ok(failed.length > 0 && failed.length < replies.length, String(failed.length));
      for (const reply of failed) assertError(reply, 502);
      for (const { status } of await create(haproxy.port, 'after', 10)) assert.equal(status, 201);
    } finally {
      frozen.signal('SIGCONT');
    }
    let made = 0;
    await poll(async () => {
      await create(haproxy.port, `again-${(made += 1)}`, 2);
      // The log is up to 100 ms late.
      return frozen.logs.some(({ requestId }) => String(requestId).startsWith('again'));
    }, 'HAProxy sends calls to the gateway again');
    assertNoneTwice();
  });

  test('if a gateway drains, its call in flight still gets a reply; a reload of HAProxy closes an idle connection after its next call', async () => {
    await using gateway = await startCommand({ BACKEND_URL: backend.url, SHUTDOWN_DELAY_MS: '3000' });
    await using older = await Haproxy.start(program, [gateway]);
    await using idle = await RawClient.open(older.port);
    assert.equal((await idle.call('GET', list)).status, 200);
    older.stopSoftly();
    await poll(() => isRefused(older.port), 'HAProxy no longer listens');
    const last = await idle.call('GET', list);
    assert.deepEqual([last.status, last.header('connection')], [200, 'close']);
    await idle.closed();

    await using haproxy = await Haproxy.start(program, [gateway]);
    const gate = createGate();
    backend.reset();
    backend.answers(answer('[]'));
    backend.answersOnce(behind(gate, answer('[]')));
    await using client = await RawClient.open(haproxy.port);
    client.send(requestBytes('GET', list));
    await backend.nextRequest();
    gateway.signal('SIGTERM');
    await poll(async () => (await request(haproxy.port, 'GET', list)).status === 503, 'the gateway gets no more calls');
    gate.open();
    assert.equal((await client.reply()).status, 200);
    assert.equal(await gateway.exitCode(), 0);
  });

  test('if a gateway accepts no connections, another gateway serves each call, and no write is sent twice', async (t) => {
    await using gone = await startBlackHole();
    if (gone === undefined) {
      t.skip('a listen queue is unlimited here');
      return;
    }
    await using gateway = await startCommand({ BACKEND_URL: backend.url });
    const { adminPort } = gateway;
    await using haproxy = await Haproxy.start(program, [{ port: gone.port, adminPort }, gateway]);
    for (const { status } of await create(haproxy.port, 'around', 10)) assert.equal(status, 201);
    assertNoneTwice();
  });
});

describe('with certificates', { skip: skip || noOpenssl }, () => {
  const folder = useCertificates();

  test('TLS for clients, the PROXY protocol and TLS on the gateways keep the client address; another authority gets no call', async () => {
    const [authority, foreign] = [folder.authority('authority'), folder.authority('foreign')];
    const own = folder.issue(authority, 'gateway', { names: ['DNS:gateways.example.com'] });
    const forClients = folder.issue(authority, 'clients');
    const tls = { TLS_CERT_FILE: own.certFile, TLS_KEY_FILE: own.keyFile };
    await using gateway = await startCommand({ BACKEND_URL: backend.url, ...tls, TRUSTED_PROXIES: '127.0.0.1' });
    const variations = {
      clientTls: { port: await findFreePort(), file: folder.write('both.pem', forClients.cert + forClients.key) },
      proxyProtocol: { port: await findFreePort() },
      gatewayTls: { file: authority.certFile },
    } satisfies Variations;
    await using haproxy = await Haproxy.start(program, [gateway], variations);
    const call = async (client: RawClient, marker: string): Promise<unknown[]> => {
      const { status, text } = await client.call('GET', list, { headers: [['X-Request-Id', marker]] });
      const line = await gateway.log(({ requestId }) => requestId === marker, 'the line of the request');
      return [status, text, line['client']];
    };
    const options = { ca: authority.cert, servername: 'localhost', localAddress: '127.0.0.3' };
    await using secure = await RawClient.openSecure(variations.clientTls.port, options);
    assert.deepEqual(await call(secure, 'over-tls'), [200, '[]', '127.0.0.3']);
    await using proxied = await RawClient.open(variations.proxyProtocol.port);
    proxied.send('PROXY TCP4 203.0.113.9 192.0.2.80 40000 80\r\n');
    assert.deepEqual(await call(proxied, 'by-proxy'), [200, '[]', '203.0.113.9']);
    await using plain = await RawClient.open(haproxy.port, '127.0.0.1', '127.0.0.2');
    assert.deepEqual(await call(plain, 'plain'), [200, '[]', '127.0.0.2']);

    await using distrustful = await Haproxy.start(program, [gateway], { gatewayTls: { file: foreign.certFile } });
    const before = backend.requests.length;
    await using client = await RawClient.open(distrustful.port);
    client.send(requestBytes('GET', list));
    // The 503 comes after three retries, one second apart.
    assert.equal((await client.reply({ limitMs: 60_000 })).status, 503);
    assert.equal(backend.requests.length, before);
  });
});
