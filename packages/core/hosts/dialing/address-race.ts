// Connects to the first of several addresses that accepts. The attempts overlap [RFC 8305, D30].

import type { Socket } from 'node:net';

import type { Dial, DialOwner } from '../../http1/backend-connection.ts';

interface Target {
  readonly host: string;
  /** Resolves with at least one IP address. */
  readonly findAddresses: () => Promise<readonly string[]> | readonly string[];
  readonly open: (address: string) => Socket;
  /** Emitted by a socket when it can be used. */
  readonly openEvent: 'connect' | 'secureConnect';
}

// The next address is tried after this time, or as soon as an attempt has failed [RFC 8305, 5].
const attemptDelayMs = 250;

export class AddressRace implements Dial {
  readonly #owner: DialOwner;
  readonly #target: Target;
  readonly #attempts = new Map<Socket, string>();
  #failures: Error[] = [];
  #untried: string[] | undefined;
  #isConnected = false;
  #isClosed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(owner: DialOwner, target: Target) {
    this.#owner = owner;
    this.#target = target;
    const found = target.findAddresses();
    if ('then' in found) {
      found.then((addresses) => this.#start(addresses)).catch((error: unknown) => this.#fail(error as Error));
    } else {
      this.#start(found);
    }
  }

  get socketCount(): number {
    return this.#attempts.size;
  }

  get troubles(): readonly Error[] {
    if (this.#untried === undefined) return [new Error(`the lookup of ${this.#target.host} has not ended`)];
    if (!this.#isConnected) return this.#failures;
    return Array.from(
      this.#attempts.values(),
      (address) => new Error(`the TLS handshake with ${address} has not ended`),
    );
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const socket of this.#attempts.keys()) socket.destroy();
    this.#attempts.clear();
  }

  #start(addresses: readonly string[]): void {
    if (this.#isClosed) return;
    this.#untried = [...addresses];
    this.#tryNext();
  }

  readonly #tryNext = (): void => {
    clearTimeout(this.#timer);
    const address = this.#untried?.shift();
    if (address === undefined) {
      if (this.#attempts.size === 0) this.#fail(joinErrors(this.#failures));
      return;
    }
    if (this.#untried?.length !== 0) this.#timer = setTimeout(this.#tryNext, attemptDelayMs);
    const socket = this.#target.open(address);
    this.#attempts.set(socket, address);
    socket
      .once('connect', () => this.#keepOnly(socket))
      .once(this.#target.openEvent, () => {
        this.#keepOnly(socket);
        if (this.#attempts.delete(socket)) this.#owner.onOpen(socket);
      })
      .on('error', (error) => {
        if (!this.#attempts.delete(socket)) return;
        this.#failures.push(error);
        this.#tryNext();
      });
  };

  // The first socket with a TCP connection is used; only this one makes a TLS handshake.
  #keepOnly(socket: Socket): void {
    clearTimeout(this.#timer);
    this.#isConnected = true;
    this.#untried = [];
    this.#failures = [];
    for (const other of this.#attempts.keys()) {
      if (other !== socket) {
        this.#attempts.delete(other);
        other.destroy();
      }
    }
  }

  #fail(error: Error): void {
    if (!this.#isClosed) this.#owner.onFailed(error);
  }
}

// The error of several addresses has the code of the first, as Node's own has.
function joinErrors(errors: readonly Error[]): Error {
  const [first, second] = errors;
  if (first !== undefined && second === undefined) return first;
  return Object.assign(new AggregateError(errors, ''), { code: (first as NodeJS.ErrnoException | undefined)?.code });
}
