// The embedded backend: a stand-in for the real work-item backend, for development, demonstrations and tests.
// It is no production store: one process, no authentication, no limits but Kestrel's, every write on the event
// loop. Sockets, start and stop are here; what is answered is in controller.ts, what is kept in store.ts.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import type { Logger } from 'pino';

import { listen, type Listener } from '../core/hosts/common/listen.ts';
import { answerRequest, problem, type Answer } from './controller.ts';
import { openStore } from './store.ts';

/** Kestrel's default between two requests of a connection. */
const idleTimeoutMs = 130_000;
/** How long `stop` waits for requests under way before it cuts them. */
const stopTimeoutMs = 5_000;

export interface EmbeddedBackendOptions {
  /** `localhost` is 127.0.0.1 and, where IPv6 exists, ::1 as well. */
  readonly host: string;
  /** 0 picks a free one, the same for both families. */
  readonly port: number;
  /** A file, created when it is not there, or `:memory:`. */
  readonly database: string;
  /** Whether a new database starts with a few work items. */
  readonly sampleItems?: boolean | undefined;
  /** Gets one `debug` line for each request and an `error` for each fault. */
  readonly logger?: Logger | undefined;
}

export interface EmbeddedBackend {
  /** The base address for a client on the same machine, without a slash at the end. */
  readonly url: string;
  readonly port: number;
  /** Finishes the requests under way (at most 5 s), closes every connection and the database. */
  readonly stop: () => Promise<void>;
}

/**
 * Starts the backend; it answers when the promise resolves. Rejects with a StartError when the database
 * cannot be used or the port is taken.
 */
export async function startEmbeddedBackend(options: EmbeddedBackendOptions): Promise<EmbeddedBackend> {
  const { logger } = options;
  const store = openStore(options.database, options.sampleItems ?? false);
  const connections = new Map<Socket, { requestsUnderWay: number; lastAnswer: Promise<void> }>();
  let stopped: Promise<void> | undefined;
  let lastClosed: (() => void) | undefined;

  const server = createServer({ keepAliveTimeout: idleTimeoutMs }, (request, response) => {
    const connection = connections.get(request.socket);
    if (!connection) return;
    connection.requestsUnderWay++;
    response.once('close', () => {
      connection.requestsUnderWay--;
      if (stopped && connection.requestsUnderWay === 0) request.socket.destroySoon();
    });
    // One after the other: a pipelined read sees the write before it, as behind Kestrel.
    connection.lastAnswer = connection.lastAnswer.then(() => answer(request, response));
  });
  // Our own record, because Node's ends at requests: a connection that has sent half a head, or (before
  // Node 26) nothing at all, would keep `close` waiting.
  server.on('connection', (socket) => {
    connections.set(socket, { requestsUnderWay: 0, lastAnswer: Promise.resolve() });
    socket.once('close', () => {
      connections.delete(socket);
      if (connections.size === 0) lastClosed?.();
    });
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
    // What is left of a body that nobody wanted is dropped, so that the connection stays usable.
    request.resume();
    logger?.debug({ method: request.method, path: request.url, status: given.status }, 'answered');
  }

  let listener: Listener;
  try {
    listener = await listen(server, options.host, options.port, names);
  } catch (error) {
    store.close();
    throw error;
  }
  server.on('error', (error) =>
    logger?.error({ err: error }, 'the embedded backend cannot take a connection'),
  );

  async function stop(): Promise<void> {
    await listener.close();
    const { promise, resolve } = Promise.withResolvers<undefined>();
    lastClosed = () => {
      resolve(undefined);
    };
    for (const [socket, { requestsUnderWay }] of connections) if (requestsUnderWay === 0) socket.destroy();
    if (connections.size === 0) lastClosed();
    const deadline = setTimeout(() => {
      for (const socket of connections.keys()) socket.destroy();
    }, stopTimeoutMs);
    await promise;
    clearTimeout(deadline);
    store.close();
  }

  return {
    url: listener.url,
    port: listener.port,
    stop: () => (stopped ??= stop()),
  };
}

const names = {
  host: '--embedded-backend-host (EMBEDDED_BACKEND_HOST)',
  port: '--embedded-backend-port (EMBEDDED_BACKEND_PORT)',
};
