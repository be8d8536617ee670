// Codes for the reasons why a request was malformed, or why a call to the backend had no usable answer, each with a short
// text for tables. The program compares only these codes, never texts. Each failed call also has a `cause`, a longer text
// for people, with details such as limits.

/** The short text of each reason, for tables; undefined if the `cause` is short enough. */
const reasonTexts = {
  // No connection.
  'connection-refused': 'connection refused',
  'connection-reset': 'connection reset',
  'connection-closed': 'connection closed',
  'connection-timed-out': 'connection timed out',
  'no-route-to-host': 'no route to the host',
  'no-route-to-network': 'no route to the network',
  'unknown-host-name': 'unknown host name',
  'lookup-failed': 'host name lookup failed',
  'connection-failed': undefined,
  'no-http1': undefined,
  'certificate-expired': undefined,
  tls: undefined,
  'connect-timeout': undefined,
  'no-descriptor': undefined,
  'client-closed': undefined,
  // No complete answer.
  'answer-timeout': undefined,
  malformed: undefined,
  'cut-number': undefined,
  // An unusable answer.
  status: undefined,
  'empty-body': 'an empty body',
  page: 'a page (HTML or XML)',
  'not-json': 'a body that is not JSON',
  'too-large': undefined,
  'no-room': undefined,
  // A malformed or late request. http1/head.ts has the kinds of flaws.
  'invalid-head': undefined,
  'invalid-chunks': undefined,
  'invalid-length': undefined,
  'invalid-expect': undefined,
  'invalid-condition': undefined,
  'incomplete-request': undefined,
  'head-too-large': undefined,
  'request-timeout': undefined,
} as const satisfies Readonly<Record<string, string | undefined>>;

export type Reason = keyof typeof reasonTexts;

/** Describes a failed call in a few words: the text of its reason, or else its cause. */
export function shortTextOf<Cause>(reason: Reason | undefined, cause: Cause): Cause | string {
  return (reason && reasonTexts[reason]) ?? cause;
}
