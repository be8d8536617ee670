// Types of the messages to the dashboard's page. The page's modules import this file too, so it must not use Node's
// types.

/** A row of the table of operations: one operation, all five together, or the requests without an operation. */
export type FlowName = 'all' | 'list' | 'create' | 'read' | 'update' | 'delete' | 'none';

export type StatusClass = '2xx' | '4xx' | '5xx' | 'none';

/** The party at fault for a failed request [D51]. */
export type Party = 'client' | 'gateway' | 'backend';

/** The traffic of a period. Durations are in milliseconds, and null without calls. */
export interface Flow {
  readonly requests: number;
  /** Replies by status class; `none`: no reply, because the client disconnected or the gateway stopped. */
  readonly byStatus: Readonly<Record<StatusClass, number>>;
  /** Failed requests by party at fault. */
  readonly failed: Readonly<Record<Party, number>>;
  readonly p50: number | null;
  readonly p99: number | null;
  readonly mean: number | null;
  readonly backendCalls: number;
  readonly backendFailed: number;
  readonly backendP50: number | null;
  readonly backendP99: number | null;
  /** Mean over all requests, also those without a backend call, so that it can be compared with `mean`. */
  readonly backendMean: number | null;
}

/** One step of the history. */
export interface Point {
  /** The end of the step, in milliseconds since 1970. */
  readonly at: number;
  readonly seconds: number;
  readonly flows: Readonly<Record<FlowName, Flow>>;
  readonly inFlight: number;
  readonly bufferedBytes: number;
  readonly residentBytes: number;
  readonly eventLoopDelayMs: number;
  /** Workers that ended unexpectedly [D63]. */
  readonly workerDeaths: number;
}

/** The totals of a period that ends now. */
export interface Summary {
  /** Start of the period, in milliseconds since 1970. */
  readonly from: number;
  readonly seconds: number;
  readonly flows: Readonly<Record<FlowName, Flow>>;
  /** Count of each kind of failure that occurred. */
  readonly failures: Readonly<Record<string, number>>;
}

interface LastFailure {
  /** Milliseconds since 1970. */
  readonly at: number;
  /**
   * Backend calls since then, not counting calls that failed through the fault of this party (the key in
   * `Now.lastFailures`). The latest few may not be counted yet.
   */
  readonly callsSince: number;
}

export interface ShownFailure {
  readonly at: number;
  readonly requestId: string;
  readonly operation: string | undefined;
  /** The target without its query, at most 256 characters; undefined for a malformed request. */
  readonly path: string | undefined;
  /** The client's address; undefined if unknown, or if LOG_CLIENT is off. */
  readonly client: string | undefined;
  readonly status: number;
  readonly outcome: string;
  readonly party: Party;
  readonly cause: string | undefined;
  readonly durationMs: number;
}

export interface ShownSetting {
  readonly variable: string;
  readonly flag: string;
  readonly value: string;
  readonly unit: string | undefined;
  readonly source: 'default' | 'file' | 'environment' | 'flag' | 'socket';
  readonly help: string;
}

/** The certificates in force for one use: connections of clients, or connections to the backend. */
export interface ShownCertificate {
  readonly use: 'clients' | 'backend';
  readonly names: string;
  /** Milliseconds since 1970; null if only CA certificates are set. */
  readonly expiresAt: number | null;
  /** Why the current files were refused. */
  readonly problems: readonly string[];
}

/** Facts that rarely or never change while the process runs. */
export interface Facts {
  readonly version: string;
  readonly nodeVersion: string;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  /** INSTANCE_NAME, or else the host name. */
  readonly instanceName: string;
  readonly hostName: string;
  /** The process with the admin listener: the only process, or the primary of several. */
  readonly pid: number;
  readonly url: string;
  readonly backendUrl: string;
  readonly inFlightMax: number;
  readonly bufferedBytesMax: number;
  /** One entry for each use that has certificate files. */
  readonly certificates: readonly ShownCertificate[];
  readonly settings: readonly ShownSetting[];
  /** Length of the whole history (`historyMs`) and of one step (`stepMs`). */
  readonly historyMs: number;
  readonly stepMs: number;
  /** Outcomes of failed requests, by party at fault. */
  readonly failureKinds: Readonly<Record<Party, readonly string[]>>;
  readonly kindWords: Readonly<Record<string, { readonly title: string; readonly meaning: string }>>;
}

export interface Worker {
  readonly pid: number;
  readonly inFlight: number;
  readonly residentBytes: number;
  readonly heapUsedBytes: number;
  readonly eventLoopDelayMs: number;
}

/** The gateway's state at one moment. */
export interface Now {
  readonly at: number;
  readonly isDraining: boolean;
  readonly workers: readonly Worker[];
  readonly backend: { readonly isReachable: boolean; readonly since: number; readonly cause: string | undefined };
  readonly inFlight: number;
  readonly bufferedBytes: number;
  readonly clientConnections: number;
  readonly backendConnections: number;
  /** Requests since the process started. */
  readonly requestsEver: number;
  readonly lastMinute: Summary;
  readonly wholeHistory: Summary;
  /** Null for a party without a failure since the start. */
  readonly lastFailures: Readonly<Record<'backend' | 'gateway', LastFailure | null>>;
  /** True if the backend answered at least ten calls in the last 5 minutes, none of them with success. */
  readonly hasNoSuccess: boolean;
}

/**
 * One event of the stream. The first event of a connection is complete. A later event has only what changed, unless the
 * viewer has missed events or the facts have changed.
 */
export interface Message {
  readonly now: Now;
  readonly facts?: Facts;
  /** Points to add; in an event with `facts`, all points. */
  readonly points?: readonly Point[];
  /** All failures kept, latest first. */
  readonly failures?: readonly ShownFailure[];
}
