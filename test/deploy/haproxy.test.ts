// deploy/haproxy.cfg by itself, with a real HAProxy: its variations, its time limits, and what it never sends twice. Gateways
// behind it that are restarted are in ../process/rolling-restart.test.ts, a whole fleet in ../fleet.

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { resolveSettings } from '../../src/process/settings.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import {
  findFreePort,
  Haproxy,
  haproxyProgram,
  shippedConfiguration,
  type Variations,
} from '../helpers/haproxy.ts';
import { RawClient, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer, resetPeer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand } from '../helpers/targets.ts';

const program = haproxyProgram ?? '';
const skip =
  haproxyProgram === undefined &&
  'haproxy is not installed, so nothing was tested here; on Debian: apt-get install haproxy';

describe('its time limits and bounds fit the defaults of the gateway', () => {
  const { settings } = resolveSettings('serve', {}, {});
  const ofHaproxy = (name: string): number => {
    const [, number = '', unit = ''] = new RegExp(`^\\s*[^#]*\\b${name} (\\d+)(m?s)?\\b`, 'm').exec(shippedConfiguration) ?? []; // prettier-ignore
    assert.notEqual(number, '', name);
    return Number(number) * (unit === 's' ? 1_000 : 1);
  };

  test('it waits longer for a reply than the gateway for the backend', () => {
    assert.ok(
      ofHaproxy('timeout server') > settings.backendConnectTimeoutMs + settings.backendTimeoutMs + 1_000,
    );
  });

  test('it waits longer for clients than the gateway does', () => {
    assert.ok(ofHaproxy('timeout client') > settings.requestTimeoutMs);
    assert.ok(ofHaproxy('timeout http-request') > settings.requestHeadersTimeoutMs);
  });

  test('it closes idle connections before the gateway does, and sends it no more calls than it takes', () => {
    assert.ok(2 * ofHaproxy('pool-purge-delay') < settings.idleTimeoutMs);
    assert.ok(ofHaproxy('check .* maxconn') < settings.inFlightMax);
  });

  test('it knows of a shutdown before the delay is over that it asks for', () => {
    const [, delayMs] = /SHUTDOWN_DELAY_MS=(\d+)/.exec(shippedConfiguration) ?? [];
    assert.ok(ofHaproxy('inter') * ofHaproxy('fall') + 1_000 < Number(delayMs));
  });

  test('it repeats a call only where no connection was made', () => {
    const lines = shippedConfiguration.split('\n').filter((line) => /^\s*(?:retry-on|option redispatch|http-request .*retry)/.test(line)); // prettier-ignore
    assert.deepEqual(
      lines.map((line) => line.trim()),
      ['retry-on conn-failure', 'option redispatch 1'],
    );
  });
});

describe('what a gateway that dies has taken is not sent to another one', { skip }, () => {
  // In place of gateways: they note what comes, and die when they are told to. Both are always ready.
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
    gateways
      .flatMap(({ requests }) => requests)
      .filter((request) => request.header('x-request-id') === marker).length;
  const send = (client: RawClient, method: string, marker: string): void => {
    client.send(requestBytes(method, '/api/work-items', { headers: [['X-Request-Id', marker]], body: '{}' }));
  };

  for (const method of ['GET', 'POST', 'PUT', 'DELETE']) {
    test(`${method}, a client's first call: 502, and it was sent once`, async () => {
      for (const gateway of gateways) gateway.answers(resetPeer());
      await using client = await RawClient.open(haproxy.port);
      send(client, method, `first-${method}`);
      assert.equal((await client.reply()).status, 502);
      assert.equal(timesOf(`first-${method}`), 1);
    });

    test(`${method}, a later call on a connection that was kept: no reply, and it was sent once`, async () => {
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

  test('its log has a line for a call that failed, with the request id, and none for others', async () => {
    await using client = await RawClient.open(haproxy.port);
    send(client, 'GET', 'goes-well');
    await client.reply();
    for (const gateway of gateways) gateway.answers(answer('{"error":"x"}', { status: 500 }));
    send(client, 'GET', 'goes-wrong');
    await client.reply();
    await poll(() => haproxy.lines().some((line) => line.includes('{goes-wrong}')), 'the line is there');
    assert.ok(!haproxy.lines().some((line) => line.includes('{goes-well}')));
  });
});

describe('its variations', { skip: skip || noOpenssl }, () => {
  let backend: ScriptedBackend;
  before(async () => {
    backend = await ScriptedBackend.start();
    backend.answers(answer('[]'));
  });
  after(() => backend.stop());

  test('TLS for clients, the PROXY protocol, and TLS on the gateways; who the client is, is known', async () => {
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
      clientTls: {
        port: await findFreePort(),
        file: folder.write('both.pem', forClients.cert + forClients.key),
      },
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

  test('a gateway with a certificate of another authority is given no call', async () => {
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
    // After three more tries, a second apart.
    assert.equal((await client.reply({ limitMs: 60_000 })).status, 503);
    assert.equal(backend.requests.length, before);
  });
});
