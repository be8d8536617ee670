// The simulated clients of the fetch handler: a host has read their requests, and passes on the replies.

import type { FetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { loop } from './event-loop.ts';
import { requestParts } from './messages.ts';
import type { ClientPlan, RequestPlan } from './plan.ts';
import { Asked, type World, type WorldClient } from './world.ts';

export class FetchClient implements WorldClient {
  readonly plan: ClientPlan;
  readonly name: string;
  readonly #world: World;
  readonly #handler: FetchHandler;
  readonly #address: string;
  #next = 0;
  #waiting = 0;
  #isStopped = false;

  constructor(world: World, plan: ClientPlan, index: number, handler: FetchHandler) {
    this.#world = world;
    this.plan = plan;
    this.#handler = handler;
    this.name = `client ${index + 1}`;
    this.#address = `192.0.2.${index + 1}`;
  }

  get isDone(): boolean {
    return this.#waiting === 0 && (this.#isStopped || this.#next === this.plan.requests.length);
  }

  heal(): void {
    this.#isStopped = true;
  }

  connect(): void {
    const plan = this.plan.requests[this.#next];
    if (plan === undefined || this.#isStopped) return;
    this.#next += 1;
    this.#waiting += 1;
    loop.after(plan.gapMs, () => this.#ask(plan));
  }

  #ask(plan: RequestPlan): void {
    const world = this.#world;
    const asked = new Asked(plan, this.#address);
    world.asked.set(plan.id, asked);
    const { method, target, headers, body } = requestParts(plan);
    if (body.length > 0 && !plan.isChunked) headers.push(['content-length', String(body.length)]);
    asked.sentAt = asked.headAt = asked.headEndAt = loop.now;
    if (body.length === 0) asked.wholeAt = loop.now;
    const leaving = new AbortController();
    const { leaves } = this.plan;
    if (leaves !== undefined && plan.id % 3 === 0) {
      loop.after(leaves.after % 40, () => {
        if (asked.repliedAt !== undefined) return;
        world.report(`${this.name} leaves request ${plan.id}`);
        asked.leftAt = loop.now;
        leaving.abort();
        world.onLeft([asked]);
      });
    }
    world.report(`${this.name} sends request ${plan.id}, ${plan.kind}, ${body.length} bytes`);
    const stream = body.length === 0 ? {} : { body: this.#stream(body, asked), duplex: 'half' };
    const request = new Request(`http://gateway.test${target}`, {
      method,
      headers,
      signal: leaving.signal,
      ...stream,
    } as RequestInit);
    const done = (): void => {
      this.#waiting -= 1;
      loop.after(1, () => this.connect());
    };
    const onReply = async (response: Response): Promise<void> => {
      asked.repliedAt ??= loop.now;
      const bytes = Buffer.from(await response.arrayBuffer());
      if (asked.leftAt === undefined)
        world.checkReply(asked, { status: response.status, headers: new Map(response.headers), body: bytes });
    };
    this.#handler(request, this.#address)
      .then(onReply)
      .catch((error: unknown) => world.note('nothing throws', error))
      .finally(done);
  }

  #stream(body: Buffer, asked: Asked): ReadableStream<Uint8Array> {
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
            if (at < body.length) {
              controller.enqueue(new Uint8Array(body.subarray(at, at + length)));
              at += length;
            } else {
              controller.close();
            }
            if (at >= body.length) asked.wholeAt ??= loop.now;
            resolve();
          });
        }),
    });
  }
}
