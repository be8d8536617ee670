// What is said of the certificates in force, as plain data: /metrics, the log and the dashboard are made from it.

export interface CertificateStatus {
  /** `clients`: what clients are shown and asked for; `backend`: the same towards the backend. */
  readonly use: 'clients' | 'backend';
  /** Of the own certificate; undefined where there are only authorities. */
  readonly own:
    { readonly subject: string; readonly names: readonly string[]; readonly expiresAt: number } | undefined;
  /** Why the files that are there now were refused; empty where what is in force is what is in them. */
  readonly problems: readonly string[];
  /** How often new files have been taken, and refused, since the start. */
  readonly taken: number;
  readonly refused: number;
}

const dayMs = 86_400_000;

/** With fewer days left there is a warning, as the alert has it. */
export const certificateDaysMin = 14;

/** Days from `now` (milliseconds since 1970) to `expiresAt`, with their fraction; below 0 behind it. */
export function daysLeft(expiresAt: number, now: number): number {
  return (expiresAt - now) / dayMs;
}
