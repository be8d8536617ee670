// The interface between the admin listener and the dashboard. A build can leave the dashboard out.

import type { FixedReply } from '../../core/replies.ts';
import type { CertificateStatus } from '../../figures/certificate-status.ts';
import type { History, Stretch } from '../../figures/history.ts';
import type { Report, Reporter } from '../../figures/report.ts';

export const dashboardFolder = 'packages/dashboard';

/** Facts about the gateway that are not in a report. */
interface DashboardFacts {
  /** If empty, the dashboard shows the host name of the machine. */
  readonly instanceName: string;
  readonly url: string;
  readonly backendUrl: string;
  readonly inFlightMax: number;
  readonly bufferedBytesMax: number;
  readonly certificates: readonly CertificateStatus[];
  readonly settings: readonly DescribedSetting[];
}

/** A setting in force. */
interface DescribedSetting {
  readonly variable: string;
  readonly flag: string;
  /** Without secrets. */
  readonly value: string;
  readonly unit: string | undefined;
  readonly source: 'default' | 'file' | 'environment' | 'flag' | 'socket';
  readonly help: string;
}

export interface DashboardSources extends Reporter {
  readonly isDraining: () => boolean;
  /** Receives internal errors. */
  readonly onFault: (error: unknown) => void;
  readonly facts: () => DashboardFacts;
}

export interface DashboardPort {
  /** Called at the end of each step (5 s) of the history, with the reports at that moment. */
  record(step: Stretch, reports: readonly Report[]): void;
  /** Answers a GET of `/` or a path under `/dashboard/`; resolves with undefined for an unknown path. */
  answer(path: string, query: URLSearchParams): Promise<FixedReply | undefined>;
}

export type CreateDashboard = (sources: DashboardSources, history: History) => DashboardPort;
