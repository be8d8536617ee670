// Facts about the gateway that are not in a report. The dashboard's page imports this file, so it must not use Node's types.

import type { CertificateStatus } from './certificate-status.ts';

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

/** A setting in force, without secrets. */
export interface ShownSetting {
  readonly variable: string;
  readonly flag: string;
  readonly value: string;
  readonly unit: string | undefined;
  readonly source: 'default' | 'file' | 'environment' | 'flag' | 'socket';
  readonly help: string;
}
