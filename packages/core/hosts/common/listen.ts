// Listens on an address, on both loopback addresses (`localhost`), or on all addresses (`::`). Explains failures. Closing a
// listener leaves all connections open, while http.Server.close() would close idle connections.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { once } from 'node:events';
import { createServer, Server, Socket, type AddressInfo, type ListenOptions } from 'node:net';

import { normalizeAddress } from '../../admission/client-address.ts';
import { handleOf } from '../../http1/node-internals.ts';
import { StartError } from './start-error.ts';

export interface Listener {
  readonly port: number;
  /** A URL that works on this machine, for instance `http://localhost:3000`. */
  readonly url: string;
  close(): Promise<void>;
}

const freePortTries = 20;
const backlog = 4_096;

/** The names that messages use for the settings or arguments of host and port. */
interface ListenNames {
  readonly host: string;
  readonly port: string;
}

/**
 * Makes `server` listen on `host` and `port` (0 picks a free port). On a machine without IPv6, `::` means `0.0.0.0`. Error
 * messages use `names`; the URL has `scheme`.
 * Rejects with a StartError, also if `signal` is aborted meanwhile. Then nothing listens.
 */
export async function listen(
  server: Server,
  host: string,
  port: number,
  names: ListenNames,
  scheme: 'http' | 'https' = 'http',
  signal?: AbortSignal,
): Promise<Listener> {
  try {
    const servers =
      host === 'localhost'
        ? await listenOnLocalhost(server, port, signal)
        : [await listenOnHost(server, host, port, signal)];
    const actual = portOf(server);
    return {
      port: actual,
      url: `${scheme}://${hostInUrl(host)}:${actual}`,
      close: async () => {
        await Promise.all(servers.map(stopListening));
      },
    };
  } catch (error) {
    throw new StartError(describe(error as NodeJS.ErrnoException & { address?: string }, host, port, names), error);
  }
}

/**
 * Makes `server` accept connections from the inherited listening sockets with these `descriptors` (at least one). After
 * `close`, the connections that are still in the queue are left to another process with the same sockets, or to the
 * successor of this process. Rejects with a StartError.
 */
export async function listenOnPassed(
  server: Server,
  descriptors: readonly number[],
  scheme: 'http' | 'https' = 'http',
): Promise<Listener> {
  const servers: Server[] = [];
  for (const descriptor of descriptors) {
    try {
      // The descriptor is passed as a socket, because `listen` with `fd` ignores the option `backlog`.
      const place = new Socket({ fd: descriptor, readable: false, writable: false });
      const start = servers.length === 0 ? startListening : startHelper;
      const each = await start(server, place);
      servers.push(each);
      // A string or null: a socket of another kind.
      if (((each.address() as Partial<AddressInfo> | null)?.port ?? 0) === 0) throw new Error('it has no port');
    } catch (error) {
      closeAll(servers);
      throw new StartError(
        `descriptor ${descriptor}, passed by another process, is not a listening TCP socket: ${(error as Error).message}`,
        error,
      );
    }
  }
  const { address, port } = server.address() as AddressInfo;
  return {
    port,
    url: `${scheme}://${hostInUrl(address)}:${port}`,
    // Closes immediately, because other processes that share the sockets accept the queued connections.
    close: () => {
      closeAll(servers);
      return Promise.resolve();
    },
  };
}

function closeAll(servers: readonly Server[]): void {
  for (const each of servers) {
    Server.prototype.close.call(each);
  }
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

/** Starts a further server, which passes its connections to `server`. If `server` does not read them, neither does it. */
async function startHelper(server: Server, place: ListenOptions | Socket, signal?: AbortSignal): Promise<Server> {
  const { pauseOnConnect } = server as Server & { readonly pauseOnConnect: boolean };
  const helper = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect }, (socket: Socket) =>
    server.emit('connection', socket),
  );
  await startListening(helper, place, signal);
  return helper.on('error', (error) => server.emit('error', error));
}

// Returns a host name that works on this machine: `localhost` for a wildcard address. A URL cannot have the zone of an IPv6
// address, such as `%eth0`.
function hostInUrl(host: string): string {
  if (isWildcard(host)) return 'localhost';
  return host.includes(':') ? `[${host.replace(/%.*/, '')}]` : host;
}

/** True if a server that listens on `host` gets connections to every address of the machine. */
export function isWildcard(host: string): boolean {
  return ['0.0.0.0', '::'].includes(normalizeAddress(host));
}

// Linux can be started without IPv6 (EAFNOSUPPORT). Other systems refuse the address.
function isWithoutIpv6(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'EADDRNOTAVAIL' || code === 'EAFNOSUPPORT';
}

async function listenOnHost(
  server: Server,
  host: string,
  port: number,
  signal: AbortSignal | undefined,
): Promise<Server> {
  try {
    return await startListening(server, { host, port }, signal);
  } catch (error) {
    if (!isWildcard(host) || !isWithoutIpv6(error)) throw error;
    return await startListening(server, { host: '0.0.0.0', port }, signal);
  }
}

/** Returns the listening servers: two, or one if the machine has no `::1`. */
async function listenOnLocalhost(server: Server, port: number, signal: AbortSignal | undefined): Promise<Server[]> {
  for (let tries = 1; ; tries += 1) {
    await startListening(server, { host: '127.0.0.1', port }, signal);
    try {
      const place = { host: '::1', port: portOf(server), ipv6Only: true };
      return [server, await startHelper(server, place, signal)];
    } catch (error) {
      if (isWithoutIpv6(error)) return [server];
      const closed = once(server, 'close');
      await stopListening(server);
      await closed;
      const { code } = error as NodeJS.ErrnoException;
      if (code !== 'EADDRINUSE' || port !== 0 || tries === freePortTries) throw error;
    }
  }
}

async function startListening(server: Server, place: ListenOptions | Socket, signal?: AbortSignal): Promise<Server> {
  if (place instanceof Socket) {
    server.listen(place, backlog);
  } else {
    server.listen({ backlog, ...place });
  }
  try {
    await once(server, 'listening', { signal });
  } catch (error) {
    // Otherwise the server would listen as soon as the name of its host is resolved.
    if (signal?.aborted === true) Server.prototype.close.call(server);
    throw error;
  }
  return server;
}

// Calls net.Server's close, because http.Server's close would destroy idle connections, on which a request may be
// arriving [D33]. When a listening socket is closed, the OS resets connections that are established but not yet
// accepted. So the accept queue is first reduced to one place. Then the queue is emptied, one connection per event-loop
// turn, for at most `emptyQueueMsMax`. Last, the socket is closed: in the callback of the next connection, or after
// `closeQuietMs` without a connection. A client that connects in the few microseconds before the close is still reset.
// A load balancer prevents this if it stops sending connections before the shutdown.
/** Makes `server` stop accepting connections. Open connections stay open. */
export async function stopListening(server: Server): Promise<void> {
  // Reduces the accept queue to one place. Otherwise a connection made in the turn before the close may be reset.
  handleOf(server)?.listen?.(0);
  // The current turn may have accepted connections before the queue was reduced. So only later turns
  // can show whether the queue is empty.
  await nextTurn();
  const giveUpAt = performance.now() + emptyQueueMsMax;
  while ((await acceptsConnection(server)) && performance.now() < giveUpAt);
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const close = (): void => {
    clearTimeout(timer);
    server.off('connection', close);
    // The callback of this `close` is not awaited, because Node calls it only after the last connection has closed.
    Server.prototype.close.call(server);
    resolve(undefined);
  };
  // `setImmediate`: a connection that arrived in time is accepted first.
  const timer = setTimeout(setImmediate, closeQuietMs, close);
  server.prependListener('connection', close);
  await promise;
  // Waits for the turn in which the last accepted connection gets its listeners.
  await nextTurn();
}

const emptyQueueMsMax = 500;
const closeQuietMs = 10;

/** Resolves with true if the next event-loop turn accepts a connection. */
async function acceptsConnection(server: Server): Promise<boolean> {
  const turn = { hasAccepted: false };
  const onConnection = (): void => {
    turn.hasAccepted = true;
  };
  server.on('connection', onConnection);
  await nextTurn();
  server.off('connection', onConnection);
  return turn.hasAccepted;
}

function describe(
  error: NodeJS.ErrnoException & { address?: string },
  host: string,
  port: number,
  { host: hostSetting, port: portSetting }: ListenNames,
): string {
  switch (error.code) {
    case 'EADDRINUSE':
      return `port ${port} on ${error.address ?? host} is in use: stop the program that uses it, or choose another port with ${portSetting}`;
    case 'EACCES':
      return `port ${port} on ${host} needs more privileges than this process has: choose a port above 1023 with ${portSetting}`;
    // EINVAL: a link-local address, such as fe80::1, without its interface.
    case 'EADDRNOTAVAIL':
    case 'EAFNOSUPPORT':
    case 'EINVAL':
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `this machine has no address ${host}: listen on localhost, :: or one of its own addresses with ${hostSetting}`;
    default:
      return `cannot listen on ${host} port ${port} (from ${hostSetting === portSetting ? hostSetting : `${hostSetting} and ${portSetting}`}): ${error.message}`;
  }
}
