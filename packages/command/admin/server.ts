// The admin listener: the dashboard, /livez, /readyz and /metrics, on a port of its own for operators.

import type { IncomingMessage, ServerResponse } from 'node:http';

import { isAllowedHost } from '../../core/admission/host-names.ts';
import { latestBackendStatus } from '../../figures/backend-status.ts';
import { createConnectionServer, type ConnectionServer } from './connections.ts';
import {
  dashboardFolder,
  type AdminPage,
  type CreateDashboard,
  type DashboardPort,
  type DashboardSources,
} from './dashboard-port.ts';
import { addFigures, History } from '../../figures/history.ts';
import { createRegistry, metricsContentType } from '../metrics/metrics.ts';
import type { Report } from '../../figures/report.ts';
import { share } from './share.ts';

interface AdminSources extends DashboardSources {
  /** Host names that are accepted in addition to IP addresses and names of this machine [D57]. */
  readonly allowedHosts: () => readonly string[];
}

interface AdminServer extends ConnectionServer {
  /** Ends the recording of the history. */
  readonly close: () => void;
}

const noSuccess = 'no call succeeded in the last 5 minutes: check BACKEND_URL';
const noDashboard = `This build leaves out ${dashboardFolder}`;
const notOurName = 'Host not allowed: use the IP address, or add the name to ADMIN_ALLOWED_HOSTS';

/** Creates the admin server, with the dashboard if the build has it, and starts recording the history. */
export function createAdminServer(sources: AdminSources, createDashboard?: CreateDashboard): AdminServer {
  const history = new History(performance.timeOrigin, historyStepMs);
  const dashboard = createDashboard?.(sources, history);
  const stopRecording = record(history, sources, dashboard);
  // Concurrent requests share one set of reports, because every worker has to make one [D59].
  const reports = share(async () => await sources.reports({ withProcessMetrics: false, probesBackend: true }));
  const routes: ReadonlyMap<string, () => AdminPage | Promise<AdminPage>> = new Map<
    string,
    () => AdminPage | Promise<AdminPage>
  >([
    ['/livez', () => json(200, { status: 'alive' })],
    ['/readyz', async () => describeReadiness(await reports(), sources.isDraining(), history)],
    ['/metrics', share(async () => await makeMetrics(sources))],
  ]);
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    request.resume();
    const { host: hosts = [] } = request.headersDistinct;
    if (hosts.length > 1 || !isAllowedHost(hosts[0], sources.allowedHosts())) {
      send(response, json(403, { error: notOurName }));
      return;
    }
    const [, path = '', query = ''] = /^([^?]*)\??(.*)/s.exec(request.url ?? '') ?? [];
    const route = routes.get(path);
    const isOfDashboard = path === '/' || path.startsWith('/dashboard/');
    if (route === undefined && !isOfDashboard) {
      send(response, json(404, { error: 'Not found' }));
    } else if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('allow', 'GET, HEAD');
      send(response, json(405, { error: 'Method not allowed' }));
    } else if (route !== undefined) {
      send(response, await route());
    } else if (dashboard === undefined) {
      send(response, json(404, { error: path === '/' ? noDashboard : 'Not found' }));
    } else {
      send(response, (await dashboard.answer(path, new URLSearchParams(query))) ?? json(404, { error: 'Not found' }));
    }
  };
  let lastFault: unknown;
  const { server, cut } = createConnectionServer((request, response) => {
    answer(request, response).catch((error: unknown) => {
      // Requests that share a failed result get the same error object, which is reported once.
      if (error !== lastFault) {
        lastFault = error;
        sources.onFault(error);
      }
      if (response.headersSent) {
        response.destroy();
      } else {
        send(response, json(500, { error: 'Internal server error' }));
      }
    });
  });
  return { server, close: stopRecording, cut };
}

const historyStepMs = 5_000;

// Returns the function that ends the recording.
function record(
  history: History,
  { reports, onFault }: AdminSources,
  dashboard: DashboardPort | undefined,
): () => void {
  let isRecording = false;
  const timer = setInterval(() => {
    if (!isRecording) {
      isRecording = true;
      reports({ withProcessMetrics: false, probesBackend: false })
        .then((all) => {
          const step = history.record(all);
          if (step !== undefined) {
            dashboard?.record(step, all);
          }
        })
        .catch(onFault)
        .finally(() => {
          isRecording = false;
        });
    }
  }, historyStepMs).unref();
  return () => clearInterval(timer);
}

// While the backend is unreachable, /readyz still answers 200. Otherwise the load balancer would remove all replicas,
// because they share the backend [D34].
function describeReadiness(reports: readonly Report[], isDraining: boolean, history: History): AdminPage {
  const backend = latestBackendStatus(reports.map((report) => report.backend));
  const status = isDraining ? 'draining' : reports.length === 0 ? 'no worker answers' : 'ready';
  return json(status === 'ready' ? 200 : 503, {
    status,
    ...(backend === undefined
      ? {}
      : {
          backend: {
            reachable: backend.isReachable,
            since: new Date(backend.since).toISOString(),
            ...(backend.cause === undefined ? {} : { cause: backend.cause }),
            ...(history.hasNoSuccess(addFigures(reports)) ? { problem: noSuccess } : {}),
          },
        }),
  });
}

// The body is a buffer, so that replies waiting for slow clients can share it.
async function makeMetrics({ reports, facts }: AdminSources): Promise<AdminPage> {
  const all = await reports({ withProcessMetrics: true, probesBackend: true });
  const text = await createRegistry(all, facts().certificates).metrics();
  return { status: 200, contentType: metricsContentType, body: Buffer.from(text) };
}

function json(status: number, content: object): AdminPage {
  return { status, contentType: 'application/json; charset=utf-8', body: JSON.stringify(content) };
}

function send(response: ServerResponse, { status, contentType, headers, body }: AdminPage): void {
  response
    .writeHead(status, {
      'content-type': contentType,
      'content-length': Buffer.byteLength(body),
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      ...headers,
    })
    .end(body);
}
