// The admin listener: the dashboard, /livez, /readyz and /metrics, on a port of its own so that no client
// reaches them.

import type { IncomingMessage, Server, ServerResponse } from 'node:http';

import { isAllowedHost } from '../guards/host-names.ts';
import { createServer } from '../node-http.ts';
import { latestBackendStatus } from './backend-status.ts';
import { Dashboard, type DashboardSources } from './dashboard.ts';
import { History } from './history.ts';
import { metricsContentType, renderMetrics } from './metrics.ts';

/** `onFault` is told of a fault of our own in answering here. */
export interface AdminSources extends DashboardSources {
  /** The names under which it may be called, beside addresses and those of this machine [D57]. */
  readonly allowedHosts: () => readonly string[];
}

export interface AdminServer {
  /** Not yet listening. */
  readonly server: Server;
  /** Ends what would go on by itself: the dashboard's streams, and its history. */
  readonly close: () => void;
}

interface Page {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

type Route = (sources: AdminSources) => Page | Promise<Page>;

const notOurName =
  'Not a name of this listener: call it by its IP address, or add the name to ADMIN_ALLOWED_HOSTS';

const routes: ReadonlyMap<string, Route> = new Map<string, Route>([
  ['/livez', () => json(200, { status: 'alive' })],
  ['/readyz', readyz],
  ['/metrics', metrics],
]);

/** The admin server, and the dashboard's history from now on. */
export function createAdminServer(sources: AdminSources): AdminServer {
  const history = new History(performance.timeOrigin, historyStepMs);
  const stopRecording = record(history, sources);
  const dashboard = new Dashboard(sources, history);
  // A request without a `Host` is refused like one with a wrong one, and not by node:http.
  const server = createServer({ requireHostHeader: false }, (request, response) => {
    answer(request, response, sources, dashboard).catch((error: unknown) => {
      sources.onFault(error);
      if (response.headersSent) {
        response.destroy();
      } else {
        send(response, json(500, { error: 'Internal server error' }));
      }
    });
  });
  return {
    server,
    close: () => {
      stopRecording();
      dashboard.close();
    },
  };
}

const historyStepMs = 5_000;

// Gives what ends it.
function record(history: History, { reports, onFault }: AdminSources): () => void {
  let isRecording = false;
  const timer = setInterval(() => {
    if (!isRecording) {
      isRecording = true;
      reports({ withProcessMetrics: false, probesBackend: false })
        .then((all) => {
          history.record(all);
        })
        .catch(onFault)
        .finally(() => {
          isRecording = false;
        });
    }
  }, historyStepMs).unref();
  return () => {
    clearInterval(timer);
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  sources: AdminSources,
  dashboard: Dashboard,
): Promise<void> {
  request.resume();
  const { host: hosts = [] } = request.headersDistinct;
  if (!isAllowedHost(hosts.length === 1 ? hosts[0] : undefined, sources.allowedHosts())) {
    send(response, json(403, { error: notOurName }));
    return;
  }
  const path = (request.url ?? '').replace(/\?.*/s, '');
  const route = routes.get(path);
  const isOfDashboard = path === '/' || path.startsWith('/dashboard/');
  if (route === undefined && !isOfDashboard) {
    send(response, json(404, { error: 'Not found' }));
  } else if (request.method !== 'GET' && request.method !== 'HEAD') {
    response.setHeader('allow', 'GET, HEAD');
    send(response, json(405, { error: 'Method not allowed' }));
  } else if (route !== undefined) {
    send(response, await route(sources));
  } else if (!(await dashboard.answer(path, request, response))) {
    send(response, json(404, { error: 'Not found' }));
  }
}

// A backend that is away does not make this 503: every replica shares it, and all of them would go [D34].
async function readyz({ reports, isDraining }: AdminSources): Promise<Page> {
  const all = await reports({ withProcessMetrics: false, probesBackend: true });
  const backend = latestBackendStatus(all.map((report) => report.backend));
  const status = isDraining() ? 'draining' : all.length === 0 ? 'no worker answers' : 'ready';
  return json(status === 'ready' ? 200 : 503, {
    status,
    ...(backend === undefined
      ? {}
      : {
          backend: {
            reachable: backend.isReachable,
            since: new Date(backend.since).toISOString(),
            ...(backend.cause === undefined ? {} : { cause: backend.cause }),
          },
        }),
  });
}

async function metrics({ reports }: AdminSources): Promise<Page> {
  const body = await renderMetrics(await reports({ withProcessMetrics: true, probesBackend: true }));
  return { status: 200, contentType: metricsContentType, body };
}

function json(status: number, content: object): Page {
  return { status, contentType: 'application/json; charset=utf-8', body: JSON.stringify(content) };
}

function send(response: ServerResponse, { status, contentType, body }: Page): void {
  response
    .writeHead(status, {
      'content-type': contentType,
      'content-length': Buffer.byteLength(body),
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    })
    .end(body);
}
