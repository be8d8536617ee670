// The messages between the primary process and its workers.

import type { FetchedKeys, Question } from '../../core/guards/options/ports.ts';
import type { PortSharing } from '../../core/hosts/common/listen.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
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

export function toPlain(settings: Settings): PlainSettings {
  return { ...settings, backendUrl: settings.backendUrl.href };
}

export function fromPlain(settings: PlainSettings): Settings {
  return { ...settings, backendUrl: new URL(settings.backendUrl) };
}

export type ToWorker =
  | ({ readonly kind: 'start'; readonly settings: PlainSettings } & WorkerStart)
  /** Serve the connection that comes with this message. `number` counts from 1. */
  | { readonly kind: 'connection'; readonly number: number }
  /** Use these certificates for new connections [D37]. */
  | { readonly kind: 'renew-tls'; readonly tls: TlsInForce }
  /** Serve new connections with these settings [D65]. */
  | { readonly kind: 'reload'; readonly id: number; readonly settings: PlainSettings; readonly tls: TlsInForce }
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
  /** The worker serves clients. `url` is empty if the primary process listens. */
  | { readonly kind: 'ready'; readonly url: string }
  /** The worker cannot start; `message` is for the operator. */
  | { readonly kind: 'start-error'; readonly message: string }
  /** New connections use the settings of `reload`. If there is a `problem`, they use the old settings instead. */
  | { readonly kind: 'reloaded'; readonly id: number; readonly problem: string | undefined }
  /** The calls that use the old settings have ended, or the reload has failed. */
  | { readonly kind: 'reload-finished'; readonly id: number }
  /** Keys that the worker fetched from `jwksUrl`. */
  | { readonly kind: 'keys'; readonly jwksUrl: string; readonly keys: FetchedKeys }
  /** Asks the primary to count requests for the rate limit. */
  | { readonly kind: 'count'; readonly id: number; readonly question: Question }
  | { readonly kind: 'reports'; readonly id: number; readonly reports: readonly Report[] };
