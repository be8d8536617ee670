// What the primary process and its workers say to each other.

import type { Report, ReportRequest } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { FetchedKeys, Question } from '../../core/guards/options/ports.ts';
import type { PortSharing } from '../../core/hosts/common/listen.ts';
import type { Settings } from '../settings/settings.ts';

/** What a worker is started with, beside its settings. */
export interface WorkerStart {
  readonly sharing: PortSharing;
  readonly tls: TlsInForce;
  /** Descriptors of listening sockets that it has from the primary process, or none. */
  readonly passed: readonly number[];
  /** What another worker has fetched from its `AUTH_JWKS_URL`, if one has [D44]. */
  readonly keys: FetchedKeys | undefined;
}

/** Settings as they go from process to process: an address as its text. */
type PlainSettings = Omit<Settings, 'backendUrl'> & { readonly backendUrl: string };

export type ToWorker =
  | ({ readonly kind: 'start'; readonly settings: PlainSettings } & WorkerStart)
  /** New connections get these [D37]. */
  | { readonly kind: 'renew-tls'; readonly tls: TlsInForce }
  /** From now on every reply closes its connection [D33]. */
  | { readonly kind: 'begin-drain' }
  /** Finish what is under way, then exit. */
  | { readonly kind: 'finish-drain' }
  /** Cut what is left, then exit. */
  | { readonly kind: 'cut' }
  | { readonly kind: 'report'; readonly id: number; readonly request: ReportRequest }
  /** The answer to a question of the rate limit, as a `Counter` gives it. */
  | { readonly kind: 'counted'; readonly id: number; readonly answer: readonly number[] };

export type FromWorker =
  /** It takes calls. */
  | { readonly kind: 'ready'; readonly url: string }
  /** It cannot listen; `message` is for the operator. */
  | { readonly kind: 'start-error'; readonly message: string }
  /** It has fetched these from its `AUTH_JWKS_URL`. */
  | { readonly kind: 'keys'; readonly keys: FetchedKeys }
  | { readonly kind: 'count'; readonly id: number; readonly question: Question }
  | { readonly kind: 'reports'; readonly id: number; readonly reports: readonly Report[] };
