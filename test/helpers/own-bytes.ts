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
  readonly #headers: CallOptions;
  readonly #size: number;
  readonly #gates = new Map<number, ReturnType<typeof createGate>>();
  #lastId = 0;

  constructor(size: number, options: OwnBytesOptions) {
    this.#size = size;
    this.#options = options;
    this.#headers = { headers: options.headers ?? [] };
    options.backend.answers(async (exchange) => {
      const id = Number(exchange.request.target.split('/').at(-1));
      await this.#gates.get(id)?.opened;
      await exchange.write(answerBytes(bodyOf(id, size)));
    });
  }

  async all(): Promise<void> {
    await this.#manyAtOnce();
    if (this.#options.openRaw !== undefined) await this.#sentAhead(this.#options.openRaw);
  }

  // Several clients at the same time, each with one request after the other on its connection.
  async #manyAtOnce(): Promise<void> {
    const [clients, calls] = this.#size > 1_000_000 ? [2, 1] : [8, 2];
    await Promise.all(
      Array.from({ length: clients }, async () => {
        await using client = await this.#options.open();
        for (let call = 0; call < calls; call += 1) {
          const id = (this.#lastId += 1);
          this.#check(id, await client.call('GET', `/api/work-items/${id}`, this.#headers));
        }
      }),
    );
  }

  // Two clients send four requests at once; the answer to the first comes last. One stops reading, while others call.
  async #sentAhead(openRaw: () => Promise<RawClient>): Promise<void> {
    const { backend } = this.#options;
    const ahead = [];
    for (let count = 0; count < 2; count += 1) {
      const client = await openRaw();
      const first = this.#lastId + 1;
      const ids = Array.from({ length: 4 }, () => (this.#lastId += 1));
      const gate = createGate();
      this.#gates.set(first, gate);
      client.send(Buffer.concat(ids.map((id) => requestBytes('GET', `/api/work-items/${id}`, this.#headers))));
      await backend.until(
        () => backend.requests.some(({ target }) => target.endsWith(`/${first}`)),
        'the first request',
      );
      ahead.push({ client, ids, gate });
    }
    await this.#manyAtOnce();
    ahead[0]?.client.pause();
    for (const { gate } of ahead) gate.open();
    await this.#manyAtOnce();
    for (const { client, ids } of ahead) {
      client.resume();
      for (const id of ids) this.#check(id, await client.reply());
      client.destroy();
    }
  }

  #check(id: number, reply: Reply): void {
    assert.equal(reply.status, 200);
    const body = reply.header('content-encoding') === 'gzip' ? gunzipSync(reply.body) : reply.body;
    const expected = bodyOf(id, this.#size);
    if (!body.equals(expected)) {
      const at = body.findIndex((byte, index) => byte !== expected[index]);
      assert.fail(`item ${id}, ${this.#size} bytes: wrong from byte ${at}: ${body.toString('latin1', at, at + 20)}`);
    }
  }
}
