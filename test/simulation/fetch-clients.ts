// The simulated clients of the fetch handler: a host has read their requests, and passes on the replies.

import { getEventListeners } from 'node:events';
import type { FetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { Client } from './clients.ts';
import { loop } from './event-loop.ts';
import { requestParts } from './messages.ts';
import type { Asked } from './model.ts';
import type { ClientPlan } from './plan.ts';
import type { World } from './world.ts';

export class FetchClient extends Client {
  readonly #handler: FetchHandler;
  #isWaiting = false;

  constructor(world: World, plan: ClientPlan, index: number, handler: FetchHandler) {
    super(world, plan, index);
    this.#handler = handler;
    this.name = `client ${index + 1}`;
  }

  override get isDone(): boolean {
    return !this.#isWaiting && !this.hasMore;
  }

  override connect(): void {
    const asked = this.takeRequest();
    if (asked === undefined) return;
    this.#isWaiting = true;
    loop.after(asked.plan.gapMs, () => {
      this.#ask(asked)
        .catch((error: unknown) => this.world.note('throws', error))
        .finally(() => {
          this.#isWaiting = false;
          loop.after(1, () => this.connect());
        });
    });
  }

  async #ask(asked: Asked): Promise<void> {
    const { world } = this;
    const { id, kind, isChunked } = asked.plan;
    const { method, target, headers, body } = requestParts(asked.plan);
    if (body.length > 0 && !isChunked) headers.push(['content-length', String(body.length)]);
    asked.sentAt = asked.headAt = asked.headEndAt = loop.now;
    if (body.length === 0) asked.wholeAt = loop.now;
    const leaving = new AbortController();
    const { leaves } = this.plan;
    if (leaves !== undefined && id % 3 === 0) {
      loop.after(leaves.after % 40, () => {
        if (asked.repliedAt !== undefined) return;
        world.report(`${this.name} leaves request ${id}`);
        leaving.abort();
        world.onLeft([asked], true);
      });
    }
    world.report(`${this.name} sends request ${id}, ${kind}, ${body.length} bytes`);
    const request = new Request(`http://gateway.test${target}`, {
      ...{ method, headers, signal: leaving.signal },
      ...(body.length > 0 && { body: stream(body, asked), duplex: 'half' }),
    });
    const listeners = getEventListeners(request.signal, 'abort').length;
    const response = await this.#handler(request, '192.0.2.1');
    asked.repliedAt ??= loop.now;
    const left = getEventListeners(request.signal, 'abort').length - listeners;
    world.expect(left === 0, 'stays', `${left} listeners of the signal of request ${id}`);
    const bytes = Buffer.from(await response.arrayBuffer());
    if (asked.leftAt === undefined) world.checkReply(asked, response.status, new Map(response.headers), bytes);
  }
}

function stream(body: Buffer, asked: Asked): ReadableStream<Uint8Array> {
  const { pieces, pieceMs } = asked.plan;
  const length = Math.ceil(body.length / pieces);
  let at = 0;
  let isCancelled = false;
  return new ReadableStream({
    cancel: () => {
      isCancelled = true;
    },
    pull: (controller) =>
      new Promise<void>((resolve) => {
        loop.after(at === 0 ? 0 : pieceMs, () => {
          if (isCancelled) return;
          if (at < body.length) controller.enqueue(new Uint8Array(body.subarray(at, at + length)));
          else controller.close();
          at += length;
          if (at >= body.length) asked.wholeAt ??= loop.now;
          resolve();
        });
      }),
  });
}
