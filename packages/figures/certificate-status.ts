// The state of the certificates in use, for /metrics, the log and the dashboard.

export interface CertificateStatus {
  /** TLS towards clients, or towards the backend. */
  readonly use: 'clients' | 'backend';
  /** The gateway's own certificate; undefined if only CA certificates are set. */
  readonly own: { readonly subject: string; readonly names: readonly string[]; readonly expiresAt: number } | undefined;
  /** Why the current files were refused; empty if they are in use. */
  readonly problems: readonly string[];
  /** Number of times since the start that new files were accepted. */
  readonly taken: number;
  readonly refused: number;
}

const dayMs = 86_400_000;

/** A certificate with fewer days left than this causes a warning. The Prometheus alert has the same limit. */
export const certificateDaysMin = 14;

/** Days from `now` to `expiresAt` (both in milliseconds since 1970), with a fraction; negative after `expiresAt`. */
export function daysLeft(expiresAt: number, now: number): number {
  return (expiresAt - now) / dayMs;
}
