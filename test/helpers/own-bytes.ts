// Checks that each client gets the bytes of its own item: every byte of an answer derives from the item's id. Clients read
// at once, send ahead, stop reading, or come all together.

import assert from 'node:assert/strict';
import { gunzipSync } from 'node:zlib';
import { createGate } from './changes.ts';
import { RawClient, requestBytes, type CallOptions, type Reply } from './raw-client.ts';
import { answerBytes, type ScriptedBackend } from './scripted-backend.ts';

/** Sizes of answers in bytes: one piece of text, one block, two blocks, and more than the buffers of the OS hold. */
export const answerSizes = [64, 5_000, 16_385, 65_537, 2_500_000] as const;

/** A JSON string of `size` bytes that repeats `id`. */
function bodyOf(id: number, size: number): Buffer {
  const bytes = Buffer.alloc(size, `${id}-`);
  bytes[0] = bytes[size - 1] = 0x22;
  return bytes;
}

interface OwnBytesOptions {
  /** Opens a client of the target. */
  readonly open: () => Promise<Pick<RawClient, 'call'> & AsyncDisposable>;
  /** Opens a client that can send ahead and stop reading; undefined if the protocol has no requests in order. */
  readonly openRaw: (() => Promise<RawClient>) | undefined;
  readonly backend: ScriptedBackend;
  readonly headers?: CallOptions['headers'];
}

/** Makes calls in every way and compares every byte of their replies. `size` is in bytes. */
export class OwnBytes {
  readonly #options: OwnBytesOptions;
  readonly #size: number;
  readonly #gates = new Map<number, ReturnType<typeof createGate>>();
  #lastId = 0;

  constructor(size: number, options: OwnBytesOptions) {
    this.#size = size;
    this.#options = options;
    options.backend.answers(async (exchange) => {
      const id = Number(exchange.request.target.split('/').at(-1));
      await this.#gates.get(id)?.opened;
      await exchange.write(answerBytes(bodyOf(id, size)));
    });
  }

  #nextIds(count: number): number[] {
    return Array.from({ length: count }, () => (this.#lastId += 1));
  }

  async all(): Promise<void> {
    await this.#manyAtOnce();
    if (this.#options.openRaw !== undefined) {
      await this.#sentAhead();
      await this.#stopped();
    }
  }

  // Several clients at the same time, each with one request after the other on its connection.
  async #manyAtOnce(): Promise<void> {
    await Promise.all(Array.from({ length: this.#size > 1_000_000 ? 2 : 8 }, () => this.#callInOrder(2)));
  }

  // Two clients send four requests at once; the answer to the first comes last. Others call meanwhile.
  async #sentAhead(): Promise<void> {
    await this.#ahead(async (clients) => {
      for (const { ids } of clients) this.#gates.get(ids[0] ?? 0)?.open();
      await this.#manyAtOnce();
    });
  }

  // Two clients send four requests at once and stop reading, while others call.
  async #stopped(): Promise<void> {
    await this.#ahead(async (clients) => {
      for (const { client, ids } of clients) {
        client.pause();
        this.#gates.get(ids[0] ?? 0)?.open();
      }
      for (let round = 0; round < 2; round += 1) await this.#manyAtOnce();
      for (const { client } of clients) client.resume();
    });
  }

  async #ahead(act: (clients: { client: RawClient; ids: number[] }[]) => Promise<void>): Promise<void> {
    const { openRaw, backend } = this.#options;
    assert.ok(openRaw);
    const clients: { client: RawClient; ids: number[] }[] = [];
    for (let count = 0; count < 2; count += 1) {
      const client = await openRaw();
      const ids = this.#nextIds(4);
      this.#gates.set(ids[0] ?? 0, createGate());
      const isAsked = (): boolean => backend.requests.some(({ target }) => target.endsWith(`/${ids[0] ?? 0}`));
      client.send(Buffer.concat(ids.map((id) => this.#request(id))));
      await backend.until(isAsked, 'the first request of a client that sends ahead');
      clients.push({ client, ids });
    }
    await act(clients);
    for (const { client, ids } of clients) {
      for (const id of ids) this.#check(id, await client.reply());
      client.destroy();
    }
  }

  #request(id: number): Buffer {
    return requestBytes('GET', `/api/work-items/${id}`, { headers: this.#options.headers ?? [] });
  }

  async #callInOrder(count: number): Promise<void> {
    await using client = await this.#options.open();
    for (const id of this.#nextIds(count)) {
      this.#check(id, await client.call('GET', `/api/work-items/${id}`, { headers: this.#options.headers ?? [] }));
    }
  }

  #check(id: number, reply: Reply): void {
    assert.equal(reply.status, 200);
    const isCompressed = reply.header('content-encoding') === 'gzip';
    const body = isCompressed ? gunzipSync(reply.body) : reply.body;
    const expected = bodyOf(id, this.#size);
    if (!body.equals(expected)) {
      const at = body.findIndex((byte, index) => byte !== expected[index]);
      assert.fail(`item ${id}, ${this.#size} bytes: wrong from byte ${at}: ${body.toString('latin1', at, at + 20)}`);
    }
  }
}
