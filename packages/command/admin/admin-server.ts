// The admin listener: the dashboard, /livez, /readyz and /metrics, on a port of its own for operators. Each connection
// serves one request, and the limits are low [D59].

import { readRequestId } from '../../core/call/request-context.ts';
import { isAllowedHost } from '../../core/admission/host-names.ts';
import type { ServerLimits } from '../../core/http1/connection.ts';
import { fieldValue, type RequestHead } from '../../core/http1/head.ts';
import { ClientListener } from '../../core/hosts/clients/client-listener.ts';
import type { BrokenReason, Reply, RequestReceiver, Transport } from '../../core/http1/transport.ts';
import { BorrowedBytes } from '../../core/http1/borrowed-bytes.ts';
import { createFixedReply, replyHeaders, describeBroken, type FixedReply } from '../../core/replies.ts';
import {
  dashboardFolder,
  type CreateDashboard,
  type DashboardPort,
  type DashboardSources,
} from '../../figures/dashboard-port.ts';
import { findTroubles } from '../../figures/current-troubles.ts';
import { addFigures, History, stepMs } from '../../figures/history.ts';
import { createRegistry, metricsContentType } from '../metrics/metrics.ts';
import type { Reports } from '../../figures/report.ts';
import { share } from '../../figures/share.ts';

interface AdminSources extends DashboardSources {
  /** Host names that are accepted in addition to IP addresses and names of this machine [D57]. */
  readonly allowedHosts: () => readonly string[];
}

const limits: ServerLimits = {
  connectionsMax: 64,
  replacesOldest: true,
  requiresHost: false,
  requestHeadBytesMax: 8_192,
  // No reply depends on a body.
  requestBytesMax: 0,
  requestHeadersTimeoutMs: 5_000,
  requestTimeoutMs: 10_000,
  replyStallTimeoutMs: 10_000,
  // Not reached, because each reply closes its connection.
  idleTimeoutMs: 5_000,
};

const noSuccess = 'no call succeeded in the last 5 minutes: check BACKEND_URL';

const failures = {
  notOurName: json(403, { error: 'Host not allowed: use the IP address, or add the name to ADMIN_ALLOWED_HOSTS' }),
  notFound: json(404, { error: 'Not found' }),
  noDashboard: json(404, { error: `This build leaves out ${dashboardFolder}` }),
  methodNotAllowed: json(405, { error: 'Method not allowed' }, ['allow', 'GET, HEAD']),
  internalError: json(500, { error: 'Internal server error' }),
};

/** Creates the admin server and starts recording the history. No dashboard without `createDashboard`. */
export function createAdminServer(sources: AdminSources, createDashboard?: CreateDashboard) {
  const history = new History(performance.timeOrigin);
  const dashboard = createDashboard?.(sources, history);
  // Concurrent requests share one set of reports, because a set needs a report from every worker [D59].
  const reports = share(async () => await sources.reports({ withProcessMetrics: false, probesBackend: true }));
  const routes = new Map<string, () => FixedReply | Promise<FixedReply>>([
    ['/livez', () => json(200, { status: 'alive' })],
    ['/readyz', async () => describeReadiness(await reports(), sources.isDraining(), history)],
    ['/metrics', share(async () => await makeMetrics(sources, history))],
  ]);
  const answer = async ({ method, target, fields }: RequestHead): Promise<FixedReply> => {
    if (!isAllowedHost(fieldValue(fields, 'host'), sources.allowedHosts())) return failures.notOurName;
    const [, path = '', query = ''] = /^([^?]*)\??(.*)/s.exec(target) ?? [];
    const route = routes.get(path);
    const isOfDashboard = path === '/' || path.startsWith('/dashboard/');
    if (method === 'CONNECT' || ((route !== undefined || isOfDashboard) && method !== 'GET' && method !== 'HEAD')) {
      return failures.methodNotAllowed;
    }
    if (route !== undefined) return await route();
    if (dashboard === undefined) return path === '/' ? failures.noDashboard : failures.notFound;
    return (await dashboard.answer(path, new URLSearchParams(query))) ?? failures.notFound;
  };
  let lastFault: unknown;
  const answerFault = (error: unknown): FixedReply => {
    // Requests that share a failed result get the same error object, which is reported once.
    if (error !== lastFault) {
      lastFault = error;
      sources.onFault(error);
    }
    return failures.internalError;
  };
  const accept = (head: RequestHead, transport: Transport): RequestReceiver => {
    let isGone = false;
    const send = (reply: FixedReply): void => {
      if (!isGone) transport.reply(closingReply(reply, head.fields));
    };
    answer(head).catch(answerFault).then(send).catch(sources.onFault);
    const onGone = (): void => {
      isGone = true;
    };
    const start = () => transport.holdBody();
    return { start, onGone, onBody: ignore, onBodyEnd: ignore, onBroken: ignore, onStall: ignore };
  };
  const refuse = (reason: BrokenReason): Reply => closingReply(describeBroken(reason).reply, []);
  const handler = { accept, refuse, onFault: sources.onFault };
  return { connections: new ClientListener(limits, handler), endRecording: record(history, sources, dashboard) };
}

const ignore = (): void => undefined;

function closingReply(head: FixedReply, fields: readonly string[]): Reply {
  const body = BorrowedBytes.ofConstant(head.body);
  const requestId = readRequestId(fields);
  return { head, added: [], requestId, body, closes: true, drains: false };
}

// Returns the function that ends the recording.
function record(
  history: History,
  { reports, onFault }: AdminSources,
  dashboard: DashboardPort | undefined,
): () => void {
  let recording: Promise<void> | undefined;
  const recordStep = async (): Promise<void> => {
    const all = await reports({ withProcessMetrics: false, probesBackend: false });
    dashboard?.record(history.record(addFigures(all)), all.living);
  };
  const timer = setInterval(() => {
    recording ??= recordStep()
      .catch(onFault)
      .finally(() => {
        recording = undefined;
      });
  }, stepMs).unref();
  return () => clearInterval(timer);
}

// While the backend is unreachable, /readyz still answers 200. Otherwise the load balancer would remove all replicas,
// because they share the backend [D34].
function describeReadiness(reports: Reports, isDraining: boolean, history: History): FixedReply {
  const backend = reports.living[0]?.backend;
  const status = isDraining ? 'draining' : reports.isServing ? 'ready' : 'no worker answers';
  return json(status === 'ready' ? 200 : 503, {
    status,
    backend: backend && {
      reachable: backend.isReachable,
      since: new Date(backend.since).toISOString(),
      cause: backend.cause,
      problem: history.hasNoSuccess(addFigures(reports)) ? noSuccess : undefined,
    },
  });
}

async function makeMetrics({ reports, facts }: AdminSources, history: History): Promise<FixedReply> {
  const all = await reports({ withProcessMetrics: true, probesBackend: true });
  const text = await createRegistry(all, facts().certificates, findTroubles(all, history)).metrics();
  return createFixedReply(200, replyHeaders(metricsContentType), Buffer.from(text));
}

function json(status: number, content: object, headers: readonly string[] = []): FixedReply {
  const body = Buffer.from(JSON.stringify(content));
  return createFixedReply(status, replyHeaders('application/json; charset=utf-8', headers), body);
}
