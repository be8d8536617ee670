// An HTTP/2 client that follows the standard.

import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { findHttp2Problem } from '../../packages/command/settings/tls-settings.ts';
import { noOpenssl } from './certificates.ts';
import { versionsOfCommand } from './command.ts';
import { headerOf, type CallOptions, type Headers, type Reply } from './raw-client.ts';

/** The `skip` option of tests with HTTP/2 in this process: false, or the reason why HTTP/2 is unavailable. */
export const noHttp2: string | false = noOpenssl === false ? (findHttp2Problem() ?? false) : noOpenssl;

/** Like `noHttp2`, but for the built command, which may run on another Node. */
export const noHttp2OfCommand: string | false =
  noHttp2 === false ? (findHttp2Problem(versionsOfCommand.node) ?? false) : noHttp2;

/** One connection; calls on it may be made at the same time. */
export class Http2Client implements AsyncDisposable {
  readonly session: ClientHttp2Session;

  private constructor(session: ClientHttp2Session) {
    this.session = session;
  }

  static async open(port: number): Promise<Http2Client> {
    const options = {
      rejectUnauthorized: false,
      // In MB; limits the bytes not yet sent.
      maxSessionMemory: 100,
      // Allows a client to repeat any field.
      strictSingleValueFields: false,
    };
    const session = connect(`https://127.0.0.1:${port}`, options);
    // Ignored, because the streams report the error, too.
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
  begin(method: string, path: string, { headers = [], body }: CallOptions = {}): ReturnType<Http2Client['request']> {
    const small = headers.map(([name, value]) => [name.toLowerCase(), value] as const);
    const host = small.find(([name]) => name === 'host')?.[1] ?? 'gateway.localhost';
    const others = small.filter(([name]) => name !== 'host');
    const fields: Headers = [
      [':method', method],
      [':scheme', 'https'],
      [':authority', host],
      [':path', path],
      ...others,
      ...(body === undefined ? [] : [['content-length', String(Buffer.byteLength(Buffer.from(body)))] as const]),
    ];
    return this.request(fields);
  }

  /** Sends a head of these fields. */
  request(fields: Headers): { readonly stream: ClientHttp2Stream; readonly reply: Promise<Reply> } {
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
  // A test may ignore the reply. Without this handler, a failed reply would then end the test's process.
  promise.catch(() => undefined);
  return promise;
}
