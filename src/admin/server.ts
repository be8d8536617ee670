// The admin listener: /livez, /readyz and /metrics, on a port of its own so that no client reaches them.

import type { IncomingMessage, Server, ServerResponse } from 'node:http';

import { createServer } from '../node-http.ts';
import { latestBackendStatus } from './backend-status.ts';
import type { Reporter } from './report.ts';

export interface AdminSources extends Reporter {
  readonly isDraining: () => boolean;
  /** Is told of a fault of our own in answering here. */
  readonly onFault: (error: unknown) => void;
}

interface Page {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

type Route = (sources: AdminSources) => Page | Promise<Page>;

const routes: ReadonlyMap<string, Route> = new Map<string, Route>([
  ['/livez', () => json(200, { status: 'alive' })],
  ['/readyz', readyz],
  ['/metrics', metrics],
]);

/** The admin server, not yet listening. */
export function createAdminServer(sources: AdminSources): Server {
  return createServer((request, response) => {
    answer(request, response, sources).catch((error: unknown) => {
      sources.onFault(error);
      response.destroy();
    });
  });
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  sources: AdminSources,
): Promise<void> {
  request.resume();
  const route = routes.get((request.url ?? '').replace(/\?.*/s, ''));
  if (route === undefined) {
    send(response, json(404, { error: 'Not found' }));
  } else if (request.method !== 'GET' && request.method !== 'HEAD') {
    response.setHeader('allow', 'GET, HEAD');
    send(response, json(405, { error: 'Method not allowed' }));
  } else {
    send(response, await route(sources));
  }
}

// A backend that is away does not make this 503: every replica shares it, and all of them would go [D34].
async function readyz({ reports, isDraining }: AdminSources): Promise<Page> {
  const all = await reports({ withProcessMetrics: false });
  const backend = latestBackendStatus(all.map((report) => report.backend));
  return json(isDraining() ? 503 : 200, {
    status: isDraining() ? 'draining' : 'ready',
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

// The library behind it is loaded when first asked for: whoever does not scrape does not pay for it.
async function metrics({ reports }: AdminSources): Promise<Page> {
  const { metricsContentType, renderMetrics } = await import('./metrics.ts');
  const body = await renderMetrics(await reports({ withProcessMetrics: true }));
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
