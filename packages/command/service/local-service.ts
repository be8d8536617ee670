// The client listener in one process. A `Generation` handles its connections. After a reload there are several generations, until
// the calls of the older ones have ended.

import { createServer, type Socket } from 'node:net';

import { BufferBudget } from '../../core/body/budget.ts';
import type { Keeper } from '../../core/guards/ports/ports.ts';
import type { Listener } from '../../core/hosts/common/listen.ts';
import type { Connection } from '../../core/http1/connection.ts';
import { RecentFailures } from '../../figures/failures.ts';
import { Figures } from '../../figures/figures.ts';
import { createReporter } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { Log } from '../log/log.ts';
import { planReload, type Settings } from '../settings/settings.ts';
import { shareOf } from '../settings/shares.ts';
import { createKeeper } from './keeper.ts';
import { openListener } from './listener.ts';
import type { ServingProcesses, Parts, ProcessHandler } from './process-parts.ts';
import { createGeneration, type Generation } from './generation.ts';

interface LocalServiceOptions {
  /** False: another process accepts the connections, and calls `take`. */
  readonly listens?: boolean;
  readonly tls: TlsInForce;
  /** Descriptors of the listening sockets passed to the process. If there are none, the process opens its own socket. */
  readonly passed?: readonly number[];
  readonly keeper?: Keeper;
  readonly parts: Partial<Parts>;
}

export interface LocalService extends ServingProcesses {
  readonly connectionCount: number;
  /** Serves a connection that another process has accepted. */
  take(socket: Socket): void;
}

/**
 * Serves clients in this process. If the start fails, stops what was started and rejects with a StartError.
 */
export async function startLocalService(
  settings: Settings,
  { logger, output }: Log,
  { listens = true, tls, passed = [], keeper = createKeeper(), parts }: LocalServiceOptions,
): Promise<LocalService> {
  const records = { figures: new Figures(), failures: new RecentFailures() };
  output.onDrop = (lines) => records.figures.count('log line dropped', lines);
  // The newest `Generation` gets all new connections, and all new calls of the old connections. So no call begins with old
  // guards after a reload [D65].
  let current: Generation;
  const budget = new BufferBudget(shareOf(settings).bufferedBytesMax);
  const handler: ProcessHandler = {
    budget,
    accept: (head, transport, client) => current.accept(head, transport, client),
    refuse: (reason, client) => current.gateway.refuse(reason, client),
    onFault: (error) => current.gateway.onFault(error),
  };
  const context = { logger, records, keeper, parts, handler, connections: new Set<Connection>() };
  current = await createGeneration(settings, tls, context);
  let served = settings;
  // The newest comes first.
  let generations: readonly Generation[] = [current];
  let isDraining = false;
  // From now on no `Generation` is added.
  let isEnding = false;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => current.take(socket));
  let listener: Listener | undefined;
  try {
    if (listens) listener = await openListener(server, 'clients', settings, logger, passed);
  } catch (error) {
    await current.stop();
    throw error;
  }
  return {
    get url() {
      return listener?.url.replace('http:', `${current.scheme}:`) ?? '';
    },
    get connectionCount() {
      return context.connections.size;
    },
    take: (socket) => {
      socket.allowHalfOpen = true;
      current.take(socket);
    },
    hasWorkers: false,
    ...createReporter(records, () => generations),
    renewTls: (next) => {
      current.renewTls(next);
    },
    beginDrain: () => {
      isDraining = true;
      for (const each of generations) each.beginDrain();
    },
    finishDrain: async (signal) => {
      isEnding = true;
      await listener?.close();
      await Promise.all(generations.map((each) => each.drain(signal)));
    },
    stop: async () => {
      // If a reload is still creating a `Generation`, the reload stops the new `Generation` as soon as it exists.
      isEnding = true;
      await listener?.close();
      await Promise.all(generations.map((each) => each.stop()));
    },
    reload: async (next, nextTls) => {
      // With AUTH_JWKS_FILE, a new `Generation` is always created, because the file may have new keys.
      if (!planReload(served, next, true).needsConnections && next.authJwksFile === '') {
        // A reload without a change follows a changed DNS record [D68].
        current.gateway.backend.renewConnections();
        return { finished: Promise.resolve() };
      }
      const fresh = await createGeneration(next, nextTls, context);
      if (isEnding) {
        await fresh.stop();
        return { finished: undefined };
      }
      if (isDraining) fresh.beginDrain();
      const last = current;
      current = fresh;
      served = next;
      generations = [fresh, ...generations];
      budget.bytesMax = shareOf(next).bufferedBytesMax;
      // Only the calls' own time limits end this drain, so a reload cuts no call.
      const finish = async (): Promise<void> => {
        last.beginDrain();
        await last.drain(new AbortController().signal);
        await last.stop();
        generations = generations.filter((each) => each !== last);
      };
      return { finished: finish() };
    },
  };
}
