// Returns the reason code of a connection error, or its description: mostly Node's text, without OpenSSL's internals.

import type { Reason } from '../reasons.ts';

/** How error messages describe the other end of a connection. */
export interface Peer {
  readonly name: string;
  /** The scheme of an address without TLS, such as `http:`. */
  readonly plainScheme: string;
  /** Advice on how to trust a private certificate authority. */
  readonly authorities: string;
}

type ConnectionError = NodeJS.ErrnoException & { readonly host?: string; readonly library?: string };

/** How messages describe the backend to a program that embeds the gateway. */
const embeddersBackend: Peer = {
  name: 'the backend',
  plainScheme: 'http:',
  authorities: 'set backendTls.ca to the authorities to trust',
};
/** Advice on trusting an authority. Node reads NODE_EXTRA_CA_CERTS at its start, so a settings file cannot set it. */
export const nodeAuthorities =
  'before the start, set NODE_EXTRA_CA_CERTS in the environment to a file with the certificate authority to trust';

const noTlsCodes = new Set(['ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG']);
const unknownAuthorityCodes = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);
// `<thread>:error:<code>:SSL routines:<function>:<reason>:<file>:<line>:<more>`
const openSslText = /^.*error:[0-9A-F]{8}:[^:]*:[^:]*:([^:]+):[^:]*:\d+:(.*)$/s;

const reasonsByCode = new Map<unknown, Reason>([
  ['ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL', 'no-http1'],
  ['CERT_HAS_EXPIRED', 'certificate-expired'],
  ['ECONNREFUSED', 'connection-refused'],
  ['ECONNRESET', 'connection-reset'],
  ['EPIPE', 'connection-closed'],
  ['ERR_STREAM_PREMATURE_CLOSE', 'connection-closed'],
  ['ETIMEDOUT', 'connection-timed-out'],
  ['EHOSTUNREACH', 'no-route-to-host'],
  ['ENETUNREACH', 'no-route-to-network'],
  ['ENOTFOUND', 'unknown-host-name'],
  ['EAI_AGAIN', 'lookup-failed'],
  ['ERR_CLIENT_CLOSED', 'client-closed'],
  // The process, or the whole system, has reached its limit of open file descriptors.
  ['EMFILE', 'no-descriptor'],
  ['ENFILE', 'no-descriptor'],
]);
// Codes of Node and OpenSSL for TLS and for certificates (X509_V_ERR_...).
const tlsCode =
  /^(?:ERR_(?:TLS|SSL)_|EPROTO$|UNABLE_TO_|CERT_|CRL_|ERROR_IN_C|DEPTH_ZERO_|SELF_SIGNED_|INVALID_(?:CA|PURPOSE)$|PATH_LENGTH_|HOSTNAME_MISMATCH$)/;

/**
 * Returns the reason for a failed connection. If several addresses failed for different reasons, the result
 * is `no-descriptor` if that is one of these reasons, otherwise `connection-failed`.
 */
export function reasonOfError(error: Error): Reason {
  const errors = (error instanceof AggregateError ? error.errors : [error]) as ConnectionError[];
  const reasons = new Set(errors.map(reasonOfOne));
  if (reasons.has('no-descriptor')) return 'no-descriptor';
  const [first] = reasons;
  return first !== undefined && reasons.size === 1 ? first : 'connection-failed';
}

function reasonOfOne(error: ConnectionError): Reason {
  const { code = '', library } = error;
  if (isClosedEarly(error)) return 'tls';
  return reasonsByCode.get(code) ?? (library !== undefined || tlsCode.test(code) ? 'tls' : 'connection-failed');
}

/** True if the peer closed the connection during the TLS handshake. Only then does Node name the host in a reset. */
function isClosedEarly({ code, host }: ConnectionError): boolean {
  return code === 'ECONNRESET' && host !== undefined;
}

/** Returns the messages of an error and of its causes, on one line. */
export function describeError(error: unknown, peer = embeddersBackend): string {
  if (!(error instanceof Error)) return String(error);
  const causes = error instanceof AggregateError ? error.errors : error.cause === undefined ? [] : [error.cause];
  return [describeOne(error, peer), ...causes.map((each) => describeError(each, peer))].join('; ');
}

function describeOne(error: ConnectionError, { name: who, plainScheme, authorities }: Peer): string {
  const { code = error.name, message, library } = error;
  if (noTlsCodes.has(code)) return `${who} does not speak TLS: did you mean ${plainScheme}?`;
  if (isClosedEarly(error)) {
    return `${who} closed the connection during the TLS handshake: did you mean ${plainScheme}?`;
  }
  if (unknownAuthorityCodes.has(code)) {
    // Node's text also suggests a Node flag. The suggestion is removed, because operators do not start Node themselves.
    return `${message.replace(/; if the root CA .*/s, '')}: ${authorities}`;
  }
  if (library !== undefined || code === 'EPROTO') return `TLS failed: ${describeTlsError(error)}`;
  // Node appends the local address. The address is unknown if the connection failed immediately; then it is left out.
  return message === '' ? code : message.replace(' - Local (undefined:undefined)', '');
}

/** Returns the text of a TLS error without the parts that are only for developers of OpenSSL. */
export function describeTlsError({ message }: Error): string {
  return message.replace(openSslText, (_, reason: string, more: string) =>
    [reason, more.trim()].filter((each) => each !== '').join(', '),
  );
}
