// deploy/haproxy.cfg with a real HAProxy: variations, time limits and retries. ../process/under-load.test.ts restarts
// gateways behind HAProxy; ../fleet runs a whole fleet.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { parse } from 'yaml';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { startBlackHole } from '../helpers/black-hole.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { sorted } from '../helpers/expected.ts';
import { findFreePort, Haproxy, haproxyProgram, shippedConfiguration, type Variations } from '../helpers/haproxy.ts';
import { isRefused, RawClient, request, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer, behind, resetPeer, ScriptedBackend, timeout } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
const program = haproxyProgram ?? '';
const skip =
  haproxyProgram === undefined &&
  'haproxy is not installed, so nothing was tested here; on Debian: apt-get install haproxy';

describe('the time limits of HAProxy fit the defaults of the gateway', () => {
  const { settings } = resolveSettings('serve', {}, {});
  const ofHaproxy = (name: string): number => {
    const [, number = '', unit = ''] = new RegExp(`^\\s*[^#]*\\b${name} (\\d+)(m?s)?\\b`, 'm').exec(shippedConfiguration) ?? []; // prettier-ignore
    assert.notEqual(number, '', name);
    return Number(number) * (unit === 's' ? 1_000 : 1);
  };

  test('HAProxy waits longer for a reply than the gateway waits for the backend', () => {
    assert.ok(ofHaproxy('timeout server') > settings.backendConnectTimeoutMs + settings.backendTimeoutMs + 1_000);
  });

  test('HAProxy waits longer for clients than the gateway does', () => {
    assert.ok(ofHaproxy('timeout client') > settings.requestTimeoutMs);
    assert.ok(ofHaproxy('timeout http-request') > settings.requestHeadersTimeoutMs);
  });

  test('HAProxy closes idle connections before the gateway does, and sends fewer calls at a time than IN_FLIGHT_MAX', () => {
    assert.ok(2 * ofHaproxy('pool-purge-delay') < settings.idleTimeoutMs);
    assert.ok(ofHaproxy('check .* maxconn') < settings.inFlightMax);
  });

  test('HAProxy detects a shutdown of the gateway within SHUTDOWN_DELAY_MS', () => {
    const [, delayMs] = /SHUTDOWN_DELAY_MS=(\d+)/.exec(shippedConfiguration) ?? [];
    assert.ok(ofHaproxy('inter') * ofHaproxy('fall') + 1_000 < Number(delayMs));
  });

  test('HAProxy tries another gateway before it marks an unreachable gateway as down', () =>
    assert.ok(ofHaproxy('timeout connect') <= ofHaproxy('inter') * ofHaproxy('fall')));

  test('HAProxy sends a call again only if the connection failed', () => {
    const lines = shippedConfiguration.split('\n').filter((line) => /^\s*(?:retry-on|option redispatch|http-request .*retry)/.test(line)); // prettier-ignore
    const trimmed = lines.map((line) => line.trim());
    assert.deepEqual(trimmed, ['retry-on conn-failure', 'option redispatch 1']);
  });
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
  beforeEach(() => {
    for (const gateway of gateways) {
      gateway.reset();
      gateway.answers(answer('[]'));
    }
  });
  after(async () => {
    await haproxy[Symbol.asyncDispose]();
    await Promise.all([...gateways, admin].map((each) => each.stop()));
  });
  const timesOf = (marker: string): number =>
    gateways.flatMap(({ requests }) => requests).filter((request) => request.header('x-request-id') === marker).length;
  const send = (client: RawClient, method: string, marker: string): void =>
    client.send(requestBytes(method, '/api/work-items', { headers: [['X-Request-Id', marker]], body: '{}' }));

  for (const method of ['GET', 'POST']) {
    test(`${method} gets 502 and is sent once if it is the first call on its connection`, async () => {
      for (const gateway of gateways) gateway.answers(resetPeer());
      await using client = await RawClient.open(haproxy.port);
      send(client, method, `first-${method}`);
      assert.equal((await client.reply()).status, 502);
      assert.equal(timesOf(`first-${method}`), 1);
    });

    test(`${method} is sent once if it is a later call, and the connection closes without a reply`, async () => {
      await using client = await RawClient.open(haproxy.port);
      send(client, method, `before-${method}`);
      assert.equal((await client.reply()).status, 200);
      for (const gateway of gateways) gateway.answers(resetPeer());
      send(client, method, `later-${method}`);
      await client.closed();
      assert.equal(client.unread.length, 0);
      assert.equal(timesOf(`later-${method}`), 1);
    });
  }

  test('the log has a line with the request id for each failed call, and no line for other calls', async () => {
    await using client = await RawClient.open(haproxy.port);
    send(client, 'GET', 'goes-well');
    await client.reply();
    for (const gateway of gateways) gateway.answers(answer('{"error":"x"}', { status: 500 }));
    send(client, 'GET', 'goes-wrong');
    await client.reply();
    await poll(() => haproxy.lines().some((line) => line.includes('{goes-wrong}')), 'a line is there');
    assert.ok(!haproxy.lines().some((line) => line.includes('{goes-well}')));
  });
});

test('a reload of HAProxy closes an idle connection only after its next call', { skip }, async () => {
  await using gateway = await startCommand({ BACKEND_URL: backend.url });
  await using haproxy = await Haproxy.start(program, [gateway]);
  await using client = await RawClient.open(haproxy.port);
  assert.equal((await client.call('GET', '/api/work-items')).status, 200);
  haproxy.stopSoftly();
  await poll(() => isRefused(haproxy.port), 'HAProxy no longer listens');
  const last = await client.call('GET', '/api/work-items');
  assert.equal(last.status, 200);
  assert.equal(last.header('connection'), 'close');
  await client.closed();
});

/** Asserts an error in JSON, with the headers of D24 except `x-request-id`. */
function assertError(reply: Reply, status: number, error: string): void {
  const body = JSON.stringify({ error });
  assert.deepEqual([reply.status, reply.text], [status, body]);
  assert.deepEqual(
    sorted(reply.headers).filter((header) => header !== 'connection: close'),
    [
      'cache-control: no-store',
      `content-length: ${body.length}`,
      'content-type: application/json',
      'x-content-type-options: nosniff',
    ],
  );
}

describe('the errors of HAProxy are JSON of the fixed form [D66]', { skip }, () => {
  const unavailable = 'Service unavailable';

  test('if no gateway listens', async () => {
    const nobody = { port: await findFreePort(), adminPort: await findFreePort() };
    await using haproxy = await Haproxy.start(program, [nobody]);
    // The reply takes some seconds if HAProxy has not marked the gateway as down yet.
    assertError(await request(haproxy.port, 'GET', '/api/work-items'), 503, unavailable);
  });

  test('if a gateway resets its connection, or a request body becomes malformed', async (t) => {
    const [gateway, admin] = await Promise.all([ScriptedBackend.start(), ScriptedBackend.start()]);
    t.after(() => Promise.all([gateway.stop(), admin.stop()]));
    await using haproxy = await Haproxy.start(program, [{ port: gateway.port, adminPort: admin.port }]);
    gateway.answersOnce(resetPeer());
    assertError(await request(haproxy.port, 'GET', '/api/work-items'), 502, unavailable);
    const { promise: isSent, resolve: setSent } = Promise.withResolvers<undefined>();
    gateway.answersAtHead = () => setSent(undefined);
    await using client = await RawClient.open(haproxy.port);
    client.send('POST /api/work-items HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n');
    await isSent;
    client.send('no chunk\r\n');
    assertError(await client.reply(), 400, 'Bad request');
  });

  test('if the Ingress has no pod, or its pod does not answer', async (t) => {
    const pod = await ScriptedBackend.start();
    t.after(() => pod.stop());
    pod.answers(timeout);
    const manifest = readFileSync(join(import.meta.dirname, '../../deploy/kubernetes/ingress/ingress.yaml'), 'utf8');
    const { metadata } = parse(manifest) as { metadata: { annotations: Record<string, string> } };
    const snippet = metadata.annotations['haproxy.org/backend-config-snippet'] ?? '';
    assert.ok(snippet.includes('timeout server 40s'));
    for (const [port, status] of [
      [pod.port, 504],
      [await findFreePort(), 503],
    ] as const) {
      const own = await findFreePort();
      // The essential lines of the Ingress controller's configuration.
      const configuration = `defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend http
  bind 127.0.0.1:${own}
  default_backend pods
backend pods
${snippet.replace('timeout server 40s', 'timeout server 500ms').replaceAll(/^/gm, '  ')}
  server pod 127.0.0.1:${port}
`;
      await using haproxy = await Haproxy.startWith(program, configuration, own);
      assertError(await request(haproxy.port, 'GET', '/api/work-items'), status, unavailable);
    }
  });
});

describe('a gateway that accepts no more calls', { skip }, () => {
  /** Sends `count` creates at the same time, each on its own connection. Their request ids begin with `name`. */
  const create = (port: number, name: string, count: number): Promise<Reply[]> =>
    Promise.all(
      Array.from({ length: count }, async (_, index) => {
        await using client = await RawClient.open(port);
        const headers = [['X-Request-Id', `${name}-${index}`]] as const;
        client.send(requestBytes('POST', '/api/work-items', { headers, body: '{}' }));
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
      for (const reply of failed) assertError(reply, 502, 'Service unavailable');
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

  test('if a gateway is draining, its call in flight still gets a reply', async () => {
    await using gateway = await startCommand({ BACKEND_URL: backend.url, SHUTDOWN_DELAY_MS: '3000' });
    await using haproxy = await Haproxy.start(program, [gateway]);
    const { promise: opened, resolve: open } = Promise.withResolvers<undefined>();
    backend.answersOnce(behind({ opened }, answer('[]')));
    await using client = await RawClient.open(haproxy.port);
    client.send(requestBytes('GET', '/api/work-items'));
    await backend.nextRequest();
    gateway.signal('SIGTERM');
    await poll(
      async () => (await request(haproxy.port, 'GET', '/api/work-items')).status === 503,
      'HAProxy sends the gateway no more calls',
    );
    open(undefined);
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

describe('the variations of deploy/haproxy.cfg', { skip: skip || noOpenssl }, () => {
  test('TLS for clients, the PROXY protocol and TLS on the gateways keep the client address', async () => {
    using folder = new CertificateFolder();
    const authority = folder.authority('authority');
    const names = ['DNS:gateways.example.com'];
    const own = folder.issue(authority, 'gateway', { names });
    const forClients = folder.issue(authority, 'clients');
    await using gateway = await startCommand({
      BACKEND_URL: backend.url,
      TLS_CERT_FILE: own.certFile,
      TLS_KEY_FILE: own.keyFile,
      TRUSTED_PROXIES: '127.0.0.1',
    });
    const variations = {
      clientTls: { port: await findFreePort(), file: folder.write('both.pem', forClients.cert + forClients.key) },
      proxyProtocol: { port: await findFreePort() },
      gatewayTls: { file: authority.certFile },
    } satisfies Variations;
    await using haproxy = await Haproxy.start(program, [gateway], variations);

    const call = async (client: RawClient, marker: string): Promise<[Reply, unknown]> => {
      const reply = await client.call('GET', '/api/work-items', { headers: [['X-Request-Id', marker]] });
      const line = await gateway.log(({ requestId }) => requestId === marker, 'the line of the request');
      return [reply, line['client']];
    };
    {
      await using client = await RawClient.openSecure(variations.clientTls.port, {
        ca: authority.cert,
        servername: 'localhost',
      });
      const [{ status, text }] = await call(client, 'over-tls');
      assert.deepEqual([status, text], [200, '[]']);
    }
    {
      await using client = await RawClient.open(variations.proxyProtocol.port);
      client.send('PROXY TCP4 203.0.113.9 192.0.2.80 40000 80\r\n');
      const [{ status }, address] = await call(client, 'by-proxy');
      assert.deepEqual([status, address], [200, '203.0.113.9']);
    }
    {
      await using client = await RawClient.open(haproxy.port, '127.0.0.1', '127.0.0.2');
      const [{ status }, address] = await call(client, 'plain');
      assert.deepEqual([status, address], [200, '127.0.0.2']);
    }
  });

  test('a gateway with a certificate from another authority gets no call', async () => {
    using folder = new CertificateFolder();
    const own = folder.issue(folder.authority('other'), 'gateway', { names: ['DNS:gateways.example.com'] });
    await using gateway = await startCommand({
      BACKEND_URL: backend.url,
      TLS_CERT_FILE: own.certFile,
      TLS_KEY_FILE: own.keyFile,
    });
    const gatewayTls = { file: folder.authority('authority').certFile };
    await using haproxy = await Haproxy.start(program, [gateway], { gatewayTls });
    const before = backend.requests.length;
    await using client = await RawClient.open(haproxy.port);
    client.send(requestBytes('GET', '/api/work-items'));
    // The 503 comes after three retries, one second apart.
    assert.equal((await client.reply({ limitMs: 60_000 })).status, 503);
    assert.equal(backend.requests.length, before);
  });
});
