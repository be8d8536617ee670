// The messages between the primary process and its workers.

import type { FetchedKeys, Taken } from '../../core/guards/ports/ports.ts';
import type { Rate } from '../../core/options/rate.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { Settings } from '../settings/settings.ts';

/** The data for the start of a worker, without its settings. */
export interface WorkerStart {
  readonly tls: TlsInForce;
  /** Keys that another worker has read from the same place [D44]. */
  readonly keys: FetchedKeys | undefined;
}

export interface CountRequest {
  readonly key: string;
  readonly rate: Rate;
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
  /** Answer with `pong`. `number` is the number of the last connection sent before this message. */
  | { readonly kind: 'ping'; readonly number: number }
  | { readonly kind: 'renew-tls'; readonly tls: TlsInForce }
  /** `keys`: the last keys, if the worker follows the others. They replace an unusable key file. */
  | {
      readonly kind: 'reload';
      readonly id: number;
      readonly settings: PlainSettings;
      readonly tls: TlsInForce;
      readonly keys: FetchedKeys | undefined;
    }
  /** From now on, close each connection after its next reply [D33]. */
  | { readonly kind: 'begin-drain' }
  | { readonly kind: 'finish-drain' }
  | { readonly kind: 'cut' }
  | { readonly kind: 'report'; readonly id: number; readonly request: ReportRequest }
  /** The answer to `count`: one result for each request. */
  | { readonly kind: 'counted'; readonly taken: readonly Taken[] };

export type FromWorker =
  | { readonly kind: 'ready'; readonly report: Report | undefined }
  /** The worker cannot start; `message` is for the operator. */
  | { readonly kind: 'start-error'; readonly message: string }
  /**
   * The worker will serve the connection `number`. Sent before a byte of the connection is read. Without this message,
   * another worker can serve the connection.
   */
  | { readonly kind: 'taken'; readonly number: number }
  /** The answer to `ping`, with its `number`. `open` is the number of the worker's connections. */
  | { readonly kind: 'pong'; readonly number: number; readonly open: number }
  /** After an internal error the worker takes no further connection, finishes its calls and exits. */
  | { readonly kind: 'fault' }
  /** New connections use the settings of `reload`. If there is a `problem`, they use the old settings instead. */
  | { readonly kind: 'reloaded'; readonly id: number; readonly problem: string | undefined }
  /** The calls that use the old settings have ended, or the reload has failed. */
  | { readonly kind: 'reload-finished'; readonly id: number }
  | { readonly kind: 'keys'; readonly place: string; readonly keys: FetchedKeys }
  /** Asks the primary to count requests. The worker sends the next `count` after the answer. */
  | { readonly kind: 'count'; readonly requests: readonly CountRequest[] }
  /** The answer to `report`. The last report of a worker has the id -1. */
  | { readonly kind: 'report'; readonly id: number; readonly report: Report | undefined };
