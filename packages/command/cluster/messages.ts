// The messages between the primary process and its workers.

import type { Report, ReportRequest } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { FetchedKeys, Question } from '../../core/guards/options/ports.ts';
import type { PortSharing } from '../../core/hosts/common/listen.ts';
import type { Settings } from '../settings/settings.ts';

/** The data for the start of a worker, without its settings. */
export interface WorkerStart {
  readonly sharing: PortSharing;
  readonly tls: TlsInForce;
  /** Descriptors of listening sockets inherited from the primary process. */
  readonly passed: readonly number[];
  /** Keys that another worker has fetched from the same `AUTH_JWKS_URL` [D44]. */
  readonly keys: FetchedKeys | undefined;
}

/** Settings that can be sent to another process: addresses are text. */
type PlainSettings = Omit<Settings, 'backendUrl'> & { readonly backendUrl: string };

export type ToWorker =
  | ({ readonly kind: 'start'; readonly settings: PlainSettings } & WorkerStart)
  /** Use these certificates for new connections [D37]. */
  | { readonly kind: 'renew-tls'; readonly tls: TlsInForce }
  /** From now on, close each connection after its next reply [D33]. */
  | { readonly kind: 'begin-drain' }
  /** Finish the calls in flight, then exit. */
  | { readonly kind: 'finish-drain' }
  /** Cut the remaining connections, then exit. */
  | { readonly kind: 'cut' }
  | { readonly kind: 'report'; readonly id: number; readonly request: ReportRequest }
  /** The primary's answer to `count`: the result of `Counter.ask` (core/guards/options/ports.ts). */
  | { readonly kind: 'counted'; readonly id: number; readonly answer: readonly number[] };

export type FromWorker =
  /** The worker serves clients. */
  | { readonly kind: 'ready'; readonly url: string }
  /** The worker cannot start; `message` is for the operator. */
  | { readonly kind: 'start-error'; readonly message: string }
  /** Keys that the worker fetched from its `AUTH_JWKS_URL`. */
  | { readonly kind: 'keys'; readonly keys: FetchedKeys }
  /** Asks the primary to count requests for the rate limit. */
  | { readonly kind: 'count'; readonly id: number; readonly question: Question }
  | { readonly kind: 'reports'; readonly id: number; readonly reports: readonly Report[] };
