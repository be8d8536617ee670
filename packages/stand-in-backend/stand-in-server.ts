// The embedded backend: a stand-in for the real work-item backend, for development, demonstrations and tests. Not for
// production, because it is one process without authentication, has only Kestrel's limits, and writes to its database on
// the event loop. This file handles sockets, start and stop; controller.ts answers requests; store.ts keeps the items.

import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import type { Logger } from 'pino';

import { listen, type Listener } from '../core/hosts/common/listen.ts';
import { startDeadline } from '../core/hosts/common/process-deadline.ts';
import { answerRequest, problem, type Answer } from './controller.ts';
import { openStore } from './store.ts';

/** As Kestrel's default. */
const idleTimeoutMs = 130_000;
const stopTimeoutMs = 5_000;

export interface EmbeddedBackendOptions {
  /** `localhost` is 127.0.0.1 and, if the machine has IPv6, ::1 as well. */
  readonly host: string;
  readonly port: number;
  /** A file, created if missing, or `:memory:`. */
  readonly database: string;
  readonly sampleItems?: boolean | undefined;
  /** Gets one `debug` line per request and one `error` line per fault. */
  readonly logger?: Logger | undefined;
}

interface EmbeddedBackend {
  /** The base address for a client on the same machine, without a trailing slash. */
  readonly url: string;
  readonly port: number;
  /** Waits up to 5 s for the requests in flight, then closes every connection and the database. */
  readonly stop: () => Promise<void>;
}

/**
 * Starts the backend. Resolves when it listens; rejects with a `StartError` if the database cannot be used or the port
 * is taken.
 */
export async function startEmbeddedBackend(options: EmbeddedBackendOptions): Promise<EmbeddedBackend> {
  const { logger } = options;
  const store = openStore(options.database, options.sampleItems ?? false);
  const connections = new Map<Socket, { requestsInFlight: number; lastAnswer: Promise<void> }>();
  let stopped: Promise<void> | undefined;

  const server = createServer({ keepAliveTimeout: idleTimeoutMs }, (request, response) => {
    const { socket } = request;
    const connection = connections.get(socket);
    if (!connection) return;
    connection.requestsInFlight++;
    response.once('close', () => {
      connection.requestsInFlight--;
      if (stopped && connection.requestsInFlight === 0) socket.end(() => socket.destroy());
    });
    // A connection's requests are answered in order, so that a pipelined read sees the write before it, as in Kestrel.
    connection.lastAnswer = connection.lastAnswer.then(() => answer(request, response));
  });
  // Tracks all connections, because Node tracks only connections with requests. The server's own `close` would wait for
  // a client that has sent half a head and, before Node 26, for a client that has sent nothing.
  server.on('connection', (socket) => {
    connections.set(socket, { requestsInFlight: 0, lastAnswer: Promise.resolve() });
    socket.once('close', () => connections.delete(socket));
    if (stopped) socket.destroy();
  });

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let given: Answer;
    try {
      given = await answerRequest(request, store);
    } catch (error) {
      if (response.destroyed) return;
      logger?.error({ err: error, method: request.method, path: request.url }, 'the embedded backend failed');
      given = problem(request, 500);
    }
    if (response.destroyed) return;
    if (stopped) response.setHeader('connection', 'close');
    if (given.body) response.setHeader('content-length', given.body.length);
    response.writeHead(given.status, given.headers).end(given.body);
    // Drops the rest of an unread body, so that the connection stays usable.
    request.resume();
    logger?.debug({ method: request.method, path: request.url, status: given.status }, 'answered');
  }

  let listener: Listener;
  try {
    listener = await listen(server, options.host, options.port, {
      host: '--embedded-backend-host (EMBEDDED_BACKEND_HOST)',
      port: '--embedded-backend-port (EMBEDDED_BACKEND_PORT)',
    });
  } catch (error) {
    store.close();
    throw error;
  }
  server.on('error', (error) => logger?.error({ err: error }, 'the embedded backend cannot take a connection'));

  async function stop(): Promise<void> {
    await listener.close();
    const closed = [...connections.keys()].map((socket) => once(socket, 'close'));
    for (const [socket, { requestsInFlight }] of connections) if (requestsInFlight === 0) socket.destroy();
    const callOff = startDeadline(stopTimeoutMs, () => {
      for (const socket of connections.keys()) socket.destroy();
    });
    await Promise.allSettled(closed);
    callOff();
    store.close();
  }

  return { url: listener.url, port: listener.port, stop: () => (stopped ??= stop()) };
}
