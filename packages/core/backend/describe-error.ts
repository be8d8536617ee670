// What kept a connection from bringing an answer, as a code and in words for people: what the platform says, but for TLS
// what it means, since OpenSSL's own text names its functions and files.

import type { Reason } from '../reasons.ts';

/** Whom a connection leads to, as the words for its errors name it. */
export interface Peer {
  readonly name: string;
  /** The scheme of its address where it speaks no TLS. */
  readonly plainScheme: string;
  /** How an authority of one's own comes to be trusted. */
  readonly authorities: string;
}

/** Of a program that embeds the gateway. */
const embeddersBackend: Peer = {
  name: 'the backend',
  plainScheme: 'http:',
  authorities: 'backendTls.ca has the authorities to trust',
};
/** Node reads it as it starts: a settings file comes too late. */
export const nodeAuthorities =
  'NODE_EXTRA_CA_CERTS, in the environment at the start, names a file with the authority to trust';

const noTlsCodes = new Set(['ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG']);
// The same, where it has another code (`EPROTO`).
const noTlsReasons = new Set(['wrong version number', 'packet length too long']);
const unknownAuthorityCodes = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);
const closedEarly = 'Client network socket disconnected before secure TLS connection was established';
// `<thread>:error:<code>:SSL routines:<function>:<reason>:<file>:<line>:<more>`
const openSslText = /error:[0-9A-F]{8}:[^:]*:[^:]*:([^:]+):[^:]*:\d+:(.*)/s;

// This process, or the whole system, has as many descriptors open as it may.
const shortageCodes = new Set(['EMFILE', 'ENFILE']);

/** Whether a connection could not be opened for want of a file descriptor of our own. */
export function isShortOfDescriptors(error: Error): boolean {
  const errors: unknown[] = error instanceof AggregateError ? error.errors : [error];
  return errors.some((each) => shortageCodes.has(String((each as NodeJS.ErrnoException).code)));
}

const reasonsByCode = new Map<unknown, Reason>([
  ['ECONNREFUSED', 'connection-refused'],
  ['ECONNRESET', 'connection-reset'],
  ['EPIPE', 'connection-closed'],
  ['ETIMEDOUT', 'connection-timed-out'],
  ['EHOSTUNREACH', 'no-route-to-host'],
  ['ENETUNREACH', 'no-route-to-network'],
  ['ENOTFOUND', 'unknown-host-name'],
  ['EAI_AGAIN', 'lookup-failed'],
]);
// Node's and OpenSSL's codes for TLS and for certificates (X509_V_ERR_...).
const tlsCode =
  /^(?:ERR_(?:TLS|SSL)_|EPROTO$|UNABLE_TO_|CERT_|CRL_|ERROR_IN_C|DEPTH_ZERO_|SELF_SIGNED_|INVALID_(?:CA|PURPOSE)$|PATH_LENGTH_|HOSTNAME_MISMATCH$)/;

/** Why a connection could not be opened, or broke; where it was tried at several addresses, what is true of all of them. */
export function reasonOfError(error: Error): Reason {
  const errors: unknown[] = error instanceof AggregateError ? error.errors : [error];
  const [first, ...others] = errors.map((each) => reasonOfOne(each as NodeJS.ErrnoException));
  return first !== undefined && others.every((each) => each === first) ? first : 'connection-failed';
}

function reasonOfOne({ code = '', message }: NodeJS.ErrnoException): Reason {
  if (shortageCodes.has(code)) {
    return 'no-descriptor';
  }
  return message === closedEarly || tlsCode.test(code) || openSslText.test(message)
    ? 'tls'
    : (reasonsByCode.get(code) ?? 'connection-failed');
}

/** The messages of an error and of what caused it, on one line. */
export function describeError(error: unknown, peer = embeddersBackend): string {
  if (!(error instanceof Error)) {
    return String(error);
  }
  const causes =
    error instanceof AggregateError ? error.errors : error.cause === undefined ? [] : [error.cause];
  return [describeOne(error, peer), ...causes.map((each) => describeError(each, peer))].join('; ');
}

function describeOne(error: NodeJS.ErrnoException, { name: who, plainScheme, authorities }: Peer): string {
  const { code = error.name, message } = error;
  const openSsl = reasonOfOpenSsl(message);
  if (noTlsCodes.has(code) || noTlsReasons.has(openSsl ?? '')) {
    return `${who} does not speak TLS there: is it ${plainScheme}?`;
  }
  if (message === closedEarly) {
    return `${who} closed the connection before TLS was set up: does it speak TLS there, or is it ${plainScheme}?`;
  }
  if (unknownAuthorityCodes.has(code)) {
    // Behind it stands a flag of Node's, which whoever runs this does not start by itself.
    return `${message.replace(/; if the root CA .*/s, '')}: ${authorities}`;
  }
  if (openSsl !== undefined) {
    return `TLS failed: ${openSsl}`;
  }
  return message === '' ? code : message;
}

/** What an error of TLS says, without what only OpenSSL's own developers need. */
export function describeTlsError({ message }: Error): string {
  return reasonOfOpenSsl(message) ?? message;
}

function reasonOfOpenSsl(message: string): string | undefined {
  const [, reason, more = ''] = openSslText.exec(message) ?? [];
  return reason && [reason, more.trim()].filter((each) => each !== '').join(', ');
}
