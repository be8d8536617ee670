// The gateway as a web-standard handler from `Request` to `Response`, for Next.js, Hono, Bun and Deno [D50]. The host parses
// and writes HTTP. The call itself runs the same code as in the other hosts.

import { isIP } from 'node:net';

import { Deadline, Deadlines, type DeadlineOwner } from '../../backend/deadlines.ts';
import type { Gateway } from '../../call/gateway.ts';
import type { GuardOptions } from '../../options/guard-options.ts';
import { isAuthority, parseContentLength } from '../../http1/grammar.ts';
import type { Flaw, RequestHead } from '../../http1/head.ts';
import type { Requester, RequestReceiver, Reply, Transport } from '../../http1/transport.ts';
import { isAsAnnounced, wrongLength } from '../common/announced-length.ts';
import { createBodyMistake } from '../common/failure-lines.ts';
import { withCode } from '../common/gateway-error.ts';
import { nextTurn, piecesPerTurn } from '../common/piece-turns.ts';
import { fieldNameOf, listReplyHeaders } from '../common/fields.ts';
import { createHostGateway, hostRows } from '../common/host-gateway.ts';
import { watchOffers } from '../node/upgrade-offers.ts';
import { corsRows, type CorsOptions } from '../../options/cors-options.ts';
import { handlerRows } from '../../options/host-options.ts';
import { boolean, onlyInCode } from '../../options/kinds.ts';
import { Problem } from '../../options/problem.ts';
import type { observerRows } from '../../options/observer-options.ts';
import type { GatewayLimits } from '../../options/gateway-options.ts';
import type { OptionsOf } from '../../options/rows.ts';

// With `never`, the second parameter may have any type in the developer's function.
type ClientAddress = (request: Request, context: never) => string | undefined;

const clientAddress = onlyInCode<ClientAddress>((given: unknown) =>
  typeof given === 'function' ? (given as ClientAddress) : new Problem('must be a function'),
);

const fetchRows = {
  /**
   * Returns the IP address of the connected client, which a `Request` does not contain. Called when a request begins, with
   * the handler's arguments. Used for `rateLimit`, `trustedProxies` and the records that `observer` gets. If the result is
   * not an IP address, the client's address is unknown. All clients with an unknown address count as one client. Default:
   * the handler's second argument.
   */
  clientAddress: { kind: clientAddress },
  /** Ignores a slash at the end of a path, which Next.js adds with its own option of this name [D4]. Default false. */
  trailingSlash: { kind: boolean },
};

export interface FetchHandlerOptions
  extends
    GatewayLimits,
    CorsOptions,
    GuardOptions,
    OptionsOf<typeof handlerRows & typeof observerRows & typeof fetchRows> {}

export interface FetchHandler {
  /**
   * Handles one request as the `work-item-gateway` command does, except for connection headers, which the host handles.
   * Rejects with a `TypeError` only if `request` is not a `Request`, or if `options` is a function and returns invalid
   * options. An abort of `request.signal` means that the client has left. Then the response is a 499, which the host
   * should discard. `clientAddress`: the client's IP address. Hosts pass other values here too, which only the option
   * `clientAddress` reads.
   */
  (request: Request, clientAddress?: unknown): Promise<Response>;
  /** Closes the connections to the backend; calls in flight fail. A later request opens new connections. */
  close(): Promise<void>;
  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Creates a handler with its own connections to the backend. Throws a `TypeError` that lists every invalid option. If
 * `options` is a function, the first call creates the handler: then `next build` needs no options. Calls reject while the
 * options are invalid.
 */
export function createFetchHandler(options: FetchHandlerOptions | (() => FetchHandlerOptions)): FetchHandler {
  // For hosts on node:http, such as Hono. Before the first request, whose offer is otherwise not seen.
  watchOffers();
  if (typeof options === 'function') return createLater(options);
  const table = { ...handlerRows, ...fetchRows, ...hostRows, ...corsRows };
  const { gateway, values, end } = createHostGateway(options, table, { findProblems: () => findProblems(options) });
  const bodyDeadlines = new Deadlines(values.requestTimeoutMs);
  const { clientAddress, trailingSlash = false } = values;
  const answer = (request: Request, passed: unknown): Promise<Response> =>
    new Promise((resolve) => {
      const findAddress = (): unknown => (clientAddress ? clientAddress(request, passed as never) : passed);
      new FetchExchange(request, resolve, findAddress, bodyDeadlines).begin(gateway, trailingSlash);
    });
  let ending: Promise<void> | undefined;
  // Waits until all calls cut by `close` have failed. Otherwise they would be resent, or count as backend failures.
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
  const handler = (request: Request, passed?: unknown): Promise<Response> => {
    if (!isRequest(request)) return Promise.reject(withCode('ERR_GATEWAY_REQUEST', new TypeError(noRequest)));
    return ending === undefined ? answer(request, passed) : reopen().then(() => answer(request, passed));
  };
  return withClose(handler, () => (ending ??= end()));
}

function createLater(options: () => FetchHandlerOptions): FetchHandler {
  let made: FetchHandler | undefined;
  const handler = async (request: Request, passed?: unknown): Promise<Response> => {
    made ??= createFetchHandler(options());
    return made(request, passed);
  };
  return withClose(handler, async () => made?.close());
}

function withClose<Handler extends object>(handler: Handler, close: () => Promise<void>) {
  return Object.assign(handler, { close, [Symbol.asyncDispose]: close });
}

// Without addresses, the rate limit would count all clients as one client.
function findProblems({ clientAddress, rateLimit, rateLimitKey = 'address' }: FetchHandlerOptions): string[] {
  return rateLimit !== undefined && rateLimitKey === 'address' && clientAddress === undefined
    ? ["rateLimit counts by address, which a Request does not contain: set clientAddress, or rateLimitKey: 'identity'"]
    : [];
}

const noRequest =
  'The fetch handler takes a web-standard Request. Express, Connect and node:http pass another kind of request: use work-item-gateway/node for them.';

// Checks only the members that this file uses, because a host may have its own class of requests.
function isRequest(value: unknown): boolean {
  const { method, url, headers, signal } = (value ?? {}) as Partial<Request>;
  return (
    typeof method === 'string' &&
    typeof url === 'string' &&
    typeof headers?.get === 'function' &&
    typeof signal?.addEventListener === 'function'
  );
}

// The status for a client that has left; it is never sent.
const clientGoneStatus = 499;
// Splits a URL into authority and target, without the fragment. Bun passes a path alone if the request has no valid host.
const urlPattern = /^(?:[a-z][a-z0-9+.-]*:\/\/([^/?#]*))?([^#]*)/i;
const endSlash = /^([^?]+)\/(?=\?|$)/;

class FetchExchange implements Transport, Requester, DeadlineOwner {
  address: string | undefined;
  readonly #request: Request;
  readonly #clientAddress: () => unknown;
  readonly #resolve: (response: Response) => void;
  readonly #bodyDeadlines: Deadlines;
  readonly #bodyDeadline = new Deadline(this);
  #incoming: RequestReceiver | undefined;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #hasReplied = false;

  constructor(
    request: Request,
    resolve: (response: Response) => void,
    clientAddress: () => unknown,
    bodyDeadlines: Deadlines,
  ) {
    this.#request = request;
    this.#resolve = resolve;
    this.#clientAddress = clientAddress;
    this.#bodyDeadlines = bodyDeadlines;
  }

  begin(gateway: Gateway, dropsEndSlash: boolean): void {
    const { signal } = this.#request;
    let incoming: RequestReceiver;
    try {
      // The host may not know the address of a client that has left. Only IP addresses count. Otherwise a client could
      // evade the rate limit by inventing a string for each request.
      const address = this.#clientAddress();
      if (typeof address === 'string' && isIP(address) !== 0) this.address = address;
      const head = readHead(this.#request, dropsEndSlash);
      if ('reason' in head) {
        this.reply(gateway.refuse(head, this));
        return;
      }
      incoming = gateway.accept(head, this, this);
    } catch (error) {
      gateway.acceptFault(this.#request.method, this.#request.url, this, this, error);
      return;
    }
    this.#incoming = incoming;
    if (signal.aborted) {
      this.#onAbort();
      return;
    }
    signal.addEventListener('abort', this.#onAbort);
    incoming.start();
  }

  readonly #onAbort = (): void => {
    if (this.#hasReplied) return;
    this.cut();
    this.#incoming?.onGone();
  };

  #finish(response: Response): void {
    this.#hasReplied = true;
    this.#bodyDeadline.clear();
    this.#request.signal.removeEventListener('abort', this.#onAbort);
    this.#resolve(response);
    this.#reader?.cancel().catch(() => undefined);
  }

  holdBody(): void {
    // The body is read only after `readBody`.
  }

  readBody(): void {
    const { bodyUsed, body, method } = this.#request;
    if (bodyUsed || body?.locked === true) {
      if (method !== 'DELETE') throw createBodyMistake();
      this.#incoming?.onBodyEnd();
      return;
    }
    void this.#readBody();
  }

  async #readBody(): Promise<void> {
    const incoming = this.#incoming;
    const { body, headers } = this.#request;
    let bytes = 0;
    try {
      if (body !== null) {
        const reader: ReadableStreamDefaultReader<Uint8Array> = body.getReader();
        this.#reader = reader;
        this.#bodyDeadlines.start(this.#bodyDeadline);
        let pieces = 0;
        for (let read = await reader.read(); !read.done; read = await reader.read()) {
          const { buffer, byteOffset, byteLength } = read.value;
          bytes += byteLength;
          incoming?.onBody(Buffer.from(buffer, byteOffset, byteLength));
          if (this.#hasReplied) return;
          pieces += 1;
          if (pieces % piecesPerTurn === 0) await nextTurn();
        }
      }
    } catch {
      this.#bodyDeadline.clear();
      // The client stopped sending in the middle of the body.
      incoming?.onBroken({ kind: 'incomplete-request', reason: 'a body that cannot be read' });
      return;
    }
    this.#bodyDeadline.clear();
    if (this.#hasReplied) return;
    if (isAsAnnounced(headers.get('content-length'), bytes)) {
      incoming?.onBodyEnd();
    } else {
      incoming?.onBroken(wrongLength);
    }
  }

  // Leads to a 408 [D35]. This reply releases the bytes received so far, and cancels the reader of the body.
  onDeadlinePassed(): void {
    this.#incoming?.onBroken('timeout');
  }

  reply(reply: Reply): void {
    if (this.#hasReplied) throw new Error('the request has been answered, or its client has left');
    const { head, body } = reply;
    // A host's `Response` may keep these bytes for as long as the client reads.
    const bytes = body.copy();
    const hasBody = bytes.length > 0 && this.#request.method !== 'HEAD';
    this.#finish(
      new Response(hasBody ? bytes : null, { status: head.status, headers: pairs(listReplyHeaders(reply)) }),
    );
  }

  cut(): void {
    if (!this.#hasReplied) this.#finish(new Response(null, { status: clientGoneStatus }));
  }
}

function readHead({ method, url, headers, body }: Request, dropsEndSlash: boolean): RequestHead | Flaw {
  const [, authority = '', sent = ''] = urlPattern.exec(url) ?? [];
  const target = dropsEndSlash ? sent.replace(endSlash, '$1') : sent;
  const fields: string[] = [];
  for (const [name, value] of headers) {
    const known = fieldNameOf(name);
    if (known !== undefined) fields.push(known, value);
  }
  const host = headers.get('host');
  if (host === null) {
    fields.push('host', authority);
  } else if (!isAuthority(host)) {
    // Deno's URL begins with this field, which may contain another path.
    return { kind: 'invalid-head', reason: 'an invalid host' };
  }
  const announced = parseContentLength(headers.get('content-length') ?? '') ?? 0;
  return {
    method,
    target: target === '' || target.startsWith('?') ? `/${target}` : target,
    // A host may pass on a body although its content-length is 0. An announced body that is missing has a wrong length.
    bodyLength: announced > 0 ? announced : body === null ? 0 : 'chunked',
    expectation: 'none',
    persists: true,
    version: '1.1',
    fields,
  };
}

function pairs(list: readonly string[]): [string, string][] {
  const headers: [string, string][] = [];
  for (let index = 0; index < list.length; index += 2) {
    headers.push([list[index] ?? '', list[index + 1] ?? '']);
  }
  return headers;
}
