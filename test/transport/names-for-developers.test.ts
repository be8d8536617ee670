// What an embedder of the gateway is told to change: options of its own, and no variable of the command's.

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

test('a port that is in use: the arguments of listen', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const server = createGatewayServer({ backendUrl: 'http://localhost:1' });
  const { port } = taken.address() as AddressInfo;
  await assert.rejects(server.listen(port, '127.0.0.1'), (error: Error) => {
    assert.equal(
      error.message,
      `port ${port} on 127.0.0.1 is in use: stop the program that has it, or choose another port with listen(port, host)`,
    );
    return true;
  });
  taken.close();
});

test('a backend whose certificate is not trusted: backendTls.ca', { skip: noOpenssl }, async () => {
  using folder = new CertificateFolder();
  const { cert, key } = folder.issue(folder.authority('authority'), 'server');
  const backend = createTlsServer({ cert, key }).listen(0, '127.0.0.1');
  await once(backend, 'listening');
  const { port } = backend.address() as AddressInfo;
  await using server = await serveInProcess({ backendUrl: `https://127.0.0.1:${port}` });
  await using client = await server.connect();
  assert.equal((await client.call('GET', '/api/work-items/5')).status, 500);
  const cause = String(server.told.ended[0]?.cause);
  assert.match(cause, /: backendTls\.ca has the authorities to trust$/);
  assert.doesNotMatch(cause, aVariable);
  backend.close();
});
