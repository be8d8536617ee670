// What the dashboard's page is told, as it travels: types only. The page's own modules use them too, so nothing
// here may lean on Node's types.

/** A line of the page's tables: an operation, all five together, or the requests that called none. */
export type FlowName = 'all' | 'list' | 'create' | 'read' | 'update' | 'delete' | 'none';

export type StatusClass = '2xx' | '4xx' | '5xx' | 'none';

/** Who is at fault when a request has failed [D51]. */
export type Party = 'client' | 'gateway' | 'backend';

/** What came through in a stretch of time. Times are in milliseconds and null without any calls. */
export interface Flow {
  readonly requests: number;
  /** Replies by the class of their status; `none` had no reply, since the client left or we stopped. */
  readonly byStatus: Readonly<Record<StatusClass, number>>;
  /** Failed requests; whatever is missing here to `requests` did not fail. */
  readonly failed: Readonly<Record<Party, number>>;
  readonly p50: number | null;
  readonly p99: number | null;
  readonly mean: number | null;
  readonly backendCalls: number;
  readonly backendFailed: number;
  readonly backendP50: number | null;
  readonly backendP99: number | null;
  /** Of all requests, those without a call included, so that it is a part of `mean`. */
  readonly backendMean: number | null;
}

/** One step of the history. */
export interface Point {
  /** Its end, in milliseconds since 1970. */
  readonly at: number;
  readonly seconds: number;
  readonly flows: Readonly<Record<FlowName, Flow>>;
  readonly inFlight: number;
  readonly bufferedBytes: number;
  readonly residentBytes: number;
  readonly eventLoopDelayMs: number;
  /** Workers that ended although they were not told to [D63]. */
  readonly workerDeaths: number;
}

/** The time from some moment until now, taken together. */
export interface Summary {
  /** That moment, in milliseconds since 1970. */
  readonly from: number;
  readonly seconds: number;
  readonly flows: Readonly<Record<FlowName, Flow>>;
  /** How often each kind of failure came, without those that did not. */
  readonly failures: Readonly<Record<string, number>>;
}

interface LastFailure {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Calls to the backend that have come through since; a few of the latest may not be counted yet. */
  readonly callsSince: number;
}

export interface ShownFailure {
  readonly at: number;
  readonly requestId: string;
  readonly operation: string | undefined;
  /** Of its target, without the query, at most 256 characters; undefined for bytes that were no request. */
  readonly path: string | undefined;
  /** The client's address; undefined where it is not known, or LOG_CLIENT is off. */
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

/** Certificates in force: those that clients are shown, or the backend. */
export interface ShownCertificate {
  readonly use: 'clients' | 'backend';
  readonly names: string;
  /** Milliseconds since 1970; null where there are only authorities. */
  readonly expiresAt: number | null;
  /** Why the files that are there now were refused. */
  readonly problems: readonly string[];
}

/** What does not change while the process lives, or seldom. */
export interface Facts {
  readonly version: string;
  readonly nodeVersion: string;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  /** What this gateway is called: INSTANCE_NAME, or the name of the machine. */
  readonly instanceName: string;
  /** The name of the machine. */
  readonly hostName: string;
  /** The process that has the admin listener: the only one, or the primary one of several. */
  readonly pid: number;
  readonly url: string;
  readonly backendUrl: string;
  readonly inFlightMax: number;
  readonly bufferedBytesMax: number;
  /** Of each use that has files. */
  readonly certificates: readonly ShownCertificate[];
  readonly settings: readonly ShownSetting[];
  /** How far back the history goes, and its step. */
  readonly historyMs: number;
  readonly stepMs: number;
  /** What a request ends with when it fails. */
  readonly failureKinds: Readonly<Record<Party, readonly string[]>>;
  /** Words for each of these kinds. */
  readonly kindWords: Readonly<Record<string, { readonly title: string; readonly meaning: string }>>;
}

export interface Worker {
  readonly pid: number;
  readonly inFlight: number;
  readonly residentBytes: number;
  readonly heapUsedBytes: number;
  readonly eventLoopDelayMs: number;
}

/** How things stand at one moment. */
export interface Now {
  readonly at: number;
  readonly isDraining: boolean;
  readonly workers: readonly Worker[];
  readonly backend: {
    readonly isReachable: boolean;
    readonly since: number;
    readonly cause: string | undefined;
  };
  readonly inFlight: number;
  readonly bufferedBytes: number;
  readonly clientConnections: number;
  readonly backendConnections: number;
  /** Since the process started. */
  readonly requestsEver: number;
  readonly lastMinute: Summary;
  readonly wholeHistory: Summary;
  /** Null where there was none since the start. */
  readonly lastFailures: Readonly<Record<'backend' | 'gateway', LastFailure | null>>;
  /** The backend answered calls of the last 5 minutes, and none of them with success. */
  readonly hasNoSuccess: boolean;
}

/** One event of the stream. The first one of a connection has everything; a later one what has changed. */
export interface Message {
  readonly now: Now;
  readonly facts?: Facts;
  /** Points to add; with `facts`, all that there are. */
  readonly points?: readonly Point[];
  /** All that are kept, the latest first. */
  readonly failures?: readonly ShownFailure[];
}
