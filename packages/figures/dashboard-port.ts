// The interface between the admin listener and the dashboard. A build can leave the dashboard out.

import type { FixedReply } from '../core/replies.ts';
import type { GatewayFacts } from './facts.ts';
import type { History, Stretch } from './history.ts';
import type { Report, Reporter } from './report.ts';

export const dashboardFolder = 'packages/dashboard';

export interface DashboardSources extends Reporter {
  readonly isDraining: () => boolean;
  readonly onFault: (error: unknown) => void;
  readonly facts: () => GatewayFacts;
}

export interface DashboardPort {
  /** Called at the end of each step (5 s) of the history, with the reports at that moment. */
  record(step: Stretch, reports: readonly Report[]): void;
  /** Answers a GET of `/` or a path under `/dashboard/`; resolves with undefined for an unknown path. */
  answer(path: string, query: URLSearchParams): Promise<FixedReply | undefined>;
}

export type CreateDashboard = (sources: DashboardSources, history: History) => DashboardPort;
