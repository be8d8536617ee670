// An event loop in virtual time. Importing this file replaces the timers, the clocks and the randomness of the process, so
// that a world runs without waiting and in the same way each time. Promises and `process.nextTick` are real.

import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import perfHooks from 'node:perf_hooks';
import timersPromises from 'node:timers/promises';

/** Seeded chance. */
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

class Task {
  readonly callback: (...args: unknown[]) => unknown;
  readonly args: unknown[];
  readonly everyMs: number | undefined;
  at: number;
  order: number;
  isLive = true;

  constructor(at: number, callback: Task['callback'], args: unknown[], everyMs?: number) {
    this.at = at;
    this.order = loop.nextOrder();
    this.callback = callback;
    this.args = args;
    this.everyMs = everyMs;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  hasRef(): boolean {
    return true;
  }

  run(): void {
    this.callback(...this.args);
    runMicrotasks();
  }
}

// Tasks by time. Tasks of one time keep their order.
class Agenda {
  tasks: Task[] = [];

  add(task: Task): void {
    let at = this.tasks.length;
    while (at > 0 && (this.tasks[at - 1]?.at ?? 0) > task.at) at -= 1;
    this.tasks.splice(at, 0, task);
  }

  get first(): Task | undefined {
    while (this.tasks[0]?.isLive === false) this.tasks.shift();
    return this.tasks[0];
  }

  /** Removes and returns the first task if it is due, and was added before `order`. */
  takeDue(now: number, order: number): Task | undefined {
    const { first } = this;
    return first !== undefined && first.at <= now && first.order < order ? this.tasks.shift() : undefined;
  }
}

const startsAt = 1_000_000;
const epoch = Date.UTC(2030, 0, 1);

class EventLoop {
  /** In milliseconds. */
  now = startsAt;
  turn = 1;
  readonly timers = new Agenda();
  // Events of the network and of the world.
  readonly #events = new Agenda();
  #checks: Task[] = [];
  #order = 0;
  // How long the process will be paused, for instance by SIGSTOP.
  #pauseMs = 0;

  nextOrder(): number {
    return (this.#order += 1);
  }

  reset(): void {
    this.now = startsAt;
    this.turn = 1;
    this.#order = 0;
    this.#pauseMs = 0;
    this.timers.tasks = [];
    this.#events.tasks = [];
    this.#checks = [];
  }

  /** Calls `act` in the poll phase, in `ms` from now. */
  after(ms: number, act: () => void): void {
    this.#events.add(new Task(this.now + ms, act, []));
  }

  pause(ms: number): void {
    this.#pauseMs += ms;
  }

  addImmediate(callback: Task['callback'], args: unknown[]): Task {
    const task = new Task(0, callback, args);
    this.#checks.push(task);
    return task;
  }

  /** Runs one turn: timers, then arrived bytes, then checks. Returns false if nothing is left to do. */
  runTurn(): boolean {
    if (this.#checks.some(({ isLive }) => isLive)) {
      this.now += 0.05;
    } else {
      const [timer, event] = [this.timers.first, this.#events.first];
      if (timer === undefined && event === undefined) return false;
      this.now = Math.max(this.now, Math.min(timer?.at ?? Infinity, event?.at ?? Infinity));
    }
    this.now += this.#pauseMs;
    this.#pauseMs = 0;
    this.turn += 1;
    // Timers that start in this phase run in a later one.
    const order = this.nextOrder();
    for (let task = this.timers.takeDue(this.now, order); task; task = this.timers.takeDue(this.now, order)) {
      if (task.everyMs === undefined) {
        task.isLive = false;
      } else {
        task.at = this.now + task.everyMs;
        task.order = this.nextOrder();
        this.timers.add(task);
      }
      task.run();
    }
    const last = this.nextOrder();
    for (let task = this.#events.takeDue(this.now, last); task; task = this.#events.takeDue(this.now, last)) task.run();
    const checks = this.#checks;
    this.#checks = [];
    for (const task of checks) {
      if (task.isLive) task.run();
    }
    return true;
  }
}

export const loop = new EventLoop();

/** The clock of the machine. */
export const realNow = performance.now.bind(performance);

function startTimer(callback: Task['callback'], ms: unknown, args: unknown[], repeats: boolean): Task {
  const delayMs = Math.max(1, Math.floor(Number(ms)) || 1);
  const task = new Task(loop.now + delayMs, callback, args, repeats ? delayMs : undefined);
  loop.timers.add(task);
  return task;
}

const cancel = (task: Task | undefined): void => {
  if (task instanceof Task) task.isLive = false;
};

/** The real event loop. */
export const realImmediate = setImmediate;
export const realTurn = timersPromises.setImmediate;

const RealDate = Date;
class VirtualDate extends RealDate {
  constructor(value: number | string = VirtualDate.now()) {
    super(value);
  }

  static override now(): number {
    return Math.floor(epoch + loop.now);
  }
}

Object.assign(globalThis, {
  setTimeout: (callback: Task['callback'], ms: unknown, ...args: unknown[]) => startTimer(callback, ms, args, false),
  setInterval: (callback: Task['callback'], ms: unknown, ...args: unknown[]) => startTimer(callback, ms, args, true),
  setImmediate: (callback: Task['callback'], ...args: unknown[]) => loop.addImmediate(callback, args),
  clearTimeout: cancel,
  clearInterval: cancel,
  clearImmediate: cancel,
  Date: VirtualDate,
});
const define = (object: object, name: string, get: () => unknown): void => {
  Object.defineProperty(object, name, { configurable: true, get });
};
define(performance, 'now', () => virtualNow);
define(performance.nodeTiming, 'uvMetricsInfo', () => ({ loopCount: loop.turn }));
const virtualNow = (): number => loop.now;
const chance = new Chance(1);
Object.assign(crypto, { randomFillSync: (bytes: Buffer) => bytes.map(() => chance.int(0, 255)) });
Object.assign(timersPromises, {
  setImmediate: (value: unknown) => new Promise((resolve) => loop.addImmediate(resolve, [value])),
});
Object.assign(perfHooks, {
  monitorEventLoopDelay: () => ({ count: 0, enable: () => true, reset: () => undefined, percentile: () => 0 }),
});
syncBuiltinESMExports();
