// The gateway as a server of its own in anyone's process: what the command serves with, without its settings, log and
// signals.

import type { GatewayObserver } from '../call/gateway.ts';
import { limitsOf, type LimitName } from '../call/limits.ts';
import { createGateway, type GatewayLimits } from './options/options.ts';
import { corsOptionNames, type CorsOptions } from './options/cors-options.ts';
import { listen, type Listener } from './common/listen.ts';
import { writeFailureLines } from './common/failure-lines.ts';
import type { ServerTls } from '../http1/handshake.ts';
import { ClientServer } from '../http1/server.ts';
import { findGuardProblems, guardOptionNames, type GuardOptions } from './options/guard-options.ts';
import { createHostGuards } from './common/host-guards.ts';

export interface GatewayServerOptions extends GatewayLimits, CorsOptions, GuardOptions {
  /** For a request's head, in milliseconds [D35]. Default 10,000. */
  readonly requestHeadersTimeoutMs?: number;
  /** Largest request head, in bytes; past it 431 [D27]. Default 16,384. */
  readonly requestHeadBytesMax?: number;
  /** For a request's head and body together, in milliseconds [D35]. Default 30,000. */
  readonly requestTimeoutMs?: number;
  /** Between two requests of a connection, in milliseconds [D35]. Default 72,000. */
  readonly idleTimeoutMs?: number;
  /** Serves https, and nothing else [D36, D38]. Default: plain http. */
  readonly tls?: ServerTls;
  /** Connections open at once; past it idle ones make room, or the new one is closed [D26]. Default 10,000. */
  readonly connectionsMax?: number;
  /** How long `close` waits for requests in flight, in milliseconds [D33]. Default 10,000. */
  readonly shutdownTimeoutMs?: number;
  /** Is told of every request that ends. Default: each failure is a line of `console.error`. */
  readonly observer?: GatewayObserver;
}

export interface GatewayServer {
  /**
   * Listens on `host` (default `localhost`) and `port` (0 picks a free one). Rejects where it cannot, and where `authJwksFile`
   * has no keys.
   */
  listen(port: number, host?: string): Promise<{ readonly port: number; readonly url: string }>;
  /** New connections get these certificates, open ones live on [D37]; throws, and changes nothing, when it cannot be. */
  renewTls(tls: ServerTls): void;
  /** Takes no new connection, lets requests in flight finish, and closes [D33]; what is left past the timeout is cut. */
  close(): Promise<void>;
}

/** A server that serves the gateway alone. Throws a `TypeError` that names every option that cannot be one. */
export function createGatewayServer(options: GatewayServerOptions): GatewayServer {
  const observer = options.observer ?? writeFailureLines();
  const guards = createHostGuards(options, observer);
  const gateway = createGateway(options, {
    observer,
    otherNames: otherOptions,
    problems: [...findTlsProblems(options.tls), ...findGuardProblems(options)],
    guards: guards === undefined ? [] : [guards],
    identityHeader: options.backendIdentityHeader,
  });
  const clients = new ClientServer(
    limitsOf(options, serverLimits),
    gateway,
    options.tls && { tls: options.tls },
  );
  const { shutdownTimeoutMs } = limitsOf(options, ['shutdownTimeoutMs']);
  let listener: Listener | undefined;
  return {
    listen: async (port, host = 'localhost') => {
      await guards?.start();
      listener = await listen(clients.listener, host, port, names, 'none', clients.scheme);
      return { port: listener.port, url: listener.url };
    },
    renewTls: (tls) => {
      const problems = findTlsProblems(tls);
      if (problems.length > 0) {
        throw new TypeError(`The gateway cannot be made: ${problems.join('; ')}.`);
      }
      clients.renewTls(tls);
    },
    close: async () => {
      gateway.isDraining = true;
      await listener?.close();
      const timeout = AbortSignal.timeout(shutdownTimeoutMs);
      await clients.drain(timeout, () => gateway.inFlight === 0);
      gateway.isCutting = true;
      clients.closeAll();
      guards?.close();
      await gateway.backend.close();
    },
  };
}

// What a server of clients has to be given.
const serverLimits = [
  'requestHeadBytesMax',
  'requestBytesMax',
  'requestHeadersTimeoutMs',
  'requestTimeoutMs',
  'replyStallTimeoutMs',
  'idleTimeoutMs',
  'connectionsMax',
] as const satisfies readonly LimitName[];

// Whether the platform takes them is found out now, and not with the first connection.
function findTlsProblems(tls: ServerTls | undefined): string[] {
  if (tls === undefined) {
    return [];
  }
  const given = tls as Partial<ServerTls> | null;
  const { cert, key, clientCa = '', minVersion = '1.2', ticketKeys } = given ?? {};
  const hasTexts = [cert, key, clientCa].every((each) => typeof each === 'string');
  if (!hasTexts || !['1.2', '1.3'].includes(minVersion) || (ticketKeys?.length ?? 48) !== 48) {
    return [
      "tls must be an object with cert and key in PEM text, and maybe clientCa, minVersion ('1.2' or '1.3') and ticketKeys (48 bytes)",
    ];
  }
  try {
    process.getBuiltinModule('node:tls').createSecureContext({ cert, key, ca: tls.clientCa });
    return [];
  } catch (error) {
    return [`tls cannot be used: ${(error as Error).message}`];
  }
}

const otherOptions: readonly (keyof GatewayServerOptions)[] = [
  ...serverLimits,
  'shutdownTimeoutMs',
  ...corsOptionNames,
  ...guardOptionNames,
  'observer',
  'tls',
];

const names = { host: 'listen(port, host)', port: 'listen(port, host)' };
