// Listening: on one address, or for `localhost` on both loopback addresses, with messages that say what to
// do when that fails. Stopping here takes no connection away, unlike http.Server.close().

import { setImmediate as nextTurn } from 'node:timers/promises';
import { once } from 'node:events';
import { createServer, Server, Socket, type AddressInfo, type ListenOptions } from 'node:net';

import { handleOf } from '../../http1/node-internals.ts';
import { StartError } from './start-error.ts';

export interface Listener {
  readonly port: number;
  /** For instance `http://localhost:3000`: one that a client on this machine can use. */
  readonly url: string;
  /** Takes no new connection from now on; those that there are stay as they are. */
  close(): Promise<void>;
}

/**
 * How several processes share a port: `reuse-port`, each has a listening socket of its own and the system
 * deals connections out; `cluster`, the primary process of node:cluster takes them and hands them on.
 */
export type PortSharing = 'none' | 'reuse-port' | 'cluster';

const freePortTries = 20;
const backlog = 4_096;

/** What its user calls the address and the port of a listener, for messages. */
interface ListenNames {
  readonly host: string;
  readonly port: string;
}

/**
 * Makes `server` listen on `host` and `port` (0 picks a free one). `names` says what its user would change; `scheme` is of
 * its URL. Rejects with a StartError.
 */
export async function listen(
  server: Server,
  host: string,
  port: number,
  names: ListenNames,
  sharing: PortSharing = 'none',
  scheme: 'http' | 'https' = 'http',
): Promise<Listener> {
  const reusePort = sharing === 'reuse-port';
  try {
    const servers =
      host === 'localhost'
        ? await listenOnLocalhost(server, port, reusePort)
        : [await startListening(server, { host, port, reusePort })];
    const actual = portOf(server);
    return {
      port: actual,
      url: `${scheme}://${hostInUrl(host)}:${actual}`,
      close: async () => {
        await Promise.all(servers.map(stopListening));
      },
    };
  } catch (error) {
    throw new StartError(
      describe(error as NodeJS.ErrnoException & { address?: string }, host, port, names),
      error,
    );
  }
}

/**
 * Makes `server` take the connections of listening sockets that this process was given as `descriptors`, one or more: a
 * process that shares them, or comes after it, takes those that it leaves. Rejects with a StartError.
 */
export async function listenOnPassed(
  server: Server,
  descriptors: readonly number[],
  scheme: 'http' | 'https' = 'http',
): Promise<Listener> {
  const servers: Server[] = [];
  for (const descriptor of descriptors) {
    try {
      // By this way, and not by its number alone, node:cluster leaves it to the process that it is in.
      const place = new Socket({ fd: descriptor, readable: false, writable: false });
      const start = servers.length === 0 ? startListening : startHelper;
      const each = await start(server, place);
      servers.push(each);
      if (!isOnPort(each.address())) {
        throw new Error('it has no port');
      }
    } catch (error) {
      closeAll(servers);
      throw new StartError(
        `descriptor ${descriptor}, which LISTEN_FDS passes on, is no listening TCP socket: ${(error as Error).message}`,
        error,
      );
    }
  }
  const { address, port } = server.address() as AddressInfo;
  return {
    port,
    url: `${scheme}://${hostInUrl(address)}:${port}`,
    // At once: whoever has the sockets besides us has their queues too, and what waits in them.
    close: () => {
      closeAll(servers);
      return Promise.resolve();
    },
  };
}

function isOnPort(address: AddressInfo | string | null): address is AddressInfo {
  return typeof address === 'object' && address !== null && address.port > 0;
}

function closeAll(servers: readonly Server[]): void {
  for (const each of servers) {
    Server.prototype.close.call(each);
  }
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

/** Starts a second server, which hands its connections to `server`. */
async function startHelper(server: Server, place: ListenOptions | Socket): Promise<Server> {
  const helper = createServer({ allowHalfOpen: true, noDelay: true }, (socket: Socket) => {
    server.emit('connection', socket);
  });
  await startListening(helper, place);
  return helper.on('error', (error) => server.emit('error', error));
}

// One that a client on this machine can use: an address that means all of them is `localhost` too.
function hostInUrl(host: string): string {
  if (host === '0.0.0.0' || host === '::') {
    return 'localhost';
  }
  return host.includes(':') ? `[${host}]` : host;
}

/** Returns all servers that listen: one where the machine has no `::1`. */
async function listenOnLocalhost(server: Server, port: number, reusePort: boolean): Promise<Server[]> {
  for (let tries = 1; ; tries += 1) {
    await startListening(server, { host: '127.0.0.1', port, reusePort });
    try {
      const place = { host: '::1', port: portOf(server), ipv6Only: true, reusePort };
      return [server, await startHelper(server, place)];
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EADDRNOTAVAIL' || code === 'EAFNOSUPPORT') {
        return [server];
      }
      const closed = once(server, 'close');
      await stopListening(server);
      await closed;
      if (code !== 'EADDRINUSE' || port !== 0 || tries === freePortTries) {
        throw error;
      }
    }
  }
}

async function startListening(server: Server, place: ListenOptions | Socket): Promise<Server> {
  const listening = once(server, 'listening');
  if (place instanceof Socket) {
    server.listen(place, backlog);
  } else {
    server.listen({ backlog, ...place });
  }
  await listening;
  return server;
}

// Not http.Server's own close, which also destroys idle connections and with them a request that is already
// on its way [D33]; and not at any moment, since the system resets connections that it has completed and we
// have not taken yet. So their queue is cut to a single place and taken in, one in each turn of the event
// loop; then the socket closes in the very callback that takes the next, or when none has come for a while.
// A client that connects in those few microseconds is still reset: where that matters, a load balancer sends
// no new connection during SHUTDOWN_DELAY_MS.
/** `server` takes no new connection from now on; those that there are stay as they are. */
export async function stopListening(server: Server): Promise<void> {
  // Without this, a connection may be reset that a client made in the last turn before the end.
  handleOf(server)?.listen?.(0);
  // The first turn may have begun before now.
  await nextTurn();
  const giveUpAt = performance.now() + emptyQueueMsMax;
  while ((await takesConnection(server)) && performance.now() < giveUpAt);
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const close = (): void => {
    clearTimeout(timer);
    server.off('connection', close);
    // Calls back only when the last connection has gone, which is not waited for here.
    Server.prototype.close.call(server);
    resolve(undefined);
  };
  const timer = setTimeout(close, closeQuietMs);
  server.prependListener('connection', close);
  await promise;
  // The turn in which what was taken last gets its listeners.
  await nextTurn();
}

const emptyQueueMsMax = 500;
const closeQuietMs = 10;

/** True when the next turn of the event loop takes a connection. */
async function takesConnection(server: Server): Promise<boolean> {
  const turn = { hasTaken: false };
  const onConnection = (): void => {
    turn.hasTaken = true;
  };
  server.on('connection', onConnection);
  await nextTurn();
  server.off('connection', onConnection);
  return turn.hasTaken;
}

function describe(
  error: NodeJS.ErrnoException & { address?: string },
  host: string,
  port: number,
  { host: hostSetting, port: portSetting }: ListenNames,
): string {
  switch (error.code) {
    case 'EADDRINUSE':
      return `port ${port} on ${error.address ?? host} is in use: stop the program that has it, or choose another port with ${portSetting}`;
    case 'EACCES':
      return `port ${port} on ${host} needs more rights than this process has: choose one above 1023 with ${portSetting}`;
    // With EINVAL the system refuses an address of one link without its interface, such as fe80::1.
    case 'EADDRNOTAVAIL':
    case 'EINVAL':
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `this machine has no address ${host}: listen on localhost, 0.0.0.0 or one of its own addresses with ${hostSetting}`;
    default:
      return `cannot listen on ${host} port ${port}, which ${hostSetting} and ${portSetting} set: ${error.message}`;
  }
}
