// Serves HTTP/2 on TLS connections [D39]: one node:http2 session per connection, with limits, timeouts and shutdown. Uses
// Node's core API, because a request costs 1.6 times as much with the compatibility API. Loaded only if HTTP/2 is on.

import { constants, performServerHandshake, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';

import { monotonicMs } from '../../time/monotonic.ts';
import { Holding, type Connection, type ConnectionFactory, type ServerLimits } from '../../http1/connection.ts';
import { StallWatch } from '../clients/stall-watch.ts';
import { closeMs, Http2Exchange, type ExchangeOwner, type Http2Context } from './http2-exchange.ts';
import { fieldsMax } from './http2-head.ts';
import { PacedSocket } from './paced-socket.ts';

/** Largest number of open streams per connection [RFC 9113, 5.1.2]. */
const streamsMax = 100;
// node:http2 resets a stream with more than `pairsMax` fields before it creates strings for the fields. node:http2's list
// of fields starts with 12 places and doubles, so 96 is the first size above `fieldsMax`.
const pairsMax = 96;
/**
 * Largest memory for the heads of a connection's open streams, in bytes as estimated by `heldBytes`. A stream that
 * would exceed this limit is refused. node:http2's `maxSessionMemory` does not count them.
 */
export const headBytesMax = 1_572_864;
// Memory in bytes, measured with Node 26. `bytesOfStream`: an open stream. `bytesOfField`: a field without its text.
const bytesOfStream = 8_192;
const bytesOfField = 128;
// Time between the two GOAWAY frames. Requests that the client sent before it received the first one are served.
const noticeMs = 1_000;
// A GOAWAY frame with the largest possible stream id, so that all requests that still arrive are served [RFC 9113, 6.8].
const endNotice = Buffer.of(0, 0, 8, 0x7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0);

/** Returns a function that serves HTTP/2 on a socket. */
export function serveHttp2(limits: ServerLimits, handler: Http2Context['handler']): ConnectionFactory {
  const stallWatch: Http2Context['stallWatch'] = new StallWatch(limits.replyStallTimeoutMs, (exchange) =>
    exchange?.reportStall(),
  );
  const context: Http2Context = { ...limits, handler, stallWatch };
  return (socket) => new Http2Connection(socket, context);
}

// The limits that differ from Node's. If a client exceeds one, node:http2 itself ends the stream or the session.
function sessionOptions({ requestHeadBytesMax }: ServerLimits) {
  return {
    settings: {
      maxConcurrentStreams: streamsMax,
      // Twice our own limit, so that heads between the two limits reach our code, which replies with 431. node:http2
      // counts 32 bytes per field in addition to the field's text [RFC 9113, 6.5.2].
      maxHeaderListSize: 2 * requestHeadBytesMax + 32 * fieldsMax,
    },
    maxHeaderListPairs: pairsMax,
    // Against rapid resets (CVE-2023-44487): the largest burst of resets, and the resets per second after it.
    streamResetBurst: 200,
    streamResetRate: 20,
    // Against streams that the server must reset (CVE-2025-8671), and floods of empty frames.
    maxSessionInvalidFrames: 100,
  };
}

type State = 'new' | 'idle' | 'busy' | 'announced' | 'ending' | 'ended' | 'closed';

interface Row {
  readonly next: readonly State[];
  /** Longest time in this state, in ms. `Infinity`: the exchanges have time limits. */
  readonly limitMs: (limits: ServerLimits) => number;
  readonly atLimit: 'end' | 'destroy';
}

/**
 * - `new`: no request has arrived.
 * - `idle`: no stream is open.
 * - `busy`: streams are open.
 * - `announced`: the first GOAWAY has told the client to send no more requests. Requests that still arrive are served.
 * - `ending`: the last GOAWAY was sent, or the session has ended. New streams are refused; open streams continue.
 * - `ended`: like `ending`, and no stream is open.
 * - `closed`: the socket has closed.
 *
 * Further limits apply in all states: `FrameMeter.headSince`, `PacedSocket.unreadFor`, and while the socket has unsent
 * bytes, StallWatch.
 */
export const connectionStates: Readonly<Record<State, Row>> = {
  new: {
    next: ['busy', 'announced', 'ended', 'closed'],
    limitMs: (limits) => limits.requestHeadersTimeoutMs,
    atLimit: 'destroy',
  },
  idle: { next: ['busy', 'announced', 'ended', 'closed'], limitMs: (limits) => limits.idleTimeoutMs, atLimit: 'end' },
  busy: { next: ['idle', 'announced', 'ending', 'closed'], limitMs: () => Infinity, atLimit: 'end' },
  announced: { next: ['ending', 'ended', 'closed'], limitMs: () => noticeMs, atLimit: 'end' },
  ending: { next: ['ended', 'closed'], limitMs: () => Infinity, atLimit: 'destroy' },
  ended: { next: ['closed'], limitMs: () => closeMs, atLimit: 'destroy' },
  closed: { next: [], limitMs: () => Infinity, atLimit: 'destroy' },
};

/** An HTTP/2 connection. Exported so that a test can compare its states with `connectionStates`. */
export class Http2Connection implements Connection, ExchangeOwner {
  readonly socket: Socket;
  readonly address: string | undefined;
  readonly #context: Http2Context;
  readonly #paced: PacedSocket;
  readonly #session: ServerHttp2Session;
  // The exchanges of open streams, by stream id.
  readonly #exchanges = new Map<number, Http2Exchange>();
  #headBytes = 0;
  readonly #holding: Holding;
  #state: State = 'new';
  #since = monotonicMs();

  constructor(socket: Socket, context: Http2Context) {
    this.socket = socket;
    this.address = socket.remoteAddress;
    this.#context = context;
    this.#holding = new Holding(context.handler.budget);
    this.#paced = new PacedSocket(socket, () => this.#keptBytes());
    // node:http2 would close the connection for DATA beyond a content-length. But it ignores DATA of a reset stream,
    // so the stream is reset before node:http2 gets the DATA.
    this.#paced.meter.onExcess = (stream) => this.#exchanges.get(stream)?.refuse();
    this.#session = performServerHandshake(this.#paced, sessionOptions(context))
      .on('stream', (stream, headers, _flags, fields: readonly string[]) => {
        try {
          this.#begin(stream, headers['content-length'], fields);
        } catch (error) {
          // A fault of the gateway outside of a request ends only this connection [D28].
          this.destroy();
          context.handler.onFault(error);
        }
      })
      // Ignored, because Node closes the session and its socket after any error (malformed bytes, too many resets).
      .on('error', () => undefined);
    // node:http2 closes all streams now.
    socket.once('close', () => {
      this.enter('closed');
      this.#holding.count(0);
    });
  }

  /** @internal A method, so that a test can compare each change with `connectionStates`. */
  enter(state: State): void {
    this.#state = state;
    if (state !== 'busy') this.#since = monotonicMs();
  }

  get #hasEnded(): boolean {
    return this.#state === 'ending' || this.#state === 'ended' || this.#state === 'closed';
  }

  get streams(): number {
    return this.#exchanges.size;
  }

  idleMs(now: number): number {
    return this.#exchanges.size === 0 ? now - this.#since : 0;
  }

  isQuiet(quietMs: number, from: number): boolean {
    const hasEnded = this.#state === 'ended' || this.#state === 'closed';
    return hasEnded && this.socket.writableLength === 0 && monotonicMs() - Math.max(this.#since, from) >= quietMs;
  }

  checkTime(now: number): void {
    const held = this.#paced.heldBytes + this.#keptBytes();
    // Without room for unsent output, the replies go on. The stall limit ends them, and the memory of answers counts.
    if (!this.#holding.count(held + this.#paced.unsentBytes) && !this.#holding.count(held)) this.socket.destroy();
    const isQueued = this.socket.writableLength > 0;
    if (isQueued) this.#context.stallWatch.watch(this.socket, [...this.#exchanges.values()].find(isTaking));
    if (now - (this.#paced.meter.headSince ?? now) >= this.#context.requestHeadersTimeoutMs) {
      // node:http2 has no time limit for a head. No other frame may interrupt it [RFC 9113, 4.3], so the connection ends.
      this.#session.destroy();
    }
    if (this.#session.closed || this.#session.destroyed) this.#end();
    for (const exchange of this.#exchanges.values()) {
      exchange.checkTime(now, isQueued, this.#hasEnded);
    }
    // The client is still reading its last reply.
    if (isQueued && this.#state === 'ended') this.#since = now;
    const { limitMs, atLimit } = connectionStates[this.#state];
    if (this.#paced.unreadFor(now) >= closeMs) {
      this.destroy();
    } else if (now - this.#since >= limitMs(this.#context)) {
      if (atLimit === 'end') this.#end();
      else this.destroy();
    }
  }

  announceEnd(): void {
    if (this.#state === 'new' || this.#state === 'idle' || this.#state === 'busy') {
      this.enter('announced');
      // Not sent through the session, because the session serves no new stream after it has sent a GOAWAY. node:http2
      // writes whole frames only, so that this frame interrupts no other frame.
      this.#paced.write(endNotice);
    }
  }

  // Sends the last GOAWAY. The session ends after its last stream.
  #end(): void {
    if (!this.#hasEnded) {
      this.enter(this.#exchanges.size > 0 ? 'ending' : 'ended');
      this.#session.close();
    }
  }

  destroy(): void {
    this.socket.destroy();
  }

  #begin(stream: ServerHttp2Stream, length: string | undefined, fields: readonly string[]): void {
    if (!this.#hasAllFields(stream, fields)) {
      refuse(stream, constants.NGHTTP2_PROTOCOL_ERROR);
      return;
    }
    const headBytes = heldBytes(fields);
    if (this.#headBytes + headBytes > headBytesMax || !this.#context.handler.budget.take(headBytes)) {
      refuse(stream, constants.NGHTTP2_REFUSED_STREAM);
      return;
    }
    if (!stream.endAfterHeaders) {
      if (length !== undefined) this.#paced.meter.expectData(stream.id ?? 0, Number(length));
      stream.on('trailers', (_trailers, _flags, trailerFields: readonly string[]) => {
        if (!this.#hasAllFields(stream, trailerFields)) stream.close(constants.NGHTTP2_PROTOCOL_ERROR);
      });
    }
    const exchange = new Http2Exchange(stream, headBytes, this, this.#context);
    this.#exchanges.set(exchange.stream, exchange);
    if (this.#state === 'new' || this.#state === 'idle') this.enter('busy');
    this.#headBytes += headBytes;
    exchange.begin(fields);
  }

  // False if node:http2 has dropped malformed fields [RFC 9113, 8.2.1].
  #hasAllFields(stream: ServerHttp2Stream, fields: readonly string[]): boolean {
    return this.#paced.meter.fieldsOf(stream.id ?? 0) === fields.length / 2;
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
    if (this.#exchanges.size > 0) return;
    if (this.#state === 'busy') this.enter('idle');
    else if (this.#state === 'ending') this.enter('ended');
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

function isTaking(exchange: Http2Exchange): boolean {
  return exchange.isTaking;
}

function refuse(stream: ServerHttp2Stream, code: number): void {
  stream.on('error', () => undefined).close(code);
}
