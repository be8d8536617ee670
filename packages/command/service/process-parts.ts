// The interfaces of the serving processes and of the parts that a build may leave out. packages/command/command-parts.ts lists the
// parts of this build. A part is loaded when it is needed.

import type { BufferBudget } from '../../core/body/budget.ts';
import type { ConnectionFactory } from '../../core/http1/connection.ts';
import type { RequestHandler } from '../../core/http1/transport.ts';
import type { Tracer } from '../../core/call/tracer.ts';
import type { ClientTls } from '../../core/hosts/dialing/open-socket.ts';
import { dashboardFolder, type CreateDashboard } from '../../figures/dashboard-port.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Log, Logger } from '../log/log.ts';
import type { Settings } from '../settings/settings.ts';
import type { Collector } from '../settings/trace-settings.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { Reporter } from '../../figures/report.ts';
import type { Service, SignalSource } from './lifecycle.ts';

export interface Parts {
  readonly dashboard: () => Promise<{ readonly createDashboard: CreateDashboard }>;
  readonly standInBackend: () => Promise<StandInBackendPart>;
  readonly contractCheck: () => Promise<ContractCheckPart>;
  readonly cluster: () => Promise<ClusterPart>;
  readonly worker: () => Promise<{ readonly serveAsWorker: (parts: Partial<Parts>) => void }>;
  readonly traces: () => Promise<{
    /** `onDropped` is called whenever spans are lost, with the number of lost spans. */
    readonly createTraces: (
      options: TraceOptions,
      collector: Collector,
      logger: Logger,
      onDropped: (spans: number) => void,
    ) => ProcessTracer;
  }>;
  readonly http2: () => Promise<{
    readonly serveHttp2: (settings: Settings, handler: ProcessHandler) => ConnectionFactory;
  }>;
}

/** Handles the requests of all connections of the process. Its budget counts the bytes and calls of all generations. */
export type ProcessHandler = RequestHandler & { readonly budget: BufferBudget };

interface StandInBackendPart {
  /** Rejects with a StartError if the port is in use or the database cannot be used. */
  readonly startEmbeddedBackend: (options: {
    readonly host: string;
    readonly port: number;
    readonly database: string;
    readonly sampleItems?: boolean;
    readonly logger?: Logger;
  }) => Promise<{ readonly url: string; readonly stop: () => Promise<void> }>;
}

/** The given flags of a command that are not settings. A flag without a value is `true`. */
export type GivenFlags = Readonly<Record<string, string | true>>;

interface ContractCheckPart {
  readonly findProblems: (flags: GivenFlags) => readonly string[];
  /** Resolves with the exit code. `shownUrl` is the backend's address without secrets. */
  readonly runContractCheck: (
    flags: GivenFlags,
    settings: Settings,
    tls: ClientTls | undefined,
    shownUrl: string,
    signals: SignalSource,
    print: (text: string) => void,
  ) => Promise<number>;
}

export interface ServingProcesses extends Service, Reporter {
  readonly url: string;
  readonly hasWorkers: boolean;
  /** Uses `tls` for new connections, from clients and to the backend. Open connections stay open [D37]. */
  renewTls(tls: TlsInForce): void;
  /**
   * Resolves when all new calls use `settings`. Calls in flight finish with the old settings, however long they take; then
   * `finished` resolves [D65]. If the service cannot use `settings`, keeps the old settings and rejects with a
   * StartError. If `finishDrain` or `stop` is called meanwhile, `finished` is undefined, and the old settings may stay.
   * Call `reload` again only after it has resolved.
   */
  reload(settings: Settings, tls: TlsInForce): Promise<{ readonly finished: Promise<void> | undefined }>;
}

interface ClusterPart {
  readonly startPool: (
    settings: Settings,
    log: Log,
    tls: TlsInForce,
    passed: readonly number[],
  ) => Promise<ServingProcesses>;
}

export type TraceOptions = Pick<
  Settings,
  Extract<keyof Settings, `otel${string}`> | 'backendUrl' | 'tlsCertFile' | 'logClient'
>;

export interface ProcessTracer extends Tracer {
  /** Exports the remaining spans for at most `limitMs`. Resolves with the number of lost spans that no log line reported. */
  end(limitMs: number): Promise<number>;
}

/** The folder of each part, for messages. */
const places: Readonly<Record<keyof Parts, string>> = {
  dashboard: dashboardFolder,
  standInBackend: 'packages/stand-in-backend',
  contractCheck: 'packages/contract-check',
  cluster: 'packages/command/cluster',
  worker: 'packages/command/cluster',
  traces: 'packages/command/traces',
  http2: 'packages/core/hosts/http2',
};

/** Loads a part for the command or setting `neededBy`. Rejects with a StartError if this build leaves the part out. */
export async function loadPart<Name extends keyof Parts>(
  parts: Partial<Parts>,
  name: Name,
  neededBy: string,
): Promise<Awaited<ReturnType<Parts[Name]>>> {
  const load = parts[name] as (() => ReturnType<Parts[Name]>) | undefined;
  if (load === undefined) {
    throw new StartError(`${neededBy} needs ${places[name]}, which this build leaves out`, undefined);
  }
  return await load();
}
