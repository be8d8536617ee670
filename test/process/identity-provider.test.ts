// A real identity provider: access tokens, new keys, an outage and its end [D41 to D44].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { Provider, type ResourceServer } from 'oidc-provider';
import { logged, startCommand } from '../helpers/command.ts';
import { createPair, type Pair } from '../helpers/issuer.ts';
import { request } from '../helpers/raw-client.ts';
import { useBackend } from '../helpers/suites.ts';
import { assertInvalidToken, assertNoScope, assertNoToken, bearer } from '../helpers/tokens.ts';

const audience = 'https://items.example.com';
const backend = await useBackend();

/** An identity provider. `serve` makes it serve with the given keys, also after an outage; `stop` begins an outage. */
async function startProvider() {
  let listener: ReturnType<Provider['callback']> | undefined;
  const server = createServer((incoming, outgoing) => {
    if (listener === undefined) incoming.socket.destroy();
    else void listener(incoming, outgoing);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const host = `127.0.0.1:${port}`;
  return {
    port,
    host,
    serve: (alg: 'RS256' | 'ES256', ...pairs: readonly Pair[]): void => {
      const info: ResourceServer = {
        scope: 'items.read items.write',
        audience,
        accessTokenTTL: 600,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg } },
      };
      listener = new Provider(`http://${host}`, {
        clients: [
          {
            client_id: 'program',
            client_secret: 'secret',
            grant_types: ['client_credentials'],
            redirect_uris: [],
            response_types: [],
            id_token_signed_response_alg: alg,
          },
        ],
        scopes: ['items.read', 'items.write'],
        jwks: {
          keys: pairs.map(({ privateKey, kid, alg: own }) => ({
            ...privateKey.export({ format: 'jwk' }),
            ...{ kid, alg: own, use: 'sig' },
          })),
        },
        features: {
          devInteractions: { enabled: false },
          clientCredentials: { enabled: true },
          resourceIndicators: { enabled: true, getResourceServerInfo: () => info },
        },
      }).callback();
    },
    stop: (): void => {
      listener = undefined;
    },
    /** An access token for the work items. */
    issue: async (scope: string): Promise<string> => {
      const reply = await request(port, 'POST', '/token', {
        headers: [
          ['Host', host],
          ['Content-Type', 'application/x-www-form-urlencoded'],
          ['Authorization', `Basic ${Buffer.from('program:secret').toString('base64')}`],
        ],
        body: new URLSearchParams({ grant_type: 'client_credentials', resource: audience, scope }).toString(),
      });
      const { access_token: token } = JSON.parse(reply.text) as { access_token?: string };
      assert.ok(token, reply.text);
      return token;
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await once(server.close(), 'close');
    },
  };
}

test('tokens of a real provider and their scopes are verified, also after a change of keys and during an outage', async () => {
  const first = createPair('first', 'RS256');
  const second = createPair('second', 'ES256');
  await using provider = await startProvider();
  provider.serve('RS256', first);
  const headers = [['Host', provider.host]] as const;
  const discovery = await request(provider.port, 'GET', '/.well-known/openid-configuration', { headers });
  const { issuer, jwks_uri: keysUrl } = JSON.parse(discovery.text) as { issuer: string; jwks_uri: string };
  await using command = await startCommand({
    BACKEND_URL: backend.url,
    AUTH_ISSUER: issuer,
    AUTH_AUDIENCE: audience,
    AUTH_JWKS_URL: keysUrl,
    AUTH_TOKEN_TYPE: 'at+jwt',
    AUTH_SCOPES: 'list=items.read,delete=items.write',
    AUTH_JWKS_REFRESH_MS: '1000',
    BACKEND_IDENTITY_HEADER: 'x-user',
  });
  const call = (token: string, method = 'GET', path = '/api/work-items') =>
    command.call(method, path, { headers: [bearer(token)] });
  const reader = await provider.issue('items.read');
  assertNoToken(await command.call('GET', '/api/work-items'));
  assert.equal((await call(reader)).status, 200);
  assert.equal(backend.requests.at(-1)?.header('x-user'), 'program');
  assertNoScope(await call(reader, 'DELETE', '/api/work-items/5'), 'items.write');
  const writer = await provider.issue('items.read items.write');
  assert.equal((await call(writer, 'DELETE', '/api/work-items/5')).status, 200);

  // The provider signs with a new key and still publishes the old key: tokens of both keys are valid.
  provider.serve('ES256', second, first);
  assert.equal((await call(await provider.issue('items.read'))).status, 200);
  assert.equal((await call(reader)).status, 200);

  // During an outage, tokens of known keys stay valid.
  provider.stop();
  await logged(command, 'the keys of the issuer cannot be fetched');
  assert.equal((await call(reader)).status, 200);

  // The provider returns without the old key: tokens of that key are invalid.
  provider.serve('ES256', second);
  const late = await provider.issue('items.read');
  await logged(command, 'the keys of the issuer can be fetched again');
  assertInvalidToken(await call(reader));
  assert.equal((await call(late)).status, 200);
});
