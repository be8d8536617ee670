// An issuer of tokens in the test's process: its keys, the set of them that it publishes, over HTTP too, and tokens that are
// right or wrong in any way a test wants.

import { createHmac, sign, type KeyObject, generateKeyPairSync } from 'node:crypto';
import { createServer, type RequestListener, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Issued } from './certificates.ts';

export const issuerName = 'https://issuer.example/';
export const audience = 'work-items';

type Json = Readonly<Record<string, unknown>>;

/** A key pair of the issuer. */
export interface Pair {
  readonly kid: string;
  readonly alg: string;
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
  /** As it stands in a key set. */
  readonly jwk: Json;
}

export function createPair(kid: string, alg: string, bits = 2_048): Pair {
  const { publicKey, privateKey } = generate(alg, bits);
  return {
    kid,
    alg,
    publicKey,
    privateKey,
    jwk: { ...publicKey.export({ format: 'jwk' }), kid, alg, use: 'sig' },
  };
}

function generate(alg: string, bits: number) {
  switch (alg) {
    case 'ES256':
      return generateKeyPairSync('ec', { namedCurve: 'P-256' });
    case 'ES384':
      return generateKeyPairSync('ec', { namedCurve: 'P-384' });
    case 'ES512':
      return generateKeyPairSync('ec', { namedCurve: 'P-521' });
    case 'EdDSA':
    case 'Ed25519':
      return generateKeyPairSync('ed25519');
    default:
      return generateKeyPairSync('rsa', { modulusLength: bits });
  }
}

export function base64url(value: unknown): string {
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
}

/** The signature of `input` by the algorithm `alg`, whatever the key is. */
export function signatureOf(alg: string, input: string, key: KeyObject | string | Buffer): string {
  const bytes = Buffer.from(input);
  const hash = `sha${alg.slice(-3)}`;
  if (alg.startsWith('HS')) {
    return createHmac(hash, key).update(bytes).digest('base64url');
  }
  const privateKey = key as KeyObject;
  if (alg.startsWith('Ed')) return sign(null, bytes, privateKey).toString('base64url');
  if (alg.startsWith('ES'))
    return sign(hash, bytes, { key: privateKey, dsaEncoding: 'ieee-p1363' }).toString('base64url');
  if (alg.startsWith('PS')) {
    // RSA_PKCS1_PSS_PADDING, and a salt as long as the digest.
    const options = { key: privateKey, padding: 6, saltLength: Number(alg.slice(-3)) / 8 };
    return sign(hash, bytes, options).toString('base64url');
  }
  return sign(hash, bytes, privateKey).toString('base64url');
}

/** A token with this header and these claims, or with those texts, signed by `pair`. */
export function signToken(pair: Pair, header: Json | string, claims: Json | string, alg = pair.alg): string {
  const input = `${base64url(header)}.${base64url(claims)}`;
  return `${input}.${signatureOf(alg, input, pair.privateKey)}`;
}

/** Claims that are right at the time `now` (milliseconds), with `more`; undefined there leaves one out. */
export function claimsAt(now: number, more: Json = {}): Json {
  const seconds = Math.floor(now / 1_000);
  return { iss: issuerName, aud: audience, sub: 'ada', iat: seconds, exp: seconds + 600, ...more };
}

/** A token that is right at the time `now`, but for `more`. */
export function goodToken(pair: Pair, now = Date.now(), more: Json = {}, header: Json = {}): string {
  return signToken(pair, { alg: pair.alg, kid: pair.kid, typ: 'at+jwt', ...header }, claimsAt(now, more));
}

export function keySetOf(...pairs: readonly Pair[]): string {
  return JSON.stringify({ keys: pairs.map(({ jwk }) => jwk) });
}

/** Serves a key set over HTTP, or with a certificate over HTTPS, as its `respond` says. */
export class KeyServer implements AsyncDisposable {
  /** Requests so far. */
  count = 0;
  respond: (response: ServerResponse) => void;
  readonly #server;
  readonly #origin: string;

  private constructor(text: string, tls: Pick<Issued, 'cert' | 'key'> | undefined) {
    this.respond = sending(text);
    const listener: RequestListener = (_request, response) => {
      this.count += 1;
      this.respond(response);
    };
    this.#server = tls === undefined ? createServer(listener) : createTlsServer(tls, listener);
    this.#origin = tls === undefined ? 'http://127.0.0.1' : 'https://localhost';
  }

  static async start(text: string, port = 0, tls?: Pick<Issued, 'cert' | 'key'>): Promise<KeyServer> {
    const server = new KeyServer(text, tls);
    await new Promise<void>((resolve) => server.#server.listen(port, '127.0.0.1', resolve));
    return server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `${this.#origin}:${this.port}/keys`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** Answers with `text`. */
export function sending(text: string, status = 200, headers: Record<string, string> = {}) {
  return (response: ServerResponse): void => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(text);
  };
}
