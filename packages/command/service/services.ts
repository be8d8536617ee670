// The interfaces of services, for the code that starts, reloads and stops them.

import type { Reporter } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { Settings } from '../settings/settings.ts';

/** A service that can be drained and stopped. */
export interface Service {
  /** From now on every reply closes its connection [D33], and `/readyz`, if the service has it, answers 503. */
  beginDrain(): void;
  /**
   * Refuses new connections and closes idle ones. Resolves when all connections have closed and no call is in flight. Once
   * `signal` is aborted, resolves without waiting for calls.
   */
  finishDrain(signal: AbortSignal): Promise<void>;
  /** Cuts the remaining connections. */
  stop(): Promise<void>;
  /** True if a worker of the service failed while stopping. */
  readonly hasFailed?: () => boolean;
}

export interface ClientService extends Service, Reporter {
  readonly url: string;
  /** True if worker processes serve the clients, false if this process does. */
  readonly hasWorkers: boolean;
  /** Uses `tls` for new connections of clients and to the backend; open connections stay [D37]. */
  renewTls(tls: TlsInForce): void;
  /**
   * Resolves when new connections use `settings`. Calls in flight finish with the old settings; then `finished`
   * resolves [D65]. Rejects with a StartError and keeps the old settings if the new ones cannot be served. Call it
   * again only after `finished`.
   */
  reload(settings: Settings, tls: TlsInForce): Promise<{ readonly finished: Promise<void> }>;
}
