// The gateway as an embedded server: the command's HTTP server, without the command's settings, log and signals.

import { once } from 'node:events';
import type { Server } from 'node:net';

import type { GatewayObserver } from '../call/gateway.ts';
import type { GuardOptions } from '../options/guard-options.ts';
import type { ServerTls } from './clients/handshake.ts';
import { ClientListener } from './clients/client-listener.ts';
import { withCode } from './common/gateway-error.ts';
import { createHostGateway, createOptionsError, hostRows } from './common/host-gateway.ts';
import { reportOutage } from './common/host-guards.ts';
import { listen, type Listener } from './common/listen.ts';
import { startDeadline } from './common/process-deadline.ts';
import { corsRows, type CorsOptions } from '../options/cors-options.ts';
import { onlyInCode } from '../options/kinds.ts';
import { limitRows, shutdownTimeoutRow } from '../options/limits.ts';
import type { observerRows } from '../options/observer-options.ts';
import type { GatewayLimits } from '../options/gateway-options.ts';
import { Problem } from '../options/problem.ts';
import type { OptionsOf } from '../options/rows.ts';

// Creates a TLS context, so that an invalid certificate is reported now and not at the first connection.
const serverTls = onlyInCode<ServerTls>((given) => {
  const { cert, key, clientCa = '', minVersion = '1.2', ticketKeys } = (given as Partial<ServerTls> | null) ?? {};
  const hasTexts = [cert, key, clientCa].every((each) => typeof each === 'string');
  if (!hasTexts || !['1.2', '1.3'].includes(minVersion) || (ticketKeys?.length ?? 48) !== 48) {
    return new Problem(
      "must be an object with cert and key as PEM strings, and optionally clientCa, minVersion ('1.2' or '1.3') and ticketKeys (48 bytes)",
    );
  }
  try {
    process.getBuiltinModule('node:tls').createSecureContext({ cert, key, ca: given.clientCa });
    return given;
  } catch (error) {
    return new Problem(`cannot be used: ${(error as Error).message}`);
  }
});

const serverRows = {
  /** If given, the server serves only https [D36, D38]. Otherwise it serves only plain http. */
  tls: { kind: serverTls },
  /** Time in ms that `close` waits for requests in flight. Requests that take longer are cut [D33]. Default 10,000. */
  shutdownTimeoutMs: shutdownTimeoutRow,
};

export interface GatewayServerOptions
  extends
    GatewayLimits,
    CorsOptions,
    GuardOptions,
    OptionsOf<typeof limitRows & typeof serverRows & typeof observerRows> {}

export interface GatewayServer {
  /**
   * Listens on `host` (default `localhost`) and `port` (0 picks a free one). Rejects if it cannot listen, if
   * `authJwksFile` has no keys, and after `close`, also if `close` is called meanwhile.
   */
  listen(port: number, host?: string): Promise<{ readonly port: number; readonly url: string }>;
  /** Uses these certificates for new connections [D37]. If they are invalid, throws a `TypeError` and changes nothing. */
  renewTls(tls: ServerTls): void;
  /**
   * Stops accepting connections, waits for requests in flight, and closes all connections [D33]. Requests that are still
   * in flight after `shutdownTimeoutMs` are cut. A closed server cannot be used again.
   */
  close(): Promise<void>;
  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Creates a server for the gateway alone. Throws a `TypeError` that lists every invalid option. */
export function createGatewayServer(options: GatewayServerOptions): GatewayServer {
  const table = { ...serverRows, ...hostRows, ...corsRows, ...limitRows };
  const { gateway, guards, values, end } = createHostGateway(options, table);
  const clients = new ClientListener(values, gateway, values.tls && { tls: values.tls });
  const closing = new AbortController();
  const { signal } = closing;
  const aborted = once(signal, 'abort');
  let opening: Promise<Listener> | undefined;
  let closed: Promise<void> | undefined;
  watchAccepting(clients.listener, gateway.observer);
  const open = async (port: number, host: string): Promise<Listener> => {
    try {
      // The guards may wait for a slow key file.
      await Promise.race([guards?.start(), aborted]);
      return await listen(clients.listener, host, port, names, clients.scheme, signal);
    } catch (error) {
      opening = undefined;
      guards?.close();
      throw signal.aborted ? createClosedError() : error;
    }
  };
  const close = async (): Promise<void> => {
    gateway.isDraining = true;
    closing.abort();
    const listener = await opening?.catch(() => undefined);
    await listener?.close();
    const timeout = new AbortController();
    const callOff = startDeadline(values.shutdownTimeoutMs, () => timeout.abort());
    await clients.drain(timeout.signal, () => gateway.inFlight === 0);
    callOff();
    gateway.isCutting = true;
    clients.closeAll();
    await end();
  };
  const closeOnce = (): Promise<void> => (closed ??= close());
  return {
    listen: async (port, host = 'localhost') => {
      if (signal.aborted) throw createClosedError();
      if (opening !== undefined) throw withCode('ERR_GATEWAY_LISTEN', new Error('listen() was called before'));
      opening = open(port, host);
      const listener = await opening;
      return { port: listener.port, url: listener.url };
    },
    renewTls: (tls) => {
      const accepted = serverTls.accept(tls);
      if (accepted instanceof Problem) throw createOptionsError(`tls ${accepted.text}`);
      clients.renewTls(accepted);
    },
    close: closeOnce,
    [Symbol.asyncDispose]: closeOnce,
  };
}

function createClosedError(): Error {
  return withCode('ERR_GATEWAY_CLOSED', new Error('the server was closed'));
}

// A server that cannot accept a connection emits an error, for instance if no file descriptor is free. It continues, so
// the error must not end the process.
function watchAccepting(listener: Server, observer: GatewayObserver): void {
  let isFailing = false;
  const report = (cause: string | undefined): void => {
    isFailing = cause !== undefined;
    reportOutage(observer, 'accept', cause);
  };
  listener
    .on('error', ({ message }) => {
      // If the listener cannot be opened, `listen` rejects with the error.
      if (listener.listening && !isFailing) report(message);
    })
    .on('connection', () => {
      if (isFailing) report(undefined);
    });
}

const names = { host: 'listen(port, host)', port: 'listen(port, host)' };
