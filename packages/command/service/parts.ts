// The parts of the command that a build may leave out, as the rest of the command sees them. Which of them there are says
// the list in packages/command/parts.ts. Each is loaded when it is needed.

import type { Gateway } from '../../core/call/gateway.ts';
import type { Serve } from '../../core/http1/connection.ts';
import type { ProcessTracer, SpanObserver, TraceOptions } from '../options/tracing.ts';
import type { ClientTls } from '../../core/http1/client-connection.ts';
import { dashboardFolder, type CreateDashboard } from '../admin/dashboard-port.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Log, Logger } from '../log/log.ts';
import type { Settings } from '../settings/settings.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { SignalSource } from './lifecycle.ts';
import type { ClientService } from './services.ts';

export interface Parts {
  readonly dashboard: () => Promise<{ readonly createDashboard: CreateDashboard }>;
  readonly standInBackend: () => Promise<StandInBackendPart>;
  readonly contractCheck: () => Promise<ContractCheckPart>;
  /** Several processes: in the primary one, and in each worker. */
  readonly cluster: () => Promise<ClusterPart>;
  readonly worker: () => Promise<{ readonly serveAsWorker: (parts: Partial<Parts>) => void }>;
  readonly traces: () => Promise<{
    readonly createTraces: (options: TraceOptions, observer: SpanObserver) => ProcessTracer;
  }>;
  readonly http2: () => Promise<{
    readonly serveHttp2: (settings: Settings, gateway: Gateway) => Serve;
  }>;
}

interface StandInBackendPart {
  /** Rejects with a StartError when the port is taken or the database cannot be used. */
  readonly startEmbeddedBackend: (options: {
    readonly host: string;
    readonly port: number;
    /** A file, or `:memory:`. */
    readonly database: string;
    readonly sampleItems?: boolean;
    readonly logger?: Logger;
  }) => Promise<{ readonly url: string; readonly stop: () => Promise<void> }>;
}

/** The flags of `check` that are no settings, as they were given; true for one without a value. */
export type GivenFlags = Readonly<Record<string, string | true>>;

interface ContractCheckPart {
  /** What is wrong with the flags. */
  readonly findProblems: (flags: GivenFlags) => readonly string[];
  /** Resolves with the exit code; `shownUrl` is the address of the backend that may be shown. */
  readonly runContractCheck: (
    flags: GivenFlags,
    settings: Settings,
    tls: ClientTls | undefined,
    shownUrl: string,
    signals: SignalSource,
    print: (text: string) => void,
  ) => Promise<number>;
}

interface ClusterPart {
  /** Rejects with a StartError, all processes stopped again. */
  readonly startPool: (
    settings: Settings,
    log: Log,
    tls: TlsInForce,
    passed: readonly number[],
  ) => Promise<ClientService>;
}

/** For people: where each part is. */
const places: Readonly<Record<keyof Parts, string>> = {
  dashboard: dashboardFolder,
  standInBackend: 'packages/stand-in-backend',
  contractCheck: 'packages/contract-check',
  cluster: 'packages/command/cluster',
  worker: 'packages/command/cluster',
  traces: 'packages/command/traces',
  http2: 'packages/core/hosts/http2',
};

/** Loads a part for `wish`, which is what the operator asked for. Rejects with a StartError when this build leaves it out. */
export async function loadPart<Name extends keyof Parts>(
  parts: Partial<Parts>,
  name: Name,
  wish: string,
): Promise<Awaited<ReturnType<Parts[Name]>>> {
  const load = parts[name] as (() => ReturnType<Parts[Name]>) | undefined;
  if (load === undefined) {
    throw new StartError(`${wish} needs ${places[name]}, which this build leaves out`, undefined);
  }
  return await load();
}
