// Settings of gateways with tokens or TLS, and the tokens and the CA for their clients.
import { CertificateFolder } from '../test/helpers/certificates.ts';
import { audience, createPair, goodToken, issuerName, keySetOf } from '../test/helpers/issuer.ts';
import { join } from 'node:path';
import { writeFileSync } from 'node:fs';

export interface Tokens {
  tokens: string[];
  /** A token that is signed with another key, so that a gateway must refuse it. */
  forged: string;
  settings: Record<string, string>;
}

/** Makes `count` tokens signed with RS256, and writes the issuer's keys into `folder`. */
export function makeTokens(folder: string, count: number): Tokens {
  const pair = createPair('bench', 'RS256');
  const file = join(folder, 'jwks.json');
  writeFileSync(file, keySetOf(pair));
  const sign = (signer: typeof pair, index: number): string =>
    goodToken(signer, Date.now(), { sub: `client-${index}`, exp: Math.floor(Date.now() / 1_000) + 3_600 });
  return {
    tokens: Array.from({ length: count }, (_, index) => sign(pair, index)),
    forged: sign(createPair('bench', 'RS256'), 0),
    settings: { AUTH_ISSUER: issuerName, AUTH_AUDIENCE: audience, AUTH_JWKS_FILE: file },
  };
}

/** A temporary certificate for 127.0.0.1: the gateway's settings, and the CA as PEM. */
export class Certificate implements Disposable {
  readonly #folder = new CertificateFolder();
  readonly ca: string;
  readonly settings: Record<string, string>;

  constructor() {
    const authority = this.#folder.authority('authority');
    const { certFile, keyFile } = this.#folder.issue(authority, 'gateway');
    this.ca = authority.cert;
    this.settings = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile };
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}
