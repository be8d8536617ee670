// What kept a connection from bringing an answer, in words for people: what the platform says, but for TLS what it means,
// since OpenSSL's own text names its functions and files.

/** Whom a connection leads to, as the words for its errors name it. */
export interface Peer {
  readonly name: string;
  /** The scheme of its address where it speaks no TLS. */
  readonly plainScheme: string;
  /** How an authority of one's own comes to be trusted. */
  readonly authorities: string;
}

const backend: Peer = {
  name: 'the backend',
  plainScheme: 'http:',
  authorities: 'BACKEND_CA_FILE names a file with the authorities to trust',
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

const shortTexts = new Map([
  ['ECONNREFUSED', 'connection refused'],
  ['ECONNRESET', 'connection reset'],
  ['EPIPE', 'connection closed'],
  ['ETIMEDOUT', 'connection timed out'],
  ['EHOSTUNREACH', 'no route to the host'],
  ['ENETUNREACH', 'no route to the network'],
  ['ENOTFOUND', 'unknown host name'],
  ['EAI_AGAIN', 'host name lookup failed'],
]);

/** The same in a few words, by its code and without addresses; undefined where that would say less. */
export function shortenError(error: Error): string | undefined {
  const errors: unknown[] = error instanceof AggregateError ? error.errors : [error];
  const texts = errors.map((each) => shortTexts.get(String((each as NodeJS.ErrnoException).code)));
  return texts.includes(undefined) || error.message === closedEarly
    ? undefined
    : [...new Set(texts)].join('; ');
}

/** The messages of an error and of what caused it, on one line. */
export function describeError(error: unknown, peer = backend): string {
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
