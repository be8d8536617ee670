// The embedded backend: a stand-in for the real work-item backend, for development, demonstrations and tests.
// It is no production store: one process, no authentication, no limits but Kestrel's, every write on the event
// loop. Sockets, start and stop are here; what is answered is in controller.ts, what is kept in store.ts.

import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createNetServer, type AddressInfo, type Server, type Socket } from 'node:net';

import type { Logger } from 'pino';

import { answerRequest, problem, type Answer } from './controller.ts';
import { openStore } from './store.ts';

/** Kestrel's default between two requests of a connection. */
const idleTimeoutMs = 130_000;
/** How long `stop` waits for requests under way before it cuts them. */
const stopTimeoutMs = 5_000;
/** A port that is free on 127.0.0.1 may be taken on ::1: so often another one is tried when port 0 is asked for. */
const freePortAttempts = 20;

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
 * Starts the backend; it answers when the promise resolves. Rejects, with what to do in the message and
 * the system's error as `code` and `cause`, when the database cannot be used or the port is taken.
 */
export async function startEmbeddedBackend(options: EmbeddedBackendOptions): Promise<EmbeddedBackend> {
  const { logger } = options;
  const store = openStore(options.database, options.sampleItems ?? false);
  const connections = new Map<Socket, { requestsUnderWay: number; lastAnswer: Promise<void> }>();
  let stopped: Promise<void> | undefined;

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
    socket.once('close', () => connections.delete(socket));
    if (stopped) socket.destroy();
  });

  // Node calls this from `close`, and takes a connection for idle as soon as its answer has been given to `end`:
  // one that a slow client is still reading would be cut. `stop` closes those that are really idle.
  server.closeIdleConnections = () => undefined;

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

  let servers: Server[];
  try {
    servers = await listen(server, options);
  } catch (error) {
    store.close();
    throw error;
  }
  for (const each of servers) {
    each.on('error', (error) =>
      logger?.error({ err: error }, 'the embedded backend cannot take a connection'),
    );
  }

  async function stop(): Promise<void> {
    const closed = servers.map((each) => once(each, 'close'));
    for (const each of servers) each.close();
    for (const [socket, { requestsUnderWay }] of connections) if (requestsUnderWay === 0) socket.destroy();
    const deadline = setTimeout(() => {
      for (const socket of connections.keys()) socket.destroy();
    }, stopTimeoutMs);
    await Promise.all(closed);
    clearTimeout(deadline);
    store.close();
  }

  const { port } = server.address() as AddressInfo;
  return {
    url: `http://${hostInUrl(options.host)}:${port}`,
    port,
    stop: () => (stopped ??= stop()),
  };
}

/** Listens as the options say; gives every server that now has a listening socket, `server` first. */
async function listen(server: Server, { host, port }: EmbeddedBackendOptions): Promise<Server[]> {
  if (host !== 'localhost') {
    await listenOn(server, host, port);
    return [server];
  }
  // Many systems resolve `localhost` to ::1 first and many clients try only that: both families answer.
  // The options are those that node:http gives its own sockets.
  const second = createNetServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    server.emit('connection', socket);
  });
  for (let attempt = 1; ; attempt++) {
    await listenOn(server, '127.0.0.1', port);
    try {
      await listenOn(second, '::1', (server.address() as AddressInfo).port);
      return [server, second];
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EADDRNOTAVAIL' || code === 'EAFNOSUPPORT') return [server];
      server.close();
      await once(server, 'close');
      if (port !== 0 || code !== 'EADDRINUSE' || attempt === freePortAttempts) throw error;
    }
  }
}

async function listenOn(server: Server, host: string, port: number): Promise<void> {
  try {
    server.listen({ host, port });
    await once(server, 'listening');
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const advice =
      code === 'EADDRINUSE'
        ? `port ${port} on ${host} is in use. Stop the program that has it, or choose another port (0 picks a free one).`
        : `cannot listen on ${host}, port ${port}: ${message}. Choose another host or port.`;
    throw Object.assign(new Error(`The embedded backend did not start: ${advice}`, { cause }), { code });
  }
}

/** A host that a client can put into a URL; an address that means "all of them" becomes `localhost`. */
function hostInUrl(host: string): string {
  if (host === '0.0.0.0' || host === '::') return 'localhost';
  return host.includes(':') ? `[${host}]` : host;
}
