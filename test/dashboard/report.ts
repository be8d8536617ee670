// Reports and states of a gateway, for tests that start no gateway, and what the page shows of them.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';

import { createAdminServer } from '../../packages/command/admin/admin-server.ts';
import { createDashboard } from '../../packages/dashboard/dashboard-server.ts';
import type { Details, Flow, FlowName, Message } from '../../packages/dashboard/state.ts';
import type { DashboardSources } from '../../packages/figures/dashboard-port.ts';
import { Figures } from '../../packages/figures/figures.ts';
import type { Report, ReportRequest, Reports } from '../../packages/figures/report.ts';
import type { PageOptions, TestBrowser, WatchedPage } from '../helpers/browser.ts';
import { readState } from '../helpers/dashboard-state.ts';

/** A report of an idle process; `more` replaces fields. */
export function createReport(more: Partial<Report> = {}): Report {
  return {
    pid: 1,
    figures: new Figures().toJSON(),
    ...{ inFlight: 0, bufferedBytes: 0, residentBytes: 0, heapUsedBytes: 0, eventLoopDelayMs: 0 },
    ...{ clientConnections: 0, http2Connections: 0, http2Streams: 0, backendConnections: 0 },
    backend: { isReachable: true, since: 0, cause: undefined, seenAt: 0 },
    ...{ keys: undefined, redisAnswers: undefined, processMetrics: undefined },
    failures: [],
    ...more,
  };
}

/** The reports of a gateway in which no process has ended. */
export function joinReports(living: readonly Report[]): Reports {
  return { isServing: living.length > 0, living, ended: { figures: [], failures: [] } };
}

export const noFacts: DashboardSources['facts'] = () => ({
  ...{ instanceName: '', url: 'http://127.0.0.1:3000', backendUrl: '', inFlightMax: 1, bufferedBytesMax: 1 },
  ...{ certificates: [], settings: [] },
});

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
  }: {
    hasDashboard?: boolean;
    facts?: () => Partial<ReturnType<DashboardSources['facts']>>;
    allowedHosts?: readonly string[];
  } = {},
): Promise<void> {
  const { connections, endRecording } = createAdminServer(
    {
      reports: async (each) => joinReports(await reports(each)),
      isDraining: () => false,
      allowedHosts: () => allowedHosts,
      onFault,
      facts: () => ({ ...noFacts(), ...facts() }),
    },
    hasDashboard ? createDashboard : undefined,
  );
  const { listener } = connections;
  await once(listener.listen(0, '127.0.0.1'), 'listening');
  try {
    await act((listener.address() as AddressInfo).port);
  } finally {
    endRecording();
    listener.close();
    connections.closeAll();
  }
}

/** The traffic of a period in which all calls succeeded; `more` replaces figures. */
export function createFlow(more: Partial<Flow> = {}): Flow {
  return {
    requests: 1_000,
    byStatus: { '2xx': 1_000, '4xx': 0, '5xx': 0, none: 0 },
    failed: { backend: 0, gateway: 0, client: 0 },
    ...{ p50: 8, p99: 20, mean: 9 },
    ...{ backendCalls: 1_000, backendP50: 8, backendP99: 18, backendMean: 8 },
    ...more,
  };
}

/** The traffic of every operation; `more` replaces flows. */
export function createFlows(more: Partial<Record<FlowName, Flow>> = {}): Record<FlowName, Flow> {
  const flow = createFlow();
  return { all: flow, list: flow, create: flow, read: flow, update: flow, delete: flow, none: flow, ...more };
}

/** Opens the dashboard and waits until its figures are live. */
export async function openDashboard(browser: TestBrowser, adminPort: number): Promise<WatchedPage> {
  const watched = await browser.open(`http://127.0.0.1:${adminPort}/`);
  await watched.page.locator('#connection[data-state=live]').waitFor();
  return watched;
}

/** Waits until a visible element at `selector` has a text that matches. */
export async function reads(watched: WatchedPage, selector: string, text: RegExp, limitMs = 30_000): Promise<void> {
  const found = watched.page.locator(selector).filter({ hasText: text, visible: true }).first();
  await found.waitFor({ timeout: limitMs }).catch(async () => {
    const is = await watched.page.locator(selector).allTextContents();
    assert.fail(`after ${limitMs} ms ${selector} does not match ${String(text)}; its texts: ${is.join(' | ')}`);
  });
}

type Change = (state: Message & Details) => Partial<Message & Details>;

/**
 * Opens a dashboard that shows the state of an idle gateway, changed by the fields that `change` returns. `act` can `set`
 * another change, or undefined, as if the gateway had stopped.
 */
export async function withState(
  browser: TestBrowser,
  change: Change,
  act: (watched: WatchedPage, set: (change: Change | undefined) => void) => Promise<void>,
  options: PageOptions = {},
): Promise<void> {
  await withAdmin(
    () => [createReport()],
    async (port) => {
      const state = await readState(port);
      let { changedAt } = state;
      let shown: (Message & Details) | undefined = { ...state, ...change(state) };
      await using watched = await browser.open('about:blank', options);
      await watched.page.route('**/dashboard/state?*', async (route) => {
        if (shown === undefined) {
          await route.abort();
          return;
        }
        const query = new URL(route.request().url()).searchParams;
        const isKnown = query.get('changed') === String(shown.changedAt);
        const points = shown.points.filter(({ at }) => at > Number(query.get('after')));
        await route.fulfill({ json: { ...shown, points, ...(isKnown && { facts: undefined, failures: undefined }) } });
      });
      await watched.page.goto(`http://127.0.0.1:${port}/`);
      await watched.page.locator('#connection[data-state=live]').waitFor();
      await act(watched, (next) => {
        changedAt += 1;
        shown = next && { ...state, ...next(state), changedAt };
      });
    },
  );
}
