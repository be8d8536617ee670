// What serves, as those see it who start and stop it.

import type { Reporter } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { Settings } from '../settings/settings.ts';

/** What can be drained and stopped. */
export interface Service {
  /** From now on `/readyz` says 503 and every reply closes its connection [D33]. */
  beginDrain(): void;
  /** Takes no new connection and resolves when the last one has closed by itself and no call is under way. */
  finishDrain(signal: AbortSignal): Promise<void>;
  /** Cuts whatever is left. */
  stop(): Promise<void>;
  /** Part of it has ended as it should not have. */
  readonly hasFailed?: () => boolean;
}

export interface ClientService extends Service, Reporter {
  readonly url: string;
  /** Processes of their own serve, and not this one. */
  readonly hasWorkers: boolean;
  /** New connections of clients and to the backend get these, open ones live on [D37]. */
  renewTls(tls: TlsInForce): void;
  /**
   * Serves new connections by `settings` when it resolves, and lets calls under way end by the old ones until `finished`
   * resolves [D65]. Rejects with a StartError, and then the old ones stay. To be called again only when it is finished.
   */
  reload(settings: Settings, tls: TlsInForce): Promise<{ readonly finished: Promise<void> }>;
}
