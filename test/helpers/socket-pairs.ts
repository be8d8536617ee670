// Both ends of one connection over loopback, closed after the test.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from 'node:tls';

async function listen(t: TestContext, server: Server): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

function destroyAfter(t: TestContext, ...sockets: readonly Socket[]): void {
  t.after(() => {
    for (const socket of sockets) socket.destroy();
  });
}

/** A TCP connection of which neither end reads. */
export async function openPair(t: TestContext) {
  const server = createServer({ pauseOnConnect: true });
  const client = connect(await listen(t, server), '127.0.0.1').pause();
  const [socket] = (await once(server, 'connection')) as [Socket];
  destroyAfter(t, client, socket);
  return { server, client, socket };
}

/** Opens a TLS connection. Returns the server's end, `secure`, the TCP socket under it, `carrier`, and `client`. */
export async function openSecurePair(t: TestContext) {
  const file = (name: string) => readFileSync(new URL(`../vectors/tls/${name}.pem`, import.meta.url));
  const cert = file('backend-certificate');
  const server = createTlsServer({ cert, key: file('backend-key') });
  const port = await listen(t, server);
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const secured = once(server, 'secureConnection') as Promise<[TLSSocket]>;
  const client = connectTls({ port, host: '127.0.0.1', ca: cert });
  destroyAfter(t, client);
  const [carrier] = await accepted;
  const [secure] = await secured;
  destroyAfter(t, secure);
  return { secure, carrier, client };
}
