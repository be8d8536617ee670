// Makes a temporary certificate for 127.0.0.1 and localhost with openssl, because Node cannot create certificates.
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

export type CertificateFiles = {
  /** The certificate is self-signed, so this file is also the CA. */
  TLS_CERT_FILE: string;
  TLS_KEY_FILE: string;
};

/** Writes both files into `folder`. Returns the gateway's settings for them. */
export function makeCertificate(folder: string): CertificateFiles {
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  const args = `req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1`;
  execFileSync('openssl', [...args.split(' '), '-keyout', key, '-out', cert], { stdio: 'ignore' });
  return { TLS_CERT_FILE: cert, TLS_KEY_FILE: key };
}
