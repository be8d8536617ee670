// The issuer of tokens. Its keys and tokens are real, and the gateway's own guard verifies them. The address of the keys is
// simulated. Importing this file replaces `http.request`, and gives verifications of signatures a virtual duration.

import { createPrivateKey, createPublicKey, KeyObject, sign, verify, type webcrypto } from 'node:crypto';
import { EventEmitter } from 'node:events';
import http from 'node:http';
import { Readable } from 'node:stream';
import { loop } from './event-loop.ts';
import type { Plan, RequestPlan } from './plan.ts';

type Fetch = NonNullable<Plan['fetches']>[number];

/** Set by each world. `next` is called for each fetch of keys, `onKeys` when it has its result. */
export const issuer = {
  next: (): Fetch => ({ result: 'failed', afterMs: 0, hasSecond: false }),
  onKeys: (fetch: Fetch): unknown => fetch,
};

export const tokenSettings = {
  authIssuer: 'https://issuer.test',
  authAudience: ['gateway'],
  authJwksUrl: 'http://issuer.test/keys',
  authAlgorithms: ['EdDSA'],
  authTokenType: 'any',
  authJwksRefreshMs: 2_000,
} as const;

const privateKeys = [1, 2].map((byte) => {
  const der = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), Buffer.alloc(32, byte)]);
  return createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
});
const jwks = privateKeys.map((key, index) => ({
  ...createPublicKey(key).export({ format: 'jwk' }),
  kid: String(index),
}));
const base64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
const [first = '', second = ''] = privateKeys.map((key, index) => {
  const claims = { iss: tokenSettings.authIssuer, aud: 'gateway', exp: 4_000_000_000 };
  const signed = `${base64({ alg: 'EdDSA', kid: String(index) })}.${base64(claims)}`;
  return `${signed}.${sign(null, Buffer.from(signed), key).toString('base64url')}`;
});
export const tokens: Readonly<Record<RequestPlan['token'], string | undefined>> = {
  first,
  second,
  // The signature of another token.
  forged: first.replace(/[^.]+$/, /[^.]+$/.exec(second)?.[0] ?? ''),
  none: undefined,
};

const cryptoKeys = new Map(
  privateKeys.map((key, index) => {
    const usable = createPublicKey(key).toCryptoKey({ name: 'Ed25519' }, true, ['verify']);
    return [jwks[index]?.x, usable] as const;
  }),
);
Object.assign(globalThis.crypto.subtle, {
  importKey: (_format: string, { x }: { x: string }) => Promise.resolve(cryptoKeys.get(x)),
  verify: (_algorithm: unknown, key: webcrypto.CryptoKey, signature: Uint8Array, data: Uint8Array) =>
    new Promise((resolve) => loop.after(1, () => resolve(verify(null, data, KeyObject.from(key), signature)))),
});

Object.assign(http, {
  request: () => {
    const request = new EventEmitter();
    const fetch = issuer.next();
    if (fetch.result === 'never') return request;
    loop.after(fetch.afterMs, () => {
      issuer.onKeys(fetch);
      if (fetch.result === 'failed') {
        request.emit('error', new Error('refused'));
      } else {
        const answer = Readable.from([Buffer.from(JSON.stringify({ keys: jwks.slice(0, fetch.hasSecond ? 2 : 1) }))]);
        request.emit('response', Object.assign(answer, { statusCode: 200, headers: {} }));
      }
    });
    return request;
  },
});
