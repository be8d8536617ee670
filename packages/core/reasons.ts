// Why a call to the backend brought no answer that could be used: a code for programs, which no text is compared for, and
// a few words for tables. The `cause` beside a code is for people and says more: addresses, limits, what was read.

/** Words where those of the cause are too long for a table; undefined: the cause is short. */
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
  tls: undefined,
  'connect-timeout': undefined,
  'no-descriptor': undefined,
  'client-closed': undefined,
  // No whole answer.
  'answer-timeout': undefined,
  malformed: undefined,
  'cut-number': undefined,
  // An answer of no use.
  status: undefined,
  'empty-body': undefined,
  'not-json': undefined,
  'too-large': undefined,
  'no-room': undefined,
} as const satisfies Readonly<Record<string, string | undefined>>;

export type Reason = keyof typeof reasonTexts;

/** A failed call in a few words: those of its reason, or else its cause. */
export function shortTextOf<Cause>(reason: Reason | undefined, cause: Cause): Cause | string {
  return (reason && reasonTexts[reason]) ?? cause;
}
