// An HTTP/2 client that follows the standard, and a gateway with HTTP/2 in this process.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { serveHttp2 } from '../../packages/core/hosts/http2/http2.ts';
import { corsRows } from '../../packages/core/hosts/options/cors-options.ts';
import { limitRows } from '../../packages/core/hosts/options/limits.ts';
import { createGateway, gatewayRows, type GatewaySurroundings } from '../../packages/core/hosts/options/options.ts';
import { readOptions, type ValuesOf } from '../../packages/core/hosts/options/rows.ts';
import type { GatewayServerOptions } from '../../packages/core/hosts/index.ts';
import { listen } from '../../packages/core/hosts/common/listen.ts';
import { findHttp2Problem } from '../../packages/command/settings/tls-settings.ts';
import { ClientServer } from '../../packages/core/http1/server.ts';
import { CertificateFolder, noOpenssl } from './certificates.ts';
import { beforeBackend, createObserver } from './in-process.ts';
import { headerOf, type CallOptions, type Headers, type Reply } from './raw-client.ts';

/** The `skip` option of tests with HTTP/2 in this process: false, or the reason why HTTP/2 is unavailable. */
export const noHttp2: string | false = noOpenssl === false ? (findHttp2Problem() ?? false) : noOpenssl;

/** The same for the built command, which may run on another Node. */
export const noHttp2OfCommand: string | false =
  noHttp2 === false ? (findHttp2Problem(versionOfCommand()) ?? false) : noHttp2;

function versionOfCommand(): string {
  const node = process.env['GATEWAY_NODE'];
  return node === undefined
    ? process.versions.node
    : execFileSync(node, ['-p', 'process.versions.node'], { encoding: 'utf8' }).trim();
}

/** A certificate for servers that need any certificate; created at the first call, deleted at exit. */
export function anyCertificate(): { cert: string; key: string; certFile: string; keyFile: string } {
  if (made === undefined) {
    const folder = new CertificateFolder();
    process.once('exit', () => folder[Symbol.dispose]());
    made = folder.issue(folder.authority('authority'), 'server');
  }
  return made;
}

let made: ReturnType<typeof anyCertificate> | undefined;

type ServerLimits = Partial<Omit<GatewayServerOptions, 'tls' | 'observer'>>;
type Surroundings = Omit<GatewaySurroundings, 'observer'>;

/** A gateway in this process with HTTP/2 and HTTP/1.1, in front of a scripted backend that answers `{"id":5}`. */
export function serveHttp2InProcess(limits: ServerLimits = {}, surroundings?: Surroundings) {
  return beforeBackend(({ url }) => startHttp2({ backendUrl: url, ...limits }, surroundings));
}

/** The same gateway in front of the test's own backend. */
export async function startHttp2(limits: ServerLimits, surroundings: Surroundings = {}) {
  const { told, observer } = createObserver();
  const table = { ...gatewayRows, ...corsRows, ...limitRows };
  const read = readOptions(limits, table);
  assert.deepEqual(read.problems, []);
  const values = read.values as ValuesOf<typeof table>;
  const gateway = createGateway(values, { ...surroundings, observer });
  const { cert, key } = anyCertificate();
  const clients = new ClientServer(values, gateway, {
    tls: { cert, key },
    protocols: { h2: serveHttp2(values, gateway) },
  });
  const listener = await listen(clients.listener, '127.0.0.1', 0, { host: 'host', port: 'port' });
  const { port } = listener;
  return {
    told,
    gateway,
    clients,
    port,
    connect: () => Http2Client.open(port),
    call: async (method: string, path: string, options?: CallOptions) => {
      await using client = await Http2Client.open(port);
      return await client.call(method, path, options);
    },
    drain: async (signal: AbortSignal) => {
      gateway.isDraining = true;
      await listener.close();
      await clients.drain(signal, () => gateway.inFlight === 0);
    },
    close: async () => {
      await listener.close();
      gateway.isCutting = true;
      clients.closeAll();
      await gateway.backend.close();
    },
  };
}

/** One connection; calls on it may be made at the same time. */
export class Http2Client implements AsyncDisposable {
  readonly session: ClientHttp2Session;

  private constructor(session: ClientHttp2Session) {
    this.session = session;
  }

  static async open(port: number): Promise<Http2Client> {
    const session = connect(`https://127.0.0.1:${port}`, {
      rejectUnauthorized: false,
      // In MB; limits the bytes not yet sent.
      maxSessionMemory: 100,
    });
    // The streams report the error, too.
    session.on('error', () => undefined);
    await new Promise((resolve, reject) => session.once('connect', resolve).once('error', reject));
    return new Http2Client(session);
  }

  get isOpen(): boolean {
    return !this.session.closed && !this.session.destroyed;
  }

  /** Sends a request and reads its reply; rejects when the stream is reset before the reply is whole. */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Reply> {
    const { stream, reply } = this.begin(method, path, options);
    stream.end(options.body === undefined ? undefined : Buffer.from(options.body));
    return await reply;
  }

  /** Sends a request's head; the caller writes and ends the body. */
  begin(
    method: string,
    path: string,
    { headers = [], body }: CallOptions = {},
  ): { readonly stream: ClientHttp2Stream; readonly reply: Promise<Reply> } {
    const small = headers.map(([name, value]) => [name.toLowerCase(), value] as const);
    const host = small.find(([name]) => name === 'host')?.[1] ?? 'gateway.localhost';
    const others = small.filter(([name]) => name !== 'host');
    const fields = [
      [':method', method],
      [':scheme', 'https'],
      [':authority', host],
      [':path', path],
      ...others,
      ...(body === undefined ? [] : [['content-length', String(Buffer.byteLength(Buffer.from(body)))] as const]),
    ];
    const stream = this.session.request(fields.flat(), { endStream: false });
    return { stream, reply: readReply(stream) };
  }

  destroy(): void {
    this.session.destroy();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.session.destroy();
    return Promise.resolve();
  }
}

function readReply(stream: ClientHttp2Stream): Promise<Reply> {
  const { promise, resolve, reject } = Promise.withResolvers<Reply>();
  let headers: Headers = [];
  const pieces: Buffer[] = [];
  let isWhole = false;
  stream
    .on('response', (_headers, _flags, fields: readonly string[]) => {
      headers = fields.flatMap((name, index) => (index % 2 === 0 ? [[name, fields[index + 1] ?? ''] as const] : []));
    })
    .on('data', (piece: Buffer) => pieces.push(piece))
    .on('end', () => {
      isWhole = headers.length > 0 && stream.rstCode === constants.NGHTTP2_NO_ERROR;
    })
    .on('error', reject)
    .on('close', () => {
      if (!isWhole) {
        reject(new Error(`the stream ended with ${stream.rstCode} before a whole reply`));
        return;
      }
      const status = Number(headers.find(([name]) => name === ':status')?.[1]);
      const others = headers.filter(([name]) => name !== ':status');
      const body = Buffer.concat(pieces);
      resolve({
        status,
        statusLine: `HTTP/2 ${status}`,
        headers: others,
        header: (name) => headerOf(others, name),
        body,
        text: body.toString('utf8'),
      });
    });
  // A test may ignore the reply.
  promise.catch(() => undefined);
  return promise;
}
