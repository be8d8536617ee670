// Runs HAProxy with the lines of docs/security.md, in which only addresses and files are replaced.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { codeBlock, replaceEach } from '../helpers/documents.ts';
import { findFreePort, Haproxy, haproxyProgram } from '../helpers/haproxy.ts';
import { noHttp2OfCommand } from '../helpers/http2-client.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';

const backend = await useBackend();
const program = haproxyProgram ?? '';
const skip =
  haproxyProgram === undefined
    ? 'haproxy is not installed, so nothing was tested here; on Debian: apt-get install haproxy'
    : noOpenssl;
const document = 'docs/security.md';
const path = '/api/work-items';

describe('HAProxy with the lines of docs/security.md', { skip }, () => {
  const folder = useCertificates();

  test('in front of a rate limit: each client has its own limit, whatever its headers claim', async () => {
    // The command's flags, as environment variables.
    const flags = Object.fromEntries(
      [...codeBlock(document, '--trusted-proxies').matchAll(/ --([a-z-]+) (\S+)/g)].map(([, name = '', value]) => [
        name.toUpperCase().replaceAll('-', '_'),
        value,
      ]),
    );
    assert.deepEqual([Object.keys(flags).join(), flags['RATE_LIMIT']], ['HOST,RATE_LIMIT,TRUSTED_PROXIES', '100/60s']);
    // The addresses of this machine and of HAProxy, not of the clients.
    const own = { HOST: '127.0.0.1', TRUSTED_PROXIES: '127.0.0.1/32' };
    await using gateway = await startCommand({ BACKEND_URL: backend.url, ...flags, ...own });
    const port = await findFreePort();
    const authority = folder.authority('for-clients');
    const { cert, key } = folder.issue(authority, 'items');
    const configuration = replaceEach(codeBlock(document, 'option forwardfor'), {
      ' :443 ': ` 127.0.0.1:${port} `,
      '/etc/haproxy/items.pem': folder.write('items-both.pem', cert + key),
      ' 10.0.0.11:3000': ` 127.0.0.1:${gateway.port}`,
    });
    await using haproxy = await Haproxy.startWith(program, configuration, port);
    const open = (localAddress: string) => {
      const options = { ca: authority.cert, servername: 'localhost', localAddress };
      return RawClient.openSecure(haproxy.port, options);
    };
    await using one = await open('127.0.0.2');
    await using two = await open('127.0.0.3');
    for (let index = 1; index <= 101; index += 1) {
      const headers = [['X-Request-Id', `call-${index}`]] as const;
      assert.equal((await one.call('GET', path, { headers })).status, index <= 100 ? 200 : 429);
    }
    const claims = { headers: [['X-Forwarded-For', '203.0.113.9, 127.0.0.1']] as const };
    assert.equal((await one.call('GET', path, claims)).status, 429);
    assert.equal((await two.call('GET', path, claims)).status, 200);
    const line = await gateway.log(({ requestId }) => requestId === 'call-101', 'the line of the refused call');
    assert.deepEqual([line['client'], line['outcome']], ['127.0.0.2', 'rate-limited']);
  });

  test('HAProxy calls the gateway over HTTP/2 and verifies its name', { skip: noHttp2OfCommand }, async () => {
    const authority = folder.authority('for-gateways');
    const { certFile, keyFile } = folder.issue(authority, 'gateway', { names: ['DNS:items.internal'] });
    const tls = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, HTTP2: 'true' };
    await using gateway = await startCommand({ BACKEND_URL: backend.url, ...tls });
    const port = await findFreePort();
    const [defaults = ''] = codeBlock(document, 'option forwardfor').split('frontend');
    const frontend = `frontend clients\n    bind 127.0.0.1:${port}\n    default_backend gateways\n\n`;
    const backendLines = replaceEach(codeBlock(document, 'alpn h2,http/1.1'), {
      ' 10.0.0.5:3000 ': ` 127.0.0.1:${gateway.port} `,
      ' ca.pem ': ` ${authority.certFile} `,
    });
    await using haproxy = await Haproxy.startWith(program, defaults + frontend + backendLines, port);
    await using client = await RawClient.open(haproxy.port);
    // The metrics can be a second old. They show the connection anyway, because HAProxy keeps it for some seconds.
    await poll(async () => {
      const { status, text } = await client.call('GET', path);
      assert.deepEqual([status, text], [200, '[]']);
      return /^work_item_gateway_http2_connections [1-9]/m.test(await gateway.metrics());
    }, 'the gateway has an HTTP/2 connection');
  });
});
