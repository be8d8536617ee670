// Temporary authorities and certificates, created with the machine's `openssl`: Node cannot create X.509 certificates.

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The `skip` option of tests that need certificates: false, or the reason to skip. */
export const noOpenssl: string | false =
  spawnSync('openssl', ['version']).status === 0 ? false : 'there is no openssl on this machine';

export interface Issued {
  readonly certFile: string;
  readonly keyFile: string;
  readonly cert: string;
  readonly key: string;
}

export interface IssueOptions {
  /** For example `DNS:localhost`. */
  readonly names?: readonly string[];
  /** Days until the certificate expires; a negative number makes an expired certificate. */
  readonly days?: number;
  readonly isAuthority?: boolean;
}

const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** A temporary folder of certificates. */
export class CertificateFolder implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), 'work-item-gateway-tls-'));
  #count = 0;

  /** A path in the folder. */
  file(name: string): string {
    return join(this.path, name);
  }

  write(name: string, text: string): string {
    writeFileSync(this.file(name), text);
    return this.file(name);
  }

  /** A self-signed authority. */
  authority(name: string): Issued {
    const issued = this.#name(name);
    openssl([
      ...['req', '-x509', ...newKey, '-keyout', issued.keyFile, '-out', issued.certFile],
      ...['-subj', `/CN=${name}`, '-days', '30', '-addext', 'keyUsage=critical,keyCertSign,cRLSign'],
    ]);
    return this.#read(issued);
  }

  /** A certificate issued by `authority`; default names: localhost and 127.0.0.1. */
  issue(authority: Issued, name: string, options: IssueOptions = {}): Issued {
    const { names = ['DNS:localhost', 'IP:127.0.0.1'], days = 30, isAuthority = false } = options;
    const issued = this.#name(name);
    const request = this.file(`${name}-request.pem`);
    const extensions = this.write(
      `${name}-extensions.cnf`,
      `subjectAltName=${names.join(',')}\nbasicConstraints=critical,CA:${isAuthority ? 'TRUE' : 'FALSE'}\n`,
    );
    openssl(['req', '-new', ...newKey, '-keyout', issued.keyFile, '-out', request, '-subj', `/CN=${name}`]);
    openssl([
      ...['x509', '-req', '-in', request, '-CA', authority.certFile, '-CAkey', authority.keyFile],
      ...['-set_serial', String(Date.now() * 1_000 + (this.#count += 1)), '-days', String(days)],
      ...['-extfile', extensions, '-out', issued.certFile],
    ]);
    return this.#read(issued);
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }

  #name(name: string): Pick<Issued, 'certFile' | 'keyFile'> {
    return { certFile: this.file(`${name}.pem`), keyFile: this.file(`${name}-key.pem`) };
  }

  #read({ certFile, keyFile }: Pick<Issued, 'certFile' | 'keyFile'>): Issued {
    return { certFile, keyFile, cert: readFileSync(certFile, 'utf8'), key: readFileSync(keyFile, 'utf8') };
  }
}

/** A certificate for servers whose certificate does not matter; created at the first call, deleted at exit. */
export function anyCertificate(): Issued {
  if (made === undefined) {
    const folder = new CertificateFolder();
    process.once('exit', () => folder[Symbol.dispose]());
    made = folder.issue(folder.authority('authority'), 'server');
  }
  return made;
}

let made: Issued | undefined;

function openssl(args: readonly string[]): void {
  execFileSync('openssl', args, { stdio: ['ignore', 'ignore', 'pipe'] });
}
