// Types of the state that the dashboard's page fetches. The page's modules import this file too, so it must not use Node's
// types.

import type { CertificateStatus, GatewayFacts, ShownSetting } from '../figures/facts.ts';
import type { Failure, LastFailure, Party } from '../figures/failures.ts';
import type { CurrentTroubles, Trouble, TroubleCode } from '../figures/troubles.ts';

export type { CertificateStatus, Failure, Party, ShownSetting, Trouble, TroubleCode };

/** A row of the table of operations: one operation, all five together, or the requests without an operation. */
export type FlowName = 'all' | 'list' | 'create' | 'read' | 'update' | 'delete' | 'none';

export type StatusClass = '2xx' | '4xx' | '5xx' | 'none';

/** The traffic of a period. Durations are in milliseconds, of requests that called the backend; null without any. */
export interface Flow {
  readonly requests: number;
  /** Replies by status class; `none`: no reply, because the client disconnected or the gateway stopped. */
  readonly byStatus: Readonly<Record<StatusClass, number>>;
  /** Failed requests by party at fault. Each failure of the backend stands for exactly one failed backend call. */
  readonly failed: Readonly<Record<Party, number>>;
  readonly p50: number | null;
  readonly p99: number | null;
  readonly mean: number | null;
  readonly backendCalls: number;
  readonly backendP50: number | null;
  readonly backendP99: number | null;
  readonly backendMean: number | null;
}

export interface Load {
  readonly inFlight: number;
  readonly bufferedBytes: number;
  readonly residentBytes: number;
  readonly eventLoopDelayMs: number;
}

/** One step of the history, which ends at `at` (in milliseconds since 1970). */
export interface Point extends Load {
  readonly at: number;
  readonly seconds: number;
  readonly flows: Readonly<Record<FlowName, Flow>>;
  /** Workers that ended unexpectedly [D63]. */
  readonly workerDeaths: number;
}

/** The totals of a period from `from` (in milliseconds since 1970) until now. */
export interface Summary {
  readonly from: number;
  readonly seconds: number;
  readonly flows: Readonly<Record<FlowName, Flow>>;
  readonly failures: Readonly<Record<string, number>>;
}

/** An outcome of failed requests, as in the log. */
export interface Kind {
  readonly kind: string;
  readonly party: Party;
  readonly meaning: string;
}

/** The gateway's facts and those that the dashboard adds. Without INSTANCE_NAME, `instanceName` is the host name. */
export interface Facts extends GatewayFacts {
  readonly version: string;
  readonly nodeVersion: string;
  readonly startedAt: number;
  readonly hostName: string;
  /** The process with the admin listener: the only process, or the primary of several. */
  readonly pid: number;
  readonly historyMs: number;
  readonly stepMs: number;
  readonly kinds: readonly Kind[];
  readonly troubles: Readonly<Record<TroubleCode, Trouble>>;
}

export interface Worker extends Load {
  readonly pid: number;
  readonly heapUsedBytes: number;
}

export interface Now extends Load {
  readonly at: number;
  readonly isDraining: boolean;
  readonly workers: readonly Worker[];
  readonly backend: { readonly isReachable: boolean; readonly since: number; readonly cause: string | undefined };
  readonly clientConnections: number;
  readonly backendConnections: number;
  readonly requestsEver: number;
  readonly lastMinute: Summary;
  readonly wholeHistory: Summary;
  /** Null for a party without a failure since the start. */
  readonly lastFailures: Readonly<Record<'backend' | 'gateway', LastFailure | null>>;
  readonly troubles: CurrentTroubles;
}

/** The part of the state that seldom changes. */
export interface Details {
  readonly facts: Facts;
  /** All stored failures, latest first. */
  readonly failures: readonly Failure[];
}

/**
 * The reply to `/dashboard/state?after=…&changed=…`. It has details only if they have changed since `changed`, which is the
 * `changedAt` of an earlier reply.
 */
export interface Message extends Partial<Details> {
  readonly now: Now;
  /** The points later than `after`. */
  readonly points: readonly Point[];
  readonly changedAt: number;
}
