// HTTP/2 on connections of TLS [D39]: a session of the platform's for each, whose streams are exchanges. Here is what is
// about the connection: its limits, its time, its turns, its end. The core API, since the compatible one costs 1.6 times
// as much. Loaded only where HTTP/2 is on.

import {
  constants,
  performServerHandshake,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';

import { monotonicMs } from '../../time/monotonic.ts';
import type { Connection, Serve, ServerLimits } from '../../http1/connection.ts';
import { StallWatch } from '../../http1/stall-watch.ts';
import type { Incoming } from '../../http1/transport.ts';
import { Http2Exchange, type ExchangeOwner, type Http2Context } from './http2-exchange.ts';
import { fieldsMax } from './http2-head.ts';
import { PacedSocket } from './paced-socket.ts';

/** Streams of one connection that are open at once [RFC 9113, 5.1.2]. */
const streamsMax = 100;
// Beyond it the library resets the stream, before it makes strings of them. Its own list of them doubles from 12 to 96.
const pairsMax = 96;
/** Heads of one connection's open streams, in bytes as `heldBytes` counts them; beyond it streams are refused. */
export const headBytesMax = 1_572_864;
// Memory of an open stream, and of a field beside its text, as measured with Node 26. The library keeps its list as long
// as the stream is open.
const bytesOfStream = 8_192;
const bytesOfField = 128;
// A client that was told to send no more requests, and has none in flight, is waited for this long: what it sent before
// it knew is still served [RFC 9113, 6.8].
const quietMs = 1_000;
// GOAWAY with the greatest number that a stream can have: all that come are served [RFC 9113, 6.8].
const endNotice = Buffer.of(0, 0, 8, 0x7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0);

/** Serves HTTP/2 on the sockets that it is given, within `limits`. */
export function serveHttp2(limits: ServerLimits, handler: Http2Context['handler']): Serve {
  const stallWatch = new StallWatch<Incoming>(limits.replyStallTimeoutMs, (incoming) => {
    incoming.onStall();
  });
  const context: Http2Context = { ...limits, handler, stallWatch };
  return (socket) => new Http2Connection(socket, context);
}

// What one client may have the library hold and do. What is past these ends the stream or the session there, before
// anything here sees it.
function sessionOptions({ requestHeadBytesMax }: ServerLimits) {
  return {
    settings: {
      maxConcurrentStreams: streamsMax,
      // As the standard counts, with 32 bytes for each field [RFC 9113, 6.5.2]. What is over our limit, and not over
      // twice that, has its 431.
      maxHeaderListSize: 2 * requestHeadBytesMax + 32 * fieldsMax,
    },
    maxHeaderListPairs: pairsMax,
    maxSettings: 32,
    maxOutstandingPings: 1,
    maxSessionInvalidFrames: 100,
    maxSessionRejectedStreams: 100,
    // CVE-2023-44487: so many at once, and so many a second.
    streamResetBurst: 200,
    streamResetRate: 20,
    maxSessionMemory: 10,
  };
}

/**
 * What the connection is doing. `open` → `announced` → `ended`, or straight to `ended`.
 *
 * - `open`.
 * - `announced`: the client knows that it shall send no more requests; those that come all the same are served.
 * - `ended`: what comes now is not served, and the client knows it; the socket is to close.
 */
type State = 'open' | 'announced' | 'ended';

class Http2Connection implements Connection, ExchangeOwner {
  readonly socket: Socket;
  readonly address: string | undefined;
  readonly #context: Http2Context;
  readonly #paced: PacedSocket;
  readonly #session: ServerHttp2Session;
  readonly #exchanges = new Set<Http2Exchange>();
  #headBytes = 0;
  #state: State = 'open';
  // Since when there is no stream, or the connection has ended.
  #since = monotonicMs();
  #isFirst = true;

  constructor(socket: Socket, context: Http2Context) {
    this.socket = socket;
    this.address = socket.remoteAddress;
    this.#context = context;
    this.#paced = new PacedSocket(socket, () => this.#keptBytes());
    // To the library it would be an error of the connection. It ignores what comes for a stream that has been reset.
    this.#paced.meter.onExcess = (stream) => {
      [...this.#exchanges].find((exchange) => exchange.stream === stream)?.refuse();
    };
    this.#session = performServerHandshake(this.#paced, sessionOptions(context))
      .on('stream', (stream, headers, _flags, fields: readonly string[]) => {
        try {
          if (!this.#hasAllFields(stream, fields)) {
            refuse(stream, constants.NGHTTP2_PROTOCOL_ERROR);
            return;
          }
          const headBytes = heldBytes(fields);
          if (this.#headBytes + headBytes > headBytesMax || !context.handler.budget.take(headBytes)) {
            refuse(stream, constants.NGHTTP2_REFUSED_STREAM);
            return;
          }
          if (!stream.endAfterHeaders) {
            this.#watchBody(stream, headers['content-length']);
          }
          const isHead = headers[':method'] === 'HEAD';
          const exchange = new Http2Exchange(stream, headBytes, isHead, this, context);
          this.#isFirst = false;
          this.#exchanges.add(exchange);
          this.#headBytes += headBytes;
          exchange.begin(fields);
        } catch (error) {
          this.#fail(error);
        }
      })
      // Whatever it is, the session and its socket close with it: bytes that are no HTTP/2, a limit, a reset.
      .on('error', () => undefined)
      .on('close', () => {
        this.#end();
      });
  }

  get streams(): number {
    return this.#exchanges.size;
  }

  restsSince(now: number): number {
    return this.#exchanges.size === 0 ? now - this.#since : 0;
  }

  isQuiet(quietForMs: number, from: number): boolean {
    return this.#state === 'ended' && monotonicMs() - Math.max(this.#since, from) >= quietForMs;
  }

  checkTime(now: number): void {
    const { requestHeadersTimeoutMs, idleTimeoutMs } = this.#context;
    const took = now - this.#since;
    if (this.#paced.headTook(now) >= requestHeadersTimeoutMs) {
      // Nothing else can come on this connection before the head is whole.
      this.#state = 'ended';
      this.#session.destroy();
    } else if (this.#exchanges.size > 0) {
      this.#checkExchanges(now);
    } else if (this.#state === 'ended') {
      if (took >= quietMs) {
        this.socket.destroy();
      }
    } else if (this.#state === 'announced' ? took >= quietMs : took >= idleTimeoutMs) {
      this.#end();
    } else if (this.#isFirst && took >= requestHeadersTimeoutMs) {
      this.socket.destroy();
    }
  }

  #checkExchanges(now: number): void {
    const isQueued = this.socket.writableLength > 0;
    for (const exchange of this.#exchanges) {
      exchange.checkTime(now, isQueued);
      if (isQueued && exchange.isTaking && exchange.incoming !== undefined) {
        this.#context.stallWatch.watch(this.socket, exchange.incoming);
      }
    }
  }

  announceEnd(): void {
    if (this.#state === 'open') {
      this.#state = 'announced';
      // Not the session's own, which serves no stream after it.
      this.#paced.sendFrame(endNotice);
    }
  }

  #end(): void {
    if (this.#state !== 'ended') {
      this.#state = 'ended';
      this.#since = monotonicMs();
      this.#session.close();
    }
  }

  // The library drops malformed fields and serves the rest [RFC 9113, 8.2.1].
  #hasAllFields(stream: ServerHttp2Stream, fields: readonly string[]): boolean {
    return this.#paced.meter.fieldsOf(stream.id ?? 0) === fields.length / 2;
  }

  #watchBody(stream: ServerHttp2Stream, length: string | undefined): void {
    if (length !== undefined) {
      this.#paced.meter.expectData(stream.id ?? 0, Number(length));
    }
    stream.on('trailers', (_trailers, _flags, fields: readonly string[]) => {
      if (!this.#hasAllFields(stream, fields)) {
        stream.close(constants.NGHTTP2_PROTOCOL_ERROR);
      }
    });
  }

  #keptBytes(): number {
    let bytes = 0;
    for (const exchange of this.#exchanges) {
      bytes += exchange.keptBytes;
    }
    return bytes;
  }

  onRoom(): void {
    this.#paced.goOn();
  }

  onClosed(exchange: Http2Exchange): void {
    this.#exchanges.delete(exchange);
    this.#headBytes -= exchange.headBytes;
    this.#context.handler.budget.giveBack(exchange.headBytes);
    this.#paced.meter.forget(exchange.stream);
    this.#paced.goOn();
    if (this.#exchanges.size === 0) {
      this.#since = monotonicMs();
    }
  }

  // A fault of our own outside of a request: this connection ends, and no other [D28].
  #fail(error: unknown): void {
    this.socket.destroy();
    this.#context.handler.onFault(error);
  }
}

/** The memory of a stream with these fields, roughly. */
function heldBytes(fields: readonly string[]): number {
  let bytes = bytesOfStream + (fields.length / 2) * bytesOfField;
  for (const text of fields) {
    bytes += text.length;
  }
  return bytes;
}

function refuse(stream: ServerHttp2Stream, code: number): void {
  stream.on('error', () => undefined).close(code);
}
