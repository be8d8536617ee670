// A gateway in its own process, whose memory held-memory.ts measures. Run with --expose-gc.

import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { serveHttp2 } from '../../packages/core/hosts/http2/http2.ts';
import { corsRows } from '../../packages/core/options/cors-options.ts';
import { limitRows } from '../../packages/core/options/limits.ts';
import { createGateway } from '../../packages/core/hosts/common/create-gateway.ts';
import { gatewayRows } from '../../packages/core/options/gateway-options.ts';
import { readOptions, type ValuesOf } from '../../packages/core/options/rows.ts';
import { ClientListener } from '../../packages/core/hosts/clients/client-listener.ts';
import { anyCertificate } from '../helpers/certificates.ts';

export type Protocol = 'plain' | 'tls' | 'http2';

/** The memory of the process after a garbage collection, in bytes, and its number of connections. */
export interface Held {
  readonly resident: number;
  readonly counted: number;
  readonly connections: number;
}

const [protocol, given] = process.argv.slice(2) as [Protocol, string];
const table = { ...gatewayRows, ...corsRows, ...limitRows };
const values = readOptions(JSON.parse(given) as object, table).values as ValuesOf<typeof table>;
const nothing = (): void => undefined;
const observer = {
  onCallEnd: nothing,
  onMalformed: nothing,
  onStall: nothing,
  onBug: (error: unknown) => console.error(error),
};
const gateway = createGateway(values, { observer, guards: [], identityHeader: '' });
const protocols = protocol === 'http2' ? { h2: serveHttp2(values, gateway) } : {};
const clients = new ClientListener(
  values,
  gateway,
  protocol === 'plain' ? undefined : { tls: anyCertificate(), protocols },
);
await once(clients.listener.listen({ port: 0, host: '127.0.0.1', backlog: 4_096 }), 'listening');
process.on('message', () => {
  (globalThis as { gc?: () => void }).gc?.();
  const { size } = clients;
  process.send?.({
    resident: process.memoryUsage.rss(),
    counted: gateway.budget.bytes,
    connections: size,
  } satisfies Held);
});
process.on('disconnect', () => process.exit());
process.send?.((clients.listener.address() as AddressInfo).port);
