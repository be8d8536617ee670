// The certificates of one use, in PEM files: are they whole, and do they fit? When they are read is others' affair, and
// so is what they are used for.

import type { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';

import { quoteIfPlain } from '../../core/hosts/options/accepted-values.ts';
import type { ClientTls } from '../../core/http1/client-connection.ts';
import type { ServerTls } from '../../core/http1/handshake.ts';

/** The files of one use by the variables that name them; an empty name is no file. */
export interface CertificateFiles {
  readonly cert: NamedFile;
  readonly key: NamedFile;
  readonly ca: NamedFile;
}

export interface NamedFile {
  readonly variable: string;
  readonly path: string;
}

/** What was read of a file: its text, or the system's code for why there is none; undefined without a name. */
export type FileText = string | { readonly code: string } | undefined;

export type FileTexts = Readonly<Record<keyof CertificateFiles, FileText>>;

/** What certificates are for: those that clients are shown and asked for, and those towards the backend. */
export type CertificateUse = 'clients' | 'backend';

export function hasFiles({ cert, key, ca }: CertificateFiles): boolean {
  return [cert, key, ca].some(({ path }) => path !== '');
}

/** What is in force, as it goes to whoever serves; undefined where there is no TLS, or nothing special about it. */
export interface TlsInForce {
  readonly clients?: ServerTls | undefined;
  readonly backend?: ClientTls | undefined;
}

/** Reads them now. */
export function readFileTexts(files: CertificateFiles): FileTexts {
  const read = ({ path }: NamedFile): FileText => {
    try {
      return path === '' ? undefined : readFileSync(path, 'latin1');
    } catch (error) {
      return describeMissing(error as NodeJS.ErrnoException);
    }
  };
  return { cert: read(files.cert), key: read(files.key), ca: read(files.ca) };
}

export function describeMissing(error: NodeJS.ErrnoException): FileText {
  return { code: error.code ?? String(error) };
}

/** PEM texts that fit together. */
export interface CertificateSet {
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly ca: string | undefined;
  /** Of the certificate that is shown, its own: names, subject and time; undefined without one. */
  readonly own: CertificateFacts | undefined;
  /** Those that follow it, in the order of the file. */
  readonly chain: readonly CertificateFacts[];
  /** Of the authorities. */
  readonly authorities: readonly CertificateFacts[];
}

export interface CertificateFacts {
  readonly subject: string;
  readonly issuer: string;
  /** As `DNS:gateway.example.com`, `IP Address:10.0.0.1`. */
  readonly names: readonly string[];
  /** Milliseconds since 1970. */
  readonly validFrom: number;
  readonly validTo: number;
  readonly isAuthority: boolean;
  /** The next certificate of the file has issued it; true for the last. */
  readonly leadsToNext: boolean;
}

/** The set that the texts are, or what is wrong with them, each problem with the variable's name. */
export function readCertificateSet(
  files: CertificateFiles,
  texts: FileTexts,
): CertificateSet | readonly string[] {
  const problems: string[] = [];
  const read = (part: keyof CertificateFiles): string | undefined => {
    const text = texts[part];
    if (typeof text !== 'object') {
      return text;
    }
    problems.push(`${nameOf(files[part])} cannot be read (${text.code})`);
    return undefined;
  };
  const cert = read('cert');
  const key = read('key');
  const ca = read('ca');
  const certificates = cert === undefined ? [] : parseCertificates(files.cert, cert, problems);
  const authorities = ca === undefined ? [] : parseCertificates(files.ca, ca, problems);
  if (key !== undefined) {
    checkKey(files, key, certificates, problems);
  }
  if (problems.length === 0) {
    // What else the platform may find, such as a key that is too short for it.
    try {
      process.getBuiltinModule('node:tls').createSecureContext({ cert, key, ca });
    } catch (error) {
      const named = [files.cert, files.key, files.ca].filter(({ path }) => path !== '');
      problems.push(`${named.map(({ variable }) => variable).join(', ')} cannot be used: ${reasonOf(error)}`);
    }
  }
  if (problems.length > 0) {
    return problems;
  }
  const [own, ...chain] = certificates.map(describeCertificate);
  return { cert, key, ca, own, chain, authorities: authorities.map(describeCertificate) };
}

/** Why the own certificate of a set must not be taken now, in words with its variable; undefined where it may. */
export function findFlawInTime(
  files: CertificateFiles,
  { own }: CertificateSet,
  now: number,
): string | undefined {
  if (own === undefined || (own.validFrom <= now && now <= own.validTo)) {
    return undefined;
  }
  return own.validTo < now
    ? `the certificate in ${nameOf(files.cert)} expired on ${dateOf(own.validTo)}`
    : `the certificate in ${nameOf(files.cert)} is not valid before ${dateOf(own.validFrom)}`;
}

/** As `2027-01-31`, of milliseconds since 1970. */
export function dateOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}

// With a relative clause to follow; the name of the file only where it can be shown.
function nameOf({ variable, path }: NamedFile): string {
  const shown = quoteIfPlain(path);
  return shown === undefined ? variable : `${variable} (${shown})`;
}

const begin = '-----BEGIN CERTIFICATE-----';
const wholeCertificate = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

function parseCertificates(file: NamedFile, text: string, problems: string[]): X509Certificate[] {
  const { X509Certificate } = process.getBuiltinModule('node:crypto');
  const begun = text.split(begin).length - 1;
  const blocks = text.match(wholeCertificate) ?? [];
  if (begun === 0) {
    problems.push(`${nameOf(file)} has no certificate in PEM format`);
    return [];
  }
  if (blocks.length < begun) {
    problems.push(`${nameOf(file)} has a certificate that is cut off`);
    return [];
  }
  return blocks.flatMap((block, index) => {
    try {
      return [new X509Certificate(block)];
    } catch {
      problems.push(`${nameOf(file)} has a certificate, number ${index + 1}, that cannot be read`);
      return [];
    }
  });
}

function checkKey(
  files: CertificateFiles,
  text: string,
  certificates: readonly X509Certificate[],
  problems: string[],
): void {
  const { createPrivateKey } = process.getBuiltinModule('node:crypto');
  let key;
  try {
    key = createPrivateKey(text);
  } catch (error) {
    problems.push(
      (error as NodeJS.ErrnoException).code === 'ERR_MISSING_PASSPHRASE' || text.includes('ENCRYPTED')
        ? `${nameOf(files.key)} has an encrypted key: it takes one without a pass phrase`
        : `${nameOf(files.key)} has no whole private key in PEM format`,
    );
    return;
  }
  const fits = certificates.findIndex((certificate) => certificate.checkPrivateKey(key));
  if (fits > 0) {
    problems.push(
      `${nameOf(files.key)} has the key of certificate number ${fits + 1} in ${nameOf(files.cert)}: its own has to come first`,
    );
  } else if (fits < 0 && certificates.length > 0) {
    problems.push(
      `${nameOf(files.key)} has a key that does not fit the certificate in ${nameOf(files.cert)}`,
    );
  }
}

function describeCertificate(
  certificate: X509Certificate,
  index: number,
  all: readonly X509Certificate[],
): CertificateFacts {
  const next = all[index + 1];
  return {
    subject: certificate.subject.replaceAll('\n', ', '),
    issuer: certificate.issuer.replaceAll('\n', ', '),
    names: certificate.subjectAltName?.split(', ') ?? [],
    validFrom: Date.parse(certificate.validFrom),
    validTo: Date.parse(certificate.validTo),
    isAuthority: certificate.ca,
    leadsToNext: next === undefined || certificate.checkIssued(next),
  };
}

// `error:<code>:<library>:<function>:<reason>` [openssl-errors].
function reasonOf(error: unknown): string {
  const { message } = error as Error;
  return /^error:[0-9A-F]+:[^:]*:[^:]*:(.+)$/s.exec(message)?.[1] ?? message;
}
