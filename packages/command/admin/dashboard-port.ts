// What the admin listener needs of a dashboard, and what it gives one. A build without the dashboard has none.

import type { IncomingMessage, ServerResponse } from 'node:http';

import type { CertificateStatus } from '../../figures/certificate-status.ts';
import type { History, Stretch } from '../../figures/history.ts';
import type { Report, Reporter } from '../../figures/report.ts';
import type { DescribedSetting } from '../settings/describe.ts';

/** Where the dashboard is. */
export const dashboardFolder = 'packages/dashboard';

/** The facts about the gateway that no report has. */
interface DashboardFacts {
  /** Empty for the name of the machine. */
  readonly instanceName: string;
  readonly url: string;
  readonly backendUrl: string;
  readonly inFlightMax: number;
  readonly bufferedBytesMax: number;
  readonly certificates: readonly CertificateStatus[];
  /** Without secrets. */
  readonly settings: readonly DescribedSetting[];
}

/** `onFault` receives each fault of our own in answering. */
export interface DashboardSources extends Reporter {
  readonly isDraining: () => boolean;
  readonly onFault: (error: unknown) => void;
  readonly facts: () => DashboardFacts;
}

export interface DashboardPort {
  /** Takes a step of the history, which has just ended with these reports. */
  record(step: Stretch, reports: readonly Report[]): void;
  /** Answers a GET or HEAD of `/` or a path under `/dashboard/`; leaves an unknown one unanswered. */
  answer(
    path: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<'answered' | 'streaming' | 'not-found'>;
  /** Ends every stream and takes no further one. */
  close(): void;
}

export type CreateDashboard = (sources: DashboardSources, history: History) => DashboardPort;
