// Reads the PEM files for connections from clients or to the backend, and checks that the files are complete and match.

import type { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';

import { nameWithPath } from '../../core/options/accepted-values.ts';
import type { ClientTls } from '../../core/hosts/dialing/open-socket.ts';
import type { ServerTls } from '../../core/hosts/clients/handshake.ts';

type FileRole = 'cert' | 'key' | 'ca';

export type CertificateFiles = Readonly<Record<FileRole, NamedFile>>;

export interface NamedFile {
  /** The setting that names the file. */
  readonly variable: string;
  /** May be empty. */
  readonly path: string;
}

/** The text of a file, or the system's error code; undefined if no file is configured. */
type FileText = string | { readonly code: string } | undefined;

export type FileTexts = Readonly<Record<FileRole, FileText>>;

/** Connections from clients, or to the backend. */
export type CertificateUse = 'clients' | 'backend';

export function hasFiles(files: CertificateFiles): boolean {
  return Object.values(files).some(({ path }) => path !== '');
}

/** TLS configuration in force. `clients` is undefined for plain HTTP; `backend` is undefined if Node's defaults apply. */
export interface TlsInForce {
  readonly clients?: ServerTls | undefined;
  readonly backend?: ClientTls | undefined;
}

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

/** PEM texts that match each other. */
export interface CertificateSet extends Readonly<Record<FileRole, string | undefined>> {
  /** The leaf certificate; undefined if `cert` is undefined. */
  readonly own: CertificateFacts | undefined;
  readonly chain: readonly CertificateFacts[];
  readonly authorities: readonly CertificateFacts[];
}

export interface CertificateFacts {
  readonly subject: string;
  readonly issuer: string;
  /** Such as `DNS:gateway.example.com` or `IP Address:10.0.0.1`. */
  readonly names: readonly string[];
  /** In ms since 1970, as `validTo`. */
  readonly validFrom: number;
  readonly validTo: number;
  readonly isAuthority: boolean;
  /** True if the next certificate in the file issued this certificate, or if this is the last certificate. */
  readonly leadsToNext: boolean;
}

/** Parses the texts into a set, or returns the problems, each with the name of its variable. */
export function readCertificateSet(files: CertificateFiles, texts: FileTexts): CertificateSet | readonly string[] {
  const problems: string[] = [];
  const read = (role: FileRole): string | undefined => {
    const text = texts[role];
    if (typeof text !== 'object') return text;
    problems.push(`${nameOf(files[role])} cannot be read (${text.code})`);
    return undefined;
  };
  const [cert, key, ca] = [read('cert'), read('key'), read('ca')];
  const certificates = cert === undefined ? [] : parseCertificates(files.cert, cert, problems);
  const authorities = ca === undefined ? [] : parseCertificates(files.ca, ca, problems);
  if (key !== undefined) problems.push(...findKeyProblems(files, key, certificates));
  if (problems.length === 0) {
    // Finds other flaws, such as a key that is too short for OpenSSL.
    try {
      process.getBuiltinModule('node:tls').createSecureContext({ cert, key, ca });
    } catch (error) {
      const named = Object.values(files).filter(({ path }) => path !== '');
      problems.push(`${named.map(({ variable }) => variable).join(', ')} cannot be used: ${reasonOf(error)}`);
    }
  }
  if (problems.length > 0) return problems;
  const [own, ...chain] = certificates.map(describeCertificate);
  return { cert, key, ca, own, chain, authorities: authorities.map(describeCertificate) };
}

/** Returns the problem of an expired or not yet valid leaf certificate, if it is not valid at `now`. */
export function findValidityProblems(files: CertificateFiles, { own }: CertificateSet, now: number): string[] {
  if (own === undefined || (own.validFrom <= now && now <= own.validTo)) return [];
  const flaw = own.validTo < now ? `expired on ${dateOf(own.validTo)}` : `is not valid before ${dateOf(own.validFrom)}`;
  return [`the certificate in ${nameOf(files.cert)} ${flaw}`];
}

/** Formats milliseconds since 1970 as `2027-01-31`. */
export function dateOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}

const nameOf = ({ variable, path }: NamedFile): string => nameWithPath(variable, path);

const begin = '-----BEGIN CERTIFICATE-----';
const wholeCertificate = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

function parseCertificates(file: NamedFile, text: string, problems: string[]): X509Certificate[] {
  const { X509Certificate } = process.getBuiltinModule('node:crypto');
  const refuse = (flaw: string): [] => {
    problems.push(nameOf(file) + flaw);
    return [];
  };
  const begun = text.split(begin).length - 1;
  const blocks = text.match(wholeCertificate) ?? [];
  if (begun === 0) return refuse(' has no certificate in PEM format');
  if (blocks.length < begun) return refuse(' has a truncated certificate');
  return blocks.flatMap((block, index) => {
    try {
      const certificate = new X509Certificate(block);
      // OpenSSL accepts a certificate with an impossible date, such as month 13, so the dates are checked here.
      return Number.isNaN(Date.parse(certificate.validFrom) + Date.parse(certificate.validTo))
        ? refuse(`: certificate number ${index + 1} has a date that cannot be read`)
        : [certificate];
    } catch {
      return refuse(`: certificate number ${index + 1} cannot be read`);
    }
  });
}

function findKeyProblems(files: CertificateFiles, text: string, certificates: readonly X509Certificate[]): string[] {
  const [ofCert, ofKey] = [nameOf(files.cert), nameOf(files.key)];
  let key;
  try {
    key = process.getBuiltinModule('node:crypto').createPrivateKey(text);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ERR_MISSING_PASSPHRASE' || text.includes('ENCRYPTED')
      ? [`${ofKey} has an encrypted key: use one without a pass phrase`]
      : [`${ofKey} has no complete private key in PEM format`];
  }
  const fits = certificates.findIndex((certificate) => certificate.checkPrivateKey(key));
  if (fits === 0 || certificates.length === 0) return [];
  return fits > 0
    ? [`${ofKey} has the key of certificate number ${fits + 1} in ${ofCert}: put that certificate first`]
    : [`${ofKey} has a key that does not match the certificate in ${ofCert}`];
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

// Returns the reason in `error:<code>:<library>:<function>:<reason>` (openssl-errors(3)).
function reasonOf(error: unknown): string {
  const { message } = error as Error;
  return message.replace(/^error:[0-9A-F]+:[^:]*:[^:]*:(.+)$/s, '$1');
}
