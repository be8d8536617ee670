// A throw-away certificate for 127.0.0.1 and localhost, made by the machine's openssl: Node can read X.509 and not write it.
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

export type CertificateFiles = {
  /** Its own authority too. */
  TLS_CERT_FILE: string;
  TLS_KEY_FILE: string;
};

/** Writes both files into `folder`, and gives their names as the gateway's settings. */
export function makeCertificate(folder: string): CertificateFiles {
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  const args = `req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1`;
  execFileSync('openssl', [...args.split(' '), '-keyout', key, '-out', cert], { stdio: 'ignore' });
  return { TLS_CERT_FILE: cert, TLS_KEY_FILE: key };
}
