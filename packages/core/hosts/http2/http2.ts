// Serves HTTP/2 on TLS connections [D39]: one node:http2 session per connection, with limits, timeouts and shutdown. Uses
// Node's core API, because a request costs 1.6 times as much with the compatibility API. Loaded only if HTTP/2 is on.

import { constants, performServerHandshake, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';

import { monotonicMs } from '../../time/monotonic.ts';
import type { Connection, ConnectionFactory, ServerLimits } from '../../http1/connection.ts';
import { StallWatch } from '../../http1/stall-watch.ts';
import type { RequestReceiver } from '../../http1/transport.ts';
import { Http2Exchange, type ExchangeOwner, type Http2Context } from './http2-exchange.ts';
import { fieldsMax } from './http2-head.ts';
import { PacedSocket } from './paced-socket.ts';

/** Largest number of open streams per connection [RFC 9113, 5.1.2]. */
const streamsMax = 100;
// node:http2 resets a stream with more than `pairsMax` fields before it creates strings for the fields. node:http2's list
// of fields starts with 12 places and doubles, so 96 is the first size above `fieldsMax`.
const pairsMax = 96;
/**
 * Largest memory for the heads of a connection's open streams, in bytes as estimated by `heldBytes`. A stream that
 * would exceed this limit is refused.
 */
export const headBytesMax = 1_572_864;
// Memory in bytes, measured with Node 26. `bytesOfStream`: an open stream. `bytesOfField`: a field without its text.
const bytesOfStream = 8_192;
const bytesOfField = 128;
// The connection ends when it has been idle this long after a GOAWAY. Until then, requests may arrive that the client
// sent before it received the GOAWAY [RFC 9113, 6.8].
const quietMs = 1_000;
// A GOAWAY frame with the largest possible stream id, so that all requests that still arrive are served [RFC 9113, 6.8].
const endNotice = Buffer.of(0, 0, 8, 0x7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0);

/** Returns a function that serves HTTP/2 on a socket. */
export function serveHttp2(limits: ServerLimits, handler: Http2Context['handler']): ConnectionFactory {
  const stallWatch = new StallWatch<RequestReceiver>(limits.replyStallTimeoutMs, (incoming) => incoming.onStall());
  const context: Http2Context = { ...limits, handler, stallWatch };
  return (socket) => new Http2Connection(socket, context);
}

// Returns limits. If a client exceeds one of them, node:http2 itself ends the stream or the session.
function sessionOptions({ requestHeadBytesMax }: ServerLimits) {
  return {
    settings: {
      maxConcurrentStreams: streamsMax,
      // Twice our own limit, so that heads between the two limits reach our code, which replies with 431. node:http2
      // counts 32 bytes per field in addition to the field's text [RFC 9113, 6.5.2].
      maxHeaderListSize: 2 * requestHeadBytesMax + 32 * fieldsMax,
    },
    maxHeaderListPairs: pairsMax,
    maxSettings: 32,
    maxOutstandingPings: 1,
    maxSessionInvalidFrames: 100,
    maxSessionRejectedStreams: 100,
    // Against rapid resets (CVE-2023-44487): the largest burst of resets, and the resets per second after it.
    streamResetBurst: 200,
    streamResetRate: 20,
    maxSessionMemory: 10,
  };
}

/**
 * `open` → `announced` → `ended`, or `open` → `ended`.
 *
 * - `announced`: a GOAWAY has told the client to send no more requests; requests that still arrive are served.
 * - `ended`: the session has sent its own GOAWAY and serves no new request; the socket closes after the last stream.
 */
type State = 'open' | 'announced' | 'ended';

class Http2Connection implements Connection, ExchangeOwner {
  readonly socket: Socket;
  readonly address: string | undefined;
  readonly #context: Http2Context;
  readonly #paced: PacedSocket;
  readonly #session: ServerHttp2Session;
  // The exchanges of open streams, by stream id.
  readonly #exchanges = new Map<number, Http2Exchange>();
  #headBytes = 0;
  #state: State = 'open';
  // Time of the latest of these events: the connection opened, its last open stream closed, its state became `ended`.
  #since = monotonicMs();
  #isFirst = true;

  constructor(socket: Socket, context: Http2Context) {
    this.socket = socket;
    this.address = socket.remoteAddress;
    this.#context = context;
    this.#paced = new PacedSocket(socket, () => this.#keptBytes());
    // node:http2 would close the connection for DATA beyond a content-length. But it ignores DATA of a reset stream,
    // so the stream is reset before node:http2 gets the DATA.
    this.#paced.meter.onExcess = (stream) => this.#exchanges.get(stream)?.refuse();
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
          if (!stream.endAfterHeaders) this.#watchBody(stream, headers['content-length']);
          const isHead = headers[':method'] === 'HEAD';
          const exchange = new Http2Exchange(stream, headBytes, isHead, this, context);
          this.#isFirst = false;
          this.#exchanges.set(exchange.stream, exchange);
          this.#headBytes += headBytes;
          exchange.begin(fields);
        } catch (error) {
          this.#fail(error);
        }
      })
      // Ignored, because Node closes the session and its socket after any error (malformed bytes, too many resets).
      .on('error', () => undefined)
      .on('close', () => this.#end());
  }

  get streams(): number {
    return this.#exchanges.size;
  }

  idleMs(now: number): number {
    return this.#exchanges.size === 0 ? now - this.#since : 0;
  }

  isQuiet(quietForMs: number, from: number): boolean {
    return this.#state === 'ended' && monotonicMs() - Math.max(this.#since, from) >= quietForMs;
  }

  checkTime(now: number): void {
    const { requestHeadersTimeoutMs, idleTimeoutMs } = this.#context;
    const took = now - this.#since;
    if (this.#paced.headTook(now) >= requestHeadersTimeoutMs) {
      // No other frame may interrupt an incomplete head [RFC 9113, 4.3], so the connection cannot continue.
      this.#state = 'ended';
      this.#session.destroy();
    } else if (this.#exchanges.size > 0) {
      this.#checkExchanges(now);
    } else if (this.#state === 'ended') {
      if (took >= quietMs) this.socket.destroy();
    } else if (this.#state === 'announced' ? took >= quietMs : took >= idleTimeoutMs) {
      this.#end();
    } else if (this.#isFirst && took >= requestHeadersTimeoutMs) {
      this.socket.destroy();
    }
  }

  #checkExchanges(now: number): void {
    const isQueued = this.socket.writableLength > 0;
    for (const exchange of this.#exchanges.values()) {
      exchange.checkTime(now, isQueued);
      if (isQueued && exchange.isTaking && exchange.incoming !== undefined) {
        this.#context.stallWatch.watch(this.socket, exchange.incoming);
      }
    }
  }

  announceEnd(): void {
    if (this.#state === 'open') {
      this.#state = 'announced';
      // Not sent through the session, because the session serves no new stream after it has sent a GOAWAY.
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

  // False if node:http2 has dropped malformed fields [RFC 9113, 8.2.1].
  #hasAllFields(stream: ServerHttp2Stream, fields: readonly string[]): boolean {
    return this.#paced.meter.fieldsOf(stream.id ?? 0) === fields.length / 2;
  }

  #watchBody(stream: ServerHttp2Stream, length: string | undefined): void {
    if (length !== undefined) this.#paced.meter.expectData(stream.id ?? 0, Number(length));
    stream.on('trailers', (_trailers, _flags, fields: readonly string[]) => {
      if (!this.#hasAllFields(stream, fields)) stream.close(constants.NGHTTP2_PROTOCOL_ERROR);
    });
  }

  #keptBytes(): number {
    let bytes = 0;
    for (const exchange of this.#exchanges.values()) {
      bytes += exchange.keptBytes;
    }
    return bytes;
  }

  onRoom(): void {
    this.#paced.goOn();
  }

  onClosed(exchange: Http2Exchange): void {
    this.#exchanges.delete(exchange.stream);
    this.#headBytes -= exchange.headBytes;
    this.#context.handler.budget.giveBack(exchange.headBytes);
    this.#paced.meter.forget(exchange.stream);
    this.#paced.goOn();
    if (this.#exchanges.size === 0) this.#since = monotonicMs();
  }

  // A fault of the gateway outside of a request ends only this connection [D28].
  #fail(error: unknown): void {
    this.socket.destroy();
    this.#context.handler.onFault(error);
  }
}

/** Estimates the memory of a stream with these fields, in bytes. */
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
