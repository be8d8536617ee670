// Certificates and keys are replaced under load: no valid call fails, and an old key is refused after the next refresh
// of the keys. D37, D44.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { renameSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { CertificateFolder, noOpenssl, type Issued } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer, sending } from '../helpers/issuer.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { bearer } from '../helpers/tokens.ts';

// `npm run rotation` makes more calls. npm sets `npm_lifecycle_event` to the script's name.
const isWhole = process.env['npm_lifecycle_event'] === 'rotation';
const calls = isWhole ? 100_000 : 5_000;
const certificates = isWhole ? 10 : 4;
const keys = isWhole ? 5 : 2;
const connections = 16;
/** Number of calls on a connection before its client opens a new connection. */
const callsOfConnection = 200;
const refreshMs = 1_000;
const reloadMs = 100;
const limitMs = 240_000;
const path = '/api/work-items/7';

async function startBackend() {
  const server = createServer((incoming, outgoing) => incoming.resume().on('end', () => outgoing.end('{"id":7}')));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await once(server.close(), 'close');
    },
  };
}

test(
  `while ${certificates} certificates and ${keys} keys are replaced, none of ${calls} calls fails [D37, D44]`,
  { skip: noOpenssl, timeout: limitMs },
  async (t) => {
    using folder = new CertificateFolder();
    const authority = folder.authority('authority');
    const issued = Array.from({ length: certificates + 1 }, (_, index) =>
      folder.issue(authority, `certificate-${index}`),
    );
    const pairs = Array.from({ length: keys + 1 }, (_, index) => createPair(`key-${index}`, 'ES256'));
    const place = { cert: folder.file('in-force.pem'), key: folder.file('in-force-key.pem') };
    const put = ({ cert, key }: Issued): void => {
      // Each file is replaced atomically. Between the two steps, the key does not match the certificate.
      for (const [file, text] of [
        [place.cert, cert],
        [place.key, key],
      ] as const) {
        // prettier-ignore
        renameSync(folder.write('next.pem', text), file);
      }
    };
    const at = <T>(list: readonly T[], index: number): T => {
      const found = list[index];
      assert.ok(found !== undefined);
      return found;
    };
    put(at(issued, 0));
    await using backend = await startBackend();
    await using issuer = await KeyServer.start(keySetOf(at(pairs, 0)));
    await using gateway = await startCommand({
      BACKEND_URL: backend.url,
      TLS_CERT_FILE: place.cert,
      TLS_KEY_FILE: place.key,
      TLS_RELOAD_MS: String(reloadMs),
      AUTH_ISSUER: issuerName,
      AUTH_AUDIENCE: audience,
      AUTH_JWKS_URL: issuer.url,
      AUTH_JWKS_REFRESH_MS: String(refreshMs),
      LOG_LEVEL: 'error',
    });
    const open = (): Promise<RawClient> =>
      RawClient.openSecure(gateway.port, { ca: authority.cert, servername: 'localhost' });
    const statusWith = async (token: string): Promise<number> => {
      await using client = await open();
      return (await client.call('GET', path, { headers: [bearer(token)] })).status;
    };
    await poll(async () => (await statusWith(goodToken(at(pairs, 0)))) === 200, 'the keys are fetched');

    // Each caller makes its own token, and a new token for each new key.
    let key = at(pairs, 0);
    let made = 0;
    const failures: string[] = [];
    const load = { isOver: false };
    const startedAt = performance.now();
    const callOn = async (client: RawClient, caller: number): Promise<void> => {
      let signer: typeof key | undefined;
      let token = '';
      for (let index = 0; index < callsOfConnection; index += 1) {
        if (signer !== key) {
          signer = key;
          token = goodToken(key, Date.now(), { sub: `caller-${caller}` });
        }
        const isRead = index % 2 === 0;
        const { status } = await client.call(isRead ? 'GET' : 'PUT', path, {
          headers: [bearer(token)],
          ...(!isRead && { body: '{"title":"Paint the fence"}' }),
        });
        if (status !== 200) failures.push(`${status} with ${signer.kid}`);
        made += 1;
      }
    };
    const callers = Array.from({ length: connections }, async (_, caller) => {
      while (!load.isOver) {
        try {
          await using client = await open();
          await callOn(client, caller);
        } catch (error) {
          failures.push(String(error));
        }
      }
    });

    const replaceCertificates = async (): Promise<void> => {
      for (const [index, certificate] of issued.slice(1).entries()) {
        await poll(() => made >= (calls / (certificates + 1)) * (index + 1), 'calls are made', limitMs);
        put(certificate);
        await poll(async () => {
          await using client = await open();
          return client.secureSocket.getPeerX509Certificate()?.subject === `CN=certificate-${index + 1}`;
        }, 'the new certificate is shown');
      }
    };
    // Does what an issuer does: publishes a new key, then signs with the new key, then removes the old key.
    let longestMs = 0;
    const replaceKeys = async (): Promise<void> => {
      for (const [index, next] of pairs.slice(1).entries()) {
        await poll(() => made >= (calls / (keys + 1)) * (index + 1), 'calls are made', limitMs);
        const old = key;
        const remembered = goodToken(old);
        assert.equal(await statusWith(remembered), 200);
        issuer.respond = sending(keySetOf(old, next));
        const fetched = issuer.count;
        await poll(() => issuer.count >= fetched + 2, 'the new key is fetched', 3 * refreshMs + 10_000);
        key = next;
        // After four more calls for each caller, no call with the old key is in flight.
        const then = made;
        await poll(() => made >= then + 4 * connections, 'all callers use the new key', limitMs);
        const goneAt = performance.now();
        issuer.respond = sending(keySetOf(next));
        await poll(async () => (await statusWith(remembered)) === 401, 'the old key is refused', refreshMs + 2_000);
        longestMs = Math.max(longestMs, performance.now() - goneAt);
        assert.equal(await statusWith(goodToken(old)), 401);
      }
    };
    try {
      await Promise.all([replaceCertificates(), replaceKeys()]);
      await poll(() => made >= calls, 'all calls are made', limitMs);
    } finally {
      load.isOver = true;
      await Promise.all(callers);
    }
    const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
    t.diagnostic(`${made} calls in ${seconds} s; an old key was refused after ${longestMs.toFixed(0)} ms at most`);
    assert.deepEqual(failures, [], `${made} calls were made`);
    assert.equal(gateway.logs.filter(({ msg }) => msg !== 'new certificate files refused: the previous certificates stay in force').filter(({ level }) => level === 'error').length, 0, gateway.output); // prettier-ignore
  },
);
