// Reports of a gateway process, for tests that start no gateway.

import { once } from 'node:events';
import type { AddressInfo } from 'node:net';

import { Figures } from '../../packages/figures/figures.ts';
import type { Report, ReportRequest } from '../../packages/figures/report.ts';
import { createAdminServer } from '../../packages/command/admin/server.ts';
import { createDashboard } from '../../packages/dashboard/server.ts';

/** A report of an idle process; `more` replaces fields. */
export function createReport(more: Partial<Report> = {}): Report {
  return {
    pid: 1,
    figures: new Figures().toJSON(),
    inFlight: 0,
    bufferedBytes: 0,
    clientConnections: 0,
    http2Connections: 0,
    http2Streams: 0,
    backendConnections: 0,
    backend: { isReachable: true, since: 0, cause: undefined, seenAt: 0 },
    keys: undefined,
    redisAnswers: undefined,
    failures: [],
    residentBytes: 0,
    heapUsedBytes: 0,
    eventLoopDelayMs: 0,
    processMetrics: undefined,
    ...more,
  };
}

/** Starts an admin listener that shows `reports`, and calls `act` with its port. */
export async function withAdmin(
  reports: (request: ReportRequest) => Report[] | Promise<Report[]>,
  act: (port: number) => Promise<void>,
  onFault = (error: unknown): void => {
    throw error;
  },
  {
    hasDashboard = true,
    facts = () => ({}),
    allowedHosts = [],
  }: { hasDashboard?: boolean; facts?: () => { inFlightMax?: number }; allowedHosts?: readonly string[] } = {},
): Promise<void> {
  const { connections, endRecording } = createAdminServer(
    {
      reports: async (each) => await reports(each),
      isDraining: () => false,
      allowedHosts: () => allowedHosts,
      onFault,
      facts: () => ({
        instanceName: '',
        url: 'http://127.0.0.1:3000',
        backendUrl: '',
        inFlightMax: 1,
        bufferedBytesMax: 1,
        certificates: [],
        settings: [],
        ...facts(),
      }),
    },
    hasDashboard ? createDashboard : undefined,
  );
  const { listener } = connections;
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  try {
    await act((listener.address() as AddressInfo).port);
  } finally {
    endRecording();
    listener.close();
    connections.closeAll();
  }
}
