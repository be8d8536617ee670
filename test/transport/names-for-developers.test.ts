// Errors for embedders name options of `createGatewayServer`, not variables of the command.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import { createGatewayServer } from '../../packages/core/hosts/index.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { serveInProcess } from '../helpers/in-process.ts';

const aVariable = /[A-Z]+_[A-Z]+|--\w/;

test('a server listens on localhost by default; the error for a foreign address names the arguments of listen', async () => {
  const server = createGatewayServer({ backendUrl: 'http://localhost:1' });
  await assert.rejects(server.listen(0, '192.0.2.1'), /its own addresses with listen\(port, host\)$/);
  const { port, url } = await server.listen(0);
  assert.equal(url, `http://localhost:${port}`);
  await server.close();
});

test('a port that is in use: the error names the arguments of listen', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const server = createGatewayServer({ backendUrl: 'http://localhost:1' });
  const { port } = taken.address() as AddressInfo;
  await assert.rejects(server.listen(port, '127.0.0.1'), (error: Error) => {
    assert.equal(
      error.message,
      `port ${port} on 127.0.0.1 is in use: stop the program that uses it, or choose another port with listen(port, host)`,
    );
    return true;
  });
  taken.close();
});

test('an untrusted backend: the cause names backendTls.ca', { skip: noOpenssl }, async () => {
  using folder = new CertificateFolder();
  const { cert, key } = folder.issue(folder.authority('authority'), 'server');
  const backend = createTlsServer({ cert, key }).listen(0, '127.0.0.1');
  await once(backend, 'listening');
  const { port } = backend.address() as AddressInfo;
  await using server = await serveInProcess({ backendUrl: `https://127.0.0.1:${port}` });
  await using client = await server.connect();
  assert.equal((await client.call('GET', '/api/work-items/5')).status, 500);
  const cause = String(server.told.ended[0]?.cause);
  assert.match(cause, /: set backendTls\.ca to the authorities to trust$/);
  assert.doesNotMatch(cause, aVariable);
  backend.close();
});
