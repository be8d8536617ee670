// An issuer of tokens: its keys, a server that publishes them, and valid or invalid tokens.

import { constants, createHmac, generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { createServer, type RequestListener, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Issued } from './certificates.ts';

export const issuerName = 'https://issuer.example/';
export const audience = 'work-items';

type Json = Readonly<Record<string, unknown>>;

/** A key pair of the issuer. */
export interface Pair {
  /** Undefined if the issuer gives its keys no ids. */
  readonly kid: string | undefined;
  readonly alg: string;
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
  /** The public key's entry in a key set. */
  readonly jwk: Json;
}

export function createPair(kid: string | undefined, alg: string, bits = 2_048): Pair {
  const { publicKey, privateKey } = generate(alg, bits);
  const jwk = { ...publicKey.export({ format: 'jwk' }), kid, alg, use: 'sig' };
  return { kid, alg, publicKey, privateKey, jwk };
}

function generate(alg: string, bits: number) {
  if (alg.startsWith('Ed')) return generateKeyPairSync('ed25519');
  const namedCurve = { ES256: 'P-256', ES384: 'P-384', ES512: 'P-521' }[alg];
  if (namedCurve === undefined) return generateKeyPairSync('rsa', { modulusLength: bits });
  return generateKeyPairSync('ec', { namedCurve });
}

export function base64url(value: unknown): string {
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
}

/** Signs `input` with the algorithm `alg` and any key. */
export function signatureOf(alg: string, input: string, key: KeyObject | string | Buffer): string {
  const bytes = Buffer.from(input);
  const hash = `sha${alg.slice(-3)}`;
  if (alg.startsWith('HS')) return createHmac(hash, key).update(bytes).digest('base64url');
  const { RSA_PKCS1_PSS_PADDING: padding } = constants;
  const options = {
    key: key as KeyObject,
    ...(alg.startsWith('ES') && { dsaEncoding: 'ieee-p1363' as const }),
    // A salt as long as the digest.
    ...(alg.startsWith('PS') && { padding, saltLength: Number(alg.slice(-3)) / 8 }),
  };
  return sign(alg.startsWith('Ed') ? null : hash, bytes, options).toString('base64url');
}

/** A token with this header and these claims, as objects or texts, signed by `pair`. */
export function signToken(pair: Pair, header: Json | string, claims: Json | string, alg = pair.alg): string {
  const input = `${base64url(header)}.${base64url(claims)}`;
  return `${input}.${signatureOf(alg, input, pair.privateKey)}`;
}

/** Claims that are valid at `now` (ms). `more` adds and replaces claims; the value undefined removes a claim. */
export function claimsAt(now: number, more: Json = {}): Json {
  const seconds = Math.floor(now / 1_000);
  return { iss: issuerName, aud: audience, sub: 'ada', iat: seconds, exp: seconds + 600, ...more };
}

/** A token that is valid at `now` (ms). `more` changes its claims, `header` its header. */
export function goodToken(pair: Pair, now = Date.now(), more: Json = {}, header: Json = {}): string {
  return signToken(pair, { alg: pair.alg, kid: pair.kid, typ: 'at+jwt', ...header }, claimsAt(now, more));
}

export function keySetOf(...pairs: readonly Pair[]): string {
  return JSON.stringify({ keys: pairs.map(({ jwk }) => jwk) });
}

/** Serves a key set, over HTTPS if it has a certificate. */
export class KeyServer implements AsyncDisposable {
  /** The number of requests so far. */
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
    this.#server = tls ? createTlsServer(tls, listener) : createServer(listener);
    this.#origin = tls ? 'https://localhost' : 'http://127.0.0.1';
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

/** Returns a function that answers with `text`. */
export function sending(text: string, status = 200, headers: Record<string, string> = {}) {
  return (response: ServerResponse): void => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(text);
  };
}
