// Facts about the gateway that are not in a report. The dashboard's page imports this file, so it must not use Node's types.

export interface GatewayFacts {
  /** INSTANCE_NAME; may be empty. */
  readonly instanceName: string;
  readonly url: string;
  readonly backendUrl: string;
  readonly inFlightMax: number;
  readonly bufferedBytesMax: number;
  /** One entry for each `use` that has certificate files. */
  readonly certificates: readonly CertificateStatus[];
  readonly settings: readonly ShownSetting[];
}

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

/** A certificate with fewer days left than this causes a warning. The Prometheus alert has the same limit. */
export const certificateDaysMin = 14;

/** Days from `now` to `expiresAt` (both in milliseconds since 1970), with a fraction; negative after `expiresAt`. */
export function daysLeft(expiresAt: number, now: number): number {
  return (expiresAt - now) / 86_400_000;
}

/** A setting in force, without secrets. */
export interface ShownSetting {
  readonly variable: string;
  readonly flag: string;
  readonly value: string;
  readonly unit: string | undefined;
  readonly source: 'default' | 'file' | 'environment' | 'flag' | 'socket';
  readonly help: string;
}
