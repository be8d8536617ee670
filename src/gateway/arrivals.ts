// The requests of a Fastify server in the order in which they came. Its hooks may take longer for one than for the next
// on the same connection; what they lead to happens in the order of arrival all the same [D27].

import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import { ClientConnection } from './client-connection.ts';

/** `with-host`: in hooks, or answered by the host itself; `waiting`: for those before it; `handed-on`: to the gateway. */
type State = 'with-host' | 'waiting' | 'handed-on';

interface Arrival {
  /** Undefined for bytes that were no request. */
  readonly request: IncomingMessage | undefined;
  state: State;
  act: () => void;
  onOver: () => void;
}

const nothing = (): void => undefined;
// Node says there of every request that it comes in, before anybody else sees it, whichever server it comes to:
// Fastify makes a second one for the second address of localhost, and shows it to nobody.
const requestStart = 'http.server.request.start';

interface RequestStart {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly socket: Socket;
  readonly server: Server;
}

export class Arrivals {
  readonly #isServed: (server: Server) => boolean;
  readonly #holdsBack: boolean;
  // What has come on a connection and has not been answered.
  readonly #lines = new Map<Socket, Arrival[]>();
  readonly #byRequest = new WeakMap<IncomingMessage, Arrival>();

  /**
   * Of those servers for which `isServed` says so, until `stop`. With `holdsBack` a connection is read no further while
   * hooks have too many of its requests.
   */
  constructor(isServed: (server: Server) => boolean, holdsBack: boolean) {
    this.#isServed = isServed;
    this.#holdsBack = holdsBack;
    subscribe(requestStart, this.#onRequestStart);
  }

  stop(): void {
    unsubscribe(requestStart, this.#onRequestStart);
  }

  readonly #onRequestStart = (message: unknown): void => {
    const { request, response, socket, server } = message as RequestStart;
    if (!this.#isServed(server)) {
      return;
    }
    const arrival: Arrival = { request, state: 'with-host', act: nothing, onOver: nothing };
    this.#byRequest.set(request, arrival);
    this.#lineOf(socket).push(arrival);
    const connection = ClientConnection.of(socket);
    connection.enterHost();
    if (this.#holdsBack) {
      connection.holdBack();
    }
    response.once('close', () => {
      this.#end(socket, arrival);
    });
  };

  #lineOf(socket: Socket): Arrival[] {
    let line = this.#lines.get(socket);
    if (line === undefined) {
      line = [];
      this.#lines.set(socket, line);
      // Node ends no response that is still behind others then.
      socket.once('close', () => {
        const left = this.#lines.get(socket) ?? [];
        this.#lines.delete(socket);
        for (const { onOver } of left) {
          onOver();
        }
      });
    }
    return line;
  }

  // It has been answered.
  #end(socket: Socket, arrival: Arrival): void {
    const line = this.#lines.get(socket);
    const index = line?.indexOf(arrival) ?? -1;
    if (line === undefined || index === -1) {
      return;
    }
    line.splice(index, 1);
    if (arrival.state !== 'handed-on') {
      ClientConnection.of(socket).leaveHost();
    }
    arrival.onOver();
    proceed(socket, line);
  }

  /** Calls `act` when all that came before `request` on its connection has been handed on or answered. */
  inTurn(request: IncomingMessage, act: () => void): void {
    const { socket } = request;
    const arrival = this.#byRequest.get(request);
    const line = this.#lines.get(socket);
    if (arrival === undefined) {
      act();
    } else if (line !== undefined) {
      arrival.state = 'waiting';
      arrival.act = act;
      proceed(socket, line);
    }
  }

  /** As `inTurn`, for bytes on `socket` that were no request. */
  afterRequests(socket: Socket, act: () => void): void {
    const line = this.#lines.get(socket);
    const newest = line?.at(-1);
    if (line === undefined || newest === undefined) {
      act();
      return;
    }
    // They broke off within its body, for which its hooks may be waiting.
    const isInBody = newest.state === 'with-host' && newest.request?.complete === false;
    const arrival: Arrival = { request: undefined, state: 'waiting', act, onOver: nothing };
    line.splice(isInBody ? line.length - 1 : line.length, 0, arrival);
    proceed(socket, line);
  }

  /** Calls `act` when `request` has been answered, or its connection closes. */
  whenOver(request: IncomingMessage, act: () => void): void {
    const arrival = this.#byRequest.get(request);
    if (arrival === undefined) {
      request.socket.once('close', act);
    } else {
      arrival.onOver = act;
    }
  }
}

function proceed(socket: Socket, line: readonly Arrival[]): void {
  for (const arrival of line) {
    if (arrival.state === 'with-host') {
      return;
    }
    if (arrival.state === 'waiting') {
      arrival.state = 'handed-on';
      arrival.act();
      if (arrival.request !== undefined) {
        ClientConnection.of(socket).leaveHost();
      }
    }
  }
}
