// Requests that offer to upgrade, such as `Upgrade: h2c` [D27]. Node ignores such an offer if nothing listens for upgrades,
// but its parser stops after the request, and Node drops the bytes that the same read has brought after it. They are further
// requests, so this file passes them to the parser. Node has no function for this, so the code relies on internals. If Node
// changes them, the replies to offers close their connections, and test/node/upgrade-offers.test.ts fails.

import { subscribe } from 'node:diagnostics_channel';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

type Result = number | Error;
type Read = (result: Result) => void;

interface Parser {
  readonly constructor: { readonly kOnExecute?: number };
  [index: number]: Read | null | undefined;
  /** False if Node's stream, and not the parser, reads from the OS. */
  readonly _consumed?: boolean;
  readonly execute?: (bytes: Buffer) => Result;
  readonly getCurrentBuffer?: () => Buffer;
}

/** `_paused`: true while the parser must not read, because many bytes of replies wait. */
type HttpSocket = Socket & { readonly parser?: Parser | null; readonly _paused?: boolean };

const readers = new WeakMap<Socket, OfferReader>();
const handled = new WeakSet<IncomingMessage>();
let isWatching = false;

/** Makes Node's HTTP servers read what follows an offer. */
export function watchOffers(): void {
  if (!isWatching) subscribe('http.server.request.start', onRequest);
  isWatching = true;
}

/** True if requests that follow the offer `request` may be lost. */
export function isCutShort(request: IncomingMessage): boolean {
  return !handled.has(request);
}

function onRequest(message: unknown): void {
  const { request, socket } = message as { readonly request: IncomingMessage; readonly socket: HttpSocket };
  // The length is compared first, because this runs for every request of the process.
  const isUpgrade = (text: string, index: number): boolean =>
    text.length === 7 && index % 2 === 0 && text.toLowerCase() === 'upgrade';
  if (!request.rawHeaders.some(isUpgrade)) return;
  const { parser } = socket;
  const index = parser?.constructor.kOnExecute;
  const read = index === undefined ? undefined : parser?.[index];
  if (index === undefined || !read || !parser?._consumed || !parser.getCurrentBuffer || !parser.execute) return;
  handled.add(request);
  const reader = readers.get(socket) ?? new OfferReader(socket, parser, index, read);
  readers.set(socket, reader);
  reader.offer = request;
}

/** Reads a connection from its first offer on. */
class OfferReader {
  /** The offer after which the parser stops when its body has been read. */
  offer: IncomingMessage | undefined;
  readonly #socket: HttpSocket;
  readonly #parser: Parser;
  readonly #read: Read;

  constructor(socket: HttpSocket, parser: Parser, index: number, read: Read) {
    this.#socket = socket;
    this.#parser = parser;
    this.#read = read;
    parser[index] = (result) => this.#goOn(parser.getCurrentBuffer?.() ?? Buffer.alloc(0), result);
  }

  // `result` is what the parser has read of `bytes`.
  #goOn(bytes: Buffer, result: Result): void {
    this.#read(result);
    const isOver = this.offer?.complete === true;
    if (isOver) this.offer = undefined;
    if (typeof result !== 'number' || result >= bytes.length || this.#socket.parser !== this.#parser) return;
    if (isOver) {
      this.#execute(bytes.subarray(result));
    } else {
      // After an offer, the parser stops at malformed bytes, but returns no error.
      this.#read(Object.assign(new Error('Parse Error'), { code: 'HPE_INVALID_METHOD', bytesParsed: result }));
    }
  }

  #execute(bytes: Buffer): void {
    if (this.#socket._paused === true) {
      this.#socket.once('resume', () => this.#execute(bytes));
    } else if (this.#socket.parser === this.#parser) {
      this.#goOn(bytes, this.#parser.execute?.(bytes) ?? bytes.length);
    }
  }
}
