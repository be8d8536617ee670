// The gateway as a web-standard handler, `Request` in and `Response` out, for servers that speak that: Next.js, Hono, Bun,
// Deno [D50]. From the request's head on it is the same call as everywhere. Who reads and writes HTTP is the host.

import { isIP } from 'node:net';

import { Deadline, Deadlines, type DeadlineOwner } from '../../backend/deadlines.ts';
import type { Gateway } from '../../call/gateway.ts';
import type { GuardOptions } from '../../guards/options/guard-options.ts';
import type { FieldName } from '../../http1/fields.ts';
import { parseContentLength } from '../../http1/grammar.ts';
import type { BodyLength, RequestHead } from '../../http1/head.ts';
import type { Client, Incoming, Reply, Transport } from '../../http1/transport.ts';
import { nextTurn, piecesPerTurn } from '../common/piece-turns.ts';
import { fieldNameOf, listReplyHeaders } from '../common/fields.ts';
import { createHostGateway, hostRows } from '../common/host-gateway.ts';
import { corsRows, type CorsOptions } from '../options/cors-options.ts';
import { observer, prefix } from '../options/host-options.ts';
import type { ValueKind } from '../options/kinds.ts';
import { timeLimitRows } from '../options/limits.ts';
import { Problem } from '../options/problem.ts';
import type { GatewayLimits } from '../options/options.ts';
import type { OptionsOf } from '../options/rows.ts';

type ClientAddress = (request: Request) => string | undefined;

const clientAddress: ValueKind<ClientAddress> = {
  accept: (given: unknown) =>
    typeof given === 'function' ? (given as ClientAddress) : new Problem('must be a function'),
};

const fetchRows = {
  /** What stands before `/api/work-items` in the path of a URL, such as the base path of a site. Default: nothing. */
  prefix: { kind: prefix },
  /**
   * The IP address of whoever is connected, which a `Request` does not say: for `rateLimit`, for records, and where proxies
   * are trusted. What is no address is unknown, and all who are unknown count as one client. Default: unknown.
   */
  clientAddress: { kind: clientAddress },
  /** For a request's body, in milliseconds; past it 408 [D35]. Default 30,000. */
  requestTimeoutMs: timeLimitRows.requestTimeoutMs,
  /** Is told of every request that ends. Default: each failure is a line of `console.error`. */
  observer: { kind: observer },
};

export interface FetchHandlerOptions
  extends GatewayLimits, CorsOptions, GuardOptions, OptionsOf<typeof fetchRows> {}

export interface FetchHandler {
  /**
   * Answers one request; rejects only what is no `Request`, with a `TypeError`. What the client sends and gets is that of the command, but for the headers of a
   * connection, which are the host's. A client that has left, which `request.signal` says, gets a 499 that nobody reads.
   */
  (request: Request): Promise<Response>;
  /** Closes the connections to the backend; calls in flight fail. A handler that is called after that opens new ones. */
  close(): Promise<void>;
}

/** A handler with its own connections to the backend. Throws a `TypeError` that names every option that is wrong. */
export function createFetchHandler(options: FetchHandlerOptions): FetchHandler {
  const table = { ...fetchRows, ...hostRows, ...corsRows };
  const problems = findProblems(options);
  const { gateway, values, end } = createHostGateway(options, table, { problems });
  const bodyDeadlines = new Deadlines(values.requestTimeoutMs);
  const addressOf = values.clientAddress ?? unknownAddress;
  const answer = (request: Request): Promise<Response> =>
    new Promise((resolve) => {
      new FetchExchange(request, resolve, addressOf, bodyDeadlines).begin(gateway);
    });
  // Undefined while it is open.
  let ending: Promise<void> | undefined;
  // Calls that the end cuts must have heard of it: they would be sent again, or be taken for failures of the backend.
  const reopen = async (): Promise<void> => {
    while (ending !== undefined) {
      const ended = ending;
      await ended;
      if (ending === ended) {
        ending = undefined;
        gateway.isCutting = false;
        gateway.backend.reopen();
      }
    }
  };
  const handler = (request: Request): Promise<Response> => {
    if (!isRequest(request)) {
      return Promise.reject(new TypeError(noRequest));
    }
    return ending === undefined ? answer(request) : reopen().then(() => answer(request));
  };
  return Object.assign(handler, { close: () => (ending ??= end()) });
}

const unknownAddress = (): undefined => undefined;

// All clients would count as one.
function findProblems({ clientAddress, rateLimit, rateLimitKey = 'address' }: FetchHandlerOptions): string[] {
  return rateLimit !== undefined && rateLimitKey === 'address' && clientAddress === undefined
    ? [
        "rateLimit counts by address, which a Request does not say: give clientAddress, or rateLimitKey: 'identity'",
      ]
    : [];
}

const noRequest =
  'The fetch handler takes a web-standard Request. Express, Connect and node:http pass another kind: use work-item-gateway/node there.';

// By what is used of it: a host may have a class of its own.
function isRequest(value: unknown): boolean {
  const { method, url, headers, signal } = (value ?? {}) as Partial<Request>;
  return (
    typeof method === 'string' &&
    typeof url === 'string' &&
    typeof headers?.get === 'function' &&
    typeof signal?.addEventListener === 'function'
  );
}

// What a client that has left would get.
const clientGoneStatus = 499;
// A URL as a `Request` has it: with scheme and authority, and without what is not to be sent, a fragment apart.
const urlPattern = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)([^#]*)/i;

class FetchExchange implements Transport, Client, DeadlineOwner {
  readonly #request: Request;
  readonly #clientAddress: ClientAddress;
  readonly #resolve: (response: Response) => void;
  readonly #bodyDeadlines: Deadlines;
  readonly #bodyDeadline = new Deadline(this);
  #incoming: Incoming | undefined;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #hasReplied = false;

  constructor(
    request: Request,
    resolve: (response: Response) => void,
    clientAddress: ClientAddress,
    bodyDeadlines: Deadlines,
  ) {
    this.#request = request;
    this.#resolve = resolve;
    this.#clientAddress = clientAddress;
    this.#bodyDeadlines = bodyDeadlines;
  }

  // What is none could be as long and as many as its client likes, and would each be counted.
  get address(): string | undefined {
    const address: unknown = this.#clientAddress(this.#request);
    return typeof address === 'string' && isIP(address) !== 0 ? address : undefined;
  }

  begin(gateway: Gateway): void {
    const { signal } = this.#request;
    let incoming: Incoming;
    try {
      incoming = gateway.accept(readHead(this.#request), this, this);
    } catch (error) {
      gateway.acceptFault(this.#request.method, this.#request.url, this, this, error);
      return;
    }
    this.#incoming = incoming;
    if (signal.aborted) {
      this.#onAbort();
      return;
    }
    signal.addEventListener('abort', this.#onAbort, { once: true });
    incoming.start();
  }

  readonly #onAbort = (): void => {
    if (!this.#hasReplied) {
      this.#finish(new Response(null, { status: clientGoneStatus }));
      this.#incoming?.onGone();
    }
  };

  #finish(response: Response): void {
    this.#hasReplied = true;
    this.#bodyDeadline.clear();
    this.#request.signal.removeEventListener('abort', this.#onAbort);
    this.#resolve(response);
    // What is left of a body is the host's to drop.
    this.#reader?.cancel().catch(() => undefined);
  }

  /** Nothing is read before it is asked for. */
  holdBody(): void {
    // Nothing to do.
  }

  readBody(): void {
    void this.#readBody();
  }

  async #readBody(): Promise<void> {
    const incoming = this.#incoming;
    const { body } = this.#request;
    try {
      if (body !== null) {
        const reader: ReadableStreamDefaultReader<Uint8Array> = body.getReader();
        this.#reader = reader;
        this.#bodyDeadlines.start(this.#bodyDeadline);
        let pieces = 0;
        for (let read = await reader.read(); !read.done; read = await reader.read()) {
          const { buffer, byteOffset, byteLength } = read.value;
          incoming?.onBody(Buffer.from(buffer, byteOffset, byteLength));
          if (this.#hasReplied) {
            return;
          }
          pieces += 1;
          // Pieces that are always ready would keep timers and other calls waiting for ever [D58].
          if (pieces % piecesPerTurn === 0) {
            await nextTurn();
          }
        }
      }
    } catch {
      this.#bodyDeadline.clear();
      // Its client has stopped in the middle, or somebody has read it before us.
      incoming?.onBroken({ kind: 'malformed', reason: 'a body that cannot be read' });
      return;
    }
    this.#bodyDeadline.clear();
    if (!this.#hasReplied) {
      incoming?.onBodyEnd();
    }
  }

  // What has come of the body is given back with its reply, and its reader cancelled [D35].
  onDeadlinePassed(): void {
    this.#incoming?.onBroken('timeout');
  }

  reply(reply: Reply, onTaken: () => void): void {
    if (this.#hasReplied) {
      throw new Error('the request has had its reply, or its client has gone');
    }
    const { head, pieces, length } = reply;
    const [first] = pieces;
    const hasBody = length > 0 && this.#request.method !== 'HEAD';
    const bytes = hasBody
      ? pieces.length === 1 && first !== undefined
        ? first
        : Buffer.concat(pieces)
      : null;
    // It copies what it is given: the memory can be used again.
    const response = new Response(bytes, {
      status: head.status,
      headers: pairs(listReplyHeaders(reply)),
    });
    this.#finish(response);
    onTaken();
  }

  cut(): void {
    if (!this.#hasReplied) {
      this.#finish(new Response(null, { status: clientGoneStatus }));
    }
  }
}

function readHead({ method, url, headers, body }: Request): RequestHead {
  const [, authority = '', target = ''] = urlPattern.exec(url) ?? [];
  const fields: string[] = [];
  for (const [name, value] of headers) {
    const known = fieldNameOf(name);
    if (known !== undefined && !framing.has(known)) {
      fields.push(known, value);
    }
  }
  if (!headers.has('host')) {
    fields.push('host', authority);
  }
  return {
    method,
    target: target === '' || target.startsWith('?') ? `/${target}` : target,
    bodyLength: body === null ? 0 : announcedLength(headers.get('content-length')),
    expectation: 'none',
    persists: true,
    version: '1.1',
    fields,
  };
}

// Of the host, which has found where the body ends, and answers an expectation.
const framing: ReadonlySet<FieldName> = new Set([
  'expect',
  'upgrade',
  'connection',
  'keep-alive',
  'content-length',
  'transfer-encoding',
]);

// A length of none is no promise: what comes counts.
function announcedLength(value: string | null): Exclude<BodyLength, 'until-close'> {
  const length = value === null ? undefined : parseContentLength(value);
  return length === undefined || length === 0 ? 'chunked' : length;
}

function pairs(list: readonly string[]): [string, string][] {
  const headers: [string, string][] = [];
  for (let index = 0; index < list.length; index += 2) {
    headers.push([list[index] ?? '', list[index + 1] ?? '']);
  }
  return headers;
}
