// An event loop in virtual time. Importing this file replaces the timers, the clocks and the randomness of the process, so
// that a world runs without waiting and in the same way each time. Promises and `process.nextTick` are real.

import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import perfHooks from 'node:perf_hooks';
import timersPromises from 'node:timers/promises';

/** Seeded chance (mulberry32). */
export class Chance {
  #state: number;

  constructor(...seeds: readonly number[]) {
    this.#state = seeds.reduce((state, seed) => Math.imul(state ^ seed, 0x9e3779b1) + 0x7f4a7c15, 0x2545f491) >>> 0;
    this.next();
  }

  /** At least 0 and less than 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** An integer from `min` to `max`. Small numbers are as likely as large ones, unless `power` is more than 1. */
  int(min: number, max: number, power = 1): number {
    return min + Math.floor(this.next() ** power * (max - min + 1));
  }

  is(probability: number): boolean {
    return this.next() < probability;
  }

  of<const T>(values: readonly T[]): T {
    return values[this.int(0, values.length - 1)] as T;
  }
}

/** Runs what `process.nextTick` and promises have queued, also in the middle of a turn. */
export const runMicrotasks = (process as unknown as { readonly _tickCallback: () => void })._tickCallback;

type Callback = (...args: unknown[]) => unknown;

class Task {
  at: number;
  isLive = true;
  readonly callback: Callback;
  readonly args: readonly unknown[];
  readonly everyMs: number | undefined;

  constructor(at: number, callback: Callback, args: readonly unknown[] = [], everyMs?: number) {
    [this.at, this.callback, this.args, this.everyMs] = [at, callback, args, everyMs];
  }

  run(): void {
    if (!this.isLive) return;
    this.isLive = false;
    if (this.everyMs !== undefined) {
      this.isLive = true;
      this.at = loop.now + this.everyMs;
      loop.timers.add(this);
    }
    this.callback(...this.args);
    runMicrotasks();
  }
}

for (const name of ['ref', 'unref', 'hasRef']) {
  Reflect.set(Task.prototype, name, function (this: Task): Task {
    return this;
  });
}

// Tasks by time. Tasks of one time keep their order.
class Agenda {
  tasks: Task[] = [];

  add(task: Task): void {
    const later = this.tasks.findLastIndex(({ at }) => at <= task.at) + 1;
    this.tasks.splice(later, 0, task);
  }

  get nextAt(): number {
    while (this.tasks[0]?.isLive === false) this.tasks.shift();
    return this.tasks[0]?.at ?? Infinity;
  }

  /** Runs the tasks that are due. Those that they add run in a later turn. */
  run(): void {
    const first = this.tasks.findIndex(({ at }) => at > loop.now);
    for (const task of this.tasks.splice(0, first === -1 ? Infinity : first)) task.run();
  }
}

class EventLoop {
  /** In milliseconds. */
  now = 1_000_000;
  turn = 1;
  readonly timers = new Agenda();
  // Events of the network and of the world.
  readonly #events = new Agenda();
  #checks: Task[] = [];
  #pauseMs = 0;

  /** Calls `act` in the poll phase, in `ms` from now. */
  after(ms: number, act: () => void): void {
    this.#events.add(new Task(this.now + ms, act));
  }

  /** Stops the process for `ms`, as SIGSTOP does. */
  pause(ms: number): void {
    this.#pauseMs += ms;
  }

  addTimer(callback: Callback, ms: unknown, args: readonly unknown[], repeats: boolean): Task {
    const delayMs = Math.max(1, Math.floor(Number(ms)) || 1);
    const task = new Task(this.now + delayMs, callback, args, repeats ? delayMs : undefined);
    this.timers.add(task);
    return task;
  }

  addImmediate(callback: Callback, args: readonly unknown[]): Task {
    const task = new Task(0, callback, args);
    this.#checks.push(task);
    return task;
  }

  /** Runs one turn: timers, then arrived bytes, then checks. Returns false if nothing is left to do. */
  runTurn(): boolean {
    const next = Math.min(this.timers.nextAt, this.#events.nextAt);
    if (this.#checks.some(({ isLive }) => isLive)) this.now += 0.05;
    else if (next === Infinity) return false;
    else this.now = Math.max(this.now, next);
    this.now += this.#pauseMs;
    this.#pauseMs = 0;
    this.turn += 1;
    this.timers.run();
    this.#events.run();
    const checks = this.#checks;
    this.#checks = [];
    for (const task of checks) task.run();
    return true;
  }
}

export let loop = new EventLoop();

export function resetLoop(): void {
  loop = new EventLoop();
}

/** The clock and the event loop of the machine. */
export const realNow = performance.now.bind(performance);
const realImmediate = setImmediate;
export const realTurn = timersPromises.setImmediate;

/** Calls `act`, which must not throw, in a turn of the real event loop: microtasks cannot be run inside a microtask. */
export async function runInTurn<T>(act: () => T): Promise<T> {
  return await new Promise((resolve) => realImmediate(() => resolve(act())));
}

const epoch = Date.UTC(2030, 0, 1);
class VirtualDate extends Date {
  constructor(value: number | string = VirtualDate.now()) {
    super(value);
  }

  static override now(): number {
    return Math.floor(epoch + loop.now);
  }
}

const cancel = (task: unknown): void => {
  if (task instanceof Task) task.isLive = false;
};
Object.assign(globalThis, {
  setTimeout: (callback: Callback, ms: unknown, ...args: unknown[]) => loop.addTimer(callback, ms, args, false),
  setInterval: (callback: Callback, ms: unknown, ...args: unknown[]) => loop.addTimer(callback, ms, args, true),
  setImmediate: (callback: Callback, ...args: unknown[]) => loop.addImmediate(callback, args),
  ...{ clearTimeout: cancel, clearInterval: cancel, clearImmediate: cancel },
  Date: VirtualDate,
});
Object.defineProperty(performance, 'now', { value: () => loop.now });
Object.defineProperty(performance.nodeTiming, 'uvMetricsInfo', { get: () => ({ loopCount: loop.turn }) });
Object.assign(crypto, { randomFillSync: (bytes: Buffer) => bytes.fill(7) });
Object.assign(timersPromises, {
  setImmediate: (value: unknown) => new Promise((resolve) => loop.addImmediate(resolve, [value])),
});
Object.assign(perfHooks, {
  monitorEventLoopDelay: () => ({ count: 0, enable: () => true, reset: () => undefined, percentile: () => 0 }),
});
syncBuiltinESMExports();
