// Simulates a gateway with several workers. The primary process is real (packages/command/cluster). Workers, clients and time
// are simulated, and a seed decides everything. `node test/simulation/workers.ts SEED` prints the history of a world.

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { pathToFileURL } from 'node:url';

import type { FromWorker, ToWorker } from '../../packages/command/cluster/messages.ts';
import { startPool as start, type PoolSystem } from '../../packages/command/cluster/worker-pool.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import type { Settings } from '../../packages/command/settings/settings.ts';
import { addFigures } from '../../packages/figures/history.ts';
import { Chance, loop, resetLoop, runInTurn, runMicrotasks } from './event-loop.ts';

type Pool = Awaited<ReturnType<typeof start>>;
type Action = () => void;
type Start = Extract<ToWorker, { kind: 'start' | 'reload' }>;
interface Client {
  isServed: boolean;
  isClosed: boolean;
}

const flags = {
  backendUrl: 'http://127.0.0.1:1',
  port: '0',
  shutdownTimeoutMs: '2000',
  requestHeadersTimeoutMs: '400',
};
const base = resolveSettings('serve', flags, {}).settings;
const faults = ['kill', 'halt', 'fault', 'reload', 'refuse', 'lose', 'unborn', 'slow'] as const;
const signals = ['SIGKILL', 'SIGABRT', 'SIGTERM', 'SIGINT', null] as const;
// The longest pause before a missing worker is started. In `calmMs` every halted worker is replaced.
const [pauseMsMax, calmMs] = [10_100, 75_000];
const startsAt = loop.now;

/** Chance, what has happened, and whether it may happen. */
class World {
  isCalm = false;
  readonly history: string[] = [];
  readonly faults: ReadonlySet<string>;
  /** The first invariant that was broken. Nothing is thrown, because the caller might not see it. */
  broken: string | undefined;
  /** Called in each turn. */
  check: Action = () => undefined;
  readonly #chance: Chance;

  constructor(seed: number) {
    this.#chance = new Chance(seed, 9);
    this.faults = new Set(faults.filter(() => this.below(2) === 0));
    this.note(`seed ${seed}, faults: ${[...this.faults].join()}`);
  }

  note(text: string): void {
    this.history.push(`${(loop.now - startsAt).toFixed(1)} ms: ${text}`);
  }

  expect(isKept: boolean, invariant: string): void {
    if (!isKept) this.broken ??= invariant;
  }

  /** A whole number below `limit`. */
  below(limit: number): number {
    return this.#chance.int(0, limit - 1);
  }

  /** True in one of `cases` cases, if this world has the fault. */
  has(fault: (typeof faults)[number], cases = 10): boolean {
    return this.faults.has(fault) && !this.isCalm && this.below(cases) === 0;
  }

  /** The time of a message on its way, in ms. */
  delay(): number {
    return this.has('slow') ? this.below(200) : this.below(30) / 10;
  }
}

async function until<T>(promise: Promise<T>, limitMs: number, what: string): Promise<T> {
  const late = Promise.withResolvers<never>();
  loop.after(limitMs, () => late.reject(new Error(`not within ${limitMs} ms: ${what}`)));
  return await Promise.race([promise, late.promise]);
}

const pass = (ms: number): Promise<void> => new Promise((resolve) => loop.after(ms, resolve));

/** A worker process, as the primary process has it: a `ChildProcess`. */
class Worker extends EventEmitter {
  connected = true;
  isDead = false;
  /** True when the primary process knows that the worker leaves. */
  isLeaving = false;
  /** True when the primary process knows that the worker has ended. */
  isGone = false;
  /** The message with the settings and certificates that the worker uses. */
  used: Start | undefined;
  readonly pid: number;
  readonly #world: World;
  readonly #onServe: (used: Start | undefined) => void;
  // Messages to the worker, and those that the primary process has not read.
  readonly #inbox: Action[] = [];
  readonly #unread: FromWorker[] = [];
  #haltedUntil = 0;
  #exitCode: number | undefined;
  served = 0;
  readyAt = Infinity;
  #open = 0;

  constructor(pid: number, world: World, onServe: (used: Start | undefined) => void) {
    super();
    [this.pid, this.#world, this.#onServe] = [pid, world, onServe];
  }

  send(message: ToWorker, client?: Client): void {
    const world = this.#world;
    if (message.kind === 'connection') world.expect(!this.isLeaving, 'a connection to a worker that leaves');
    if (message.kind === 'finish-drain' || message.kind === 'cut') this.isLeaving = true;
    // A message to a process that has ended.
    if (this.isDead && this.connected && world.below(2) === 0) this.emit('error', new Error('write EPIPE'));
    this.#inbox.push(() => this.#receive(message, client));
    this.#after(world.delay(), () => this.#inbox.shift()?.());
  }

  kill(): void {
    this.die(null, 'SIGKILL');
  }

  halt(ms: number): void {
    this.#world.note(`worker ${this.pid} is halted for ${ms} ms`);
    this.#haltedUntil = Math.max(this.#haltedUntil, loop.now + ms);
  }

  /** An uncaught error. The worker reports it, and drains by itself. */
  fault(): void {
    this.#say({ kind: 'fault' });
    this.#leave(1);
  }

  die(code: number | null, signal: string | null): void {
    if (this.isDead) return;
    this.isDead = true;
    this.#world.note(`worker ${this.pid} ends with ${signal ?? code}`);
    loop.after(this.#world.below(2) * this.#world.delay(), () => {
      this.isGone = true;
      this.emit('exit', code, signal);
      this.#readRest(0);
    });
  }

  // The primary process reads the last messages in the turns of the event loop after the exit.
  #readRest(turns: number): void {
    if (turns === 0) this.#read();
    const next = turns > 0 ? turns - 1 : this.#world.below(9);
    if (this.#unread.length > 0) setImmediate(() => this.#readRest(next));
  }

  #read(): void {
    const message = this.#unread.shift();
    if (message?.kind === 'fault') this.isLeaving = true;
    if (message !== undefined) this.emit('message', message);
  }

  #after(ms: number, action: Action): void {
    loop.after(ms, () => {
      const haltedMs = this.#haltedUntil - loop.now;
      if (haltedMs > 0) this.#after(haltedMs, action);
      else if (!this.isDead) action();
    });
  }

  #say(message: FromWorker): void {
    this.#unread.push(message);
    loop.after(this.#world.delay(), () => this.#read());
  }

  #report(id: number): void {
    this.#say({ kind: 'report', id, report: { figures: [this.served], failures: [] } as never });
  }

  #leave(exitCode: number, cuts = false): void {
    this.#exitCode ??= exitCode;
    if ((this.#open > 0 || this.used === undefined) && !cuts) return;
    this.#report(-1);
    this.die(this.#exitCode, null);
  }

  #receive(message: ToWorker, client?: Client): void {
    const world = this.#world;
    if (message.kind === 'start' || message.kind === 'reload') {
      this.#after(world.below(message.kind === 'start' ? 1_000 : 200), () => this.#apply(message));
    } else if (message.kind === 'connection' && this.#exitCode === undefined && !world.has('lose')) {
      this.#say({ kind: 'taken', number: message.number });
      if (client === undefined) return;
      world.expect(!client.isServed, 'two workers serve one connection');
      this.#onServe(this.used);
      client.isServed = true;
      this.served += 1;
      this.#open += 1;
      this.#after(world.below(5) > 0 ? world.below(400) : 1_900, () => {
        this.#open -= 1;
        if (this.#exitCode !== undefined) this.#leave(this.#exitCode);
      });
    } else if (message.kind === 'ping') {
      this.#say({ kind: 'pong', number: message.number, open: this.#open });
    } else if (message.kind === 'renew-tls' && this.used !== undefined) {
      this.used = { ...this.used, tls: message.tls };
    } else if (message.kind === 'report') {
      this.#report(message.id);
    } else if (message.kind === 'finish-drain' || message.kind === 'cut') {
      this.#leave(message.kind === 'cut' ? 1 : 0, message.kind === 'cut');
    }
  }

  #apply(message: Start): void {
    const world = this.#world;
    const isRefused = message.settings.instanceName.endsWith('unusable') && !world.isCalm && world.below(2) === 0;
    const problem = isRefused ? 'unusable' : undefined;
    if (!isRefused) this.used = message;
    if (message.kind === 'reload') {
      this.#say({ kind: 'reloaded', id: message.id, problem });
      this.#after(world.below(500), () => this.#say({ kind: 'reload-finished', id: message.id }));
    } else {
      this.#say(isRefused ? { kind: 'start-error', message: 'unusable' } : { kind: 'ready', report: undefined });
      if (isRefused) this.#after(world.below(500), () => this.die(1, null));
      else this.readyAt = loop.now;
      if (this.#exitCode !== undefined) this.#leave(this.#exitCode);
    }
  }
}

/** Runs the world of `seed`, and resolves with its history. If an invariant is broken, the error has the history too. */
export async function runWorld(seed: number, startPool = start): Promise<string> {
  resetLoop();
  const world = new World(seed);
  await runInTurn(() => {
    let isOver = false as boolean;
    live(world, startPool).then(
      () => (isOver = true),
      (error: unknown) => (world.broken ??= String(error)),
    );
    runMicrotasks();
    while (!isOver && world.broken === undefined) {
      world.expect(loop.runTurn(), 'something happens');
      world.check();
    }
  });
  const history = `${world.history.join('\n')}\n`;
  if (world.broken !== undefined) throw new Error(history + world.broken);
  return history;
}

async function live(world: World, startPool: typeof start): Promise<void> {
  const workers: Worker[] = [];
  const clients: Client[] = [];
  const living = (): Worker[] => workers.filter(({ isDead }) => !isDead);
  let accept: (socket: never) => void = assert.fail;
  let versions = 0;
  const change = (connectionsMax: number): Settings => {
    const instanceName = `${(versions += 1)}${world.has('refuse', 2) ? ' unusable' : ''}`;
    return { ...base, connectionsMax, workers: 1 + world.below(4), instanceName };
  };
  let settings = change(3 + world.below(12));
  // The settings of the reload in progress.
  let next: Settings | undefined;
  let tls = {};
  let served = 0;
  let isEnding = false;
  // The last time when no worker was missing, or one was started.
  let startedAt = Infinity;

  const isInForce = (used: Start | undefined): boolean =>
    isEnding || [settings, next].some((each) => each?.instanceName === used?.settings.instanceName);
  const fork = (): Worker => {
    startedAt = Math.max(startedAt, loop.now);
    const worker = new Worker(workers.length + 1, world, (used) =>
      world.expect(isInForce(used), 'a connection is served with old settings'),
    );
    workers.push(worker);
    const isBorn = !world.has('unborn');
    world.note(`fork of worker ${worker.pid}${isBorn ? '' : ' fails'}`);
    if (isBorn) return worker;
    Object.assign(worker, { pid: undefined, connected: false, isDead: true, isGone: true });
    loop.after(0, () => worker.emit('error', new Error('spawn EAGAIN')));
    return worker;
  };
  world.check = () => {
    const wanted = Math.min(settings.workers, next?.workers ?? Infinity);
    if (workers.filter(({ isLeaving, isGone }) => !isLeaving && !isGone).length >= wanted)
      startedAt = Math.max(startedAt, loop.now);
    world.expect(loop.now - startedAt < pauseMsMax, 'a missing worker is not started');
  };
  const assertNoneWaits = (): void =>
    assert.ok(!clients.some(({ isClosed }) => !isClosed), 'the primary process still has a connection');
  const isPrompt = !['halt', 'lose', 'slow'].some((fault) => world.faults.has(fault));
  const connect = (): void => {
    const { now } = loop;
    const waiting = clients.filter((each) => !each.isServed && !each.isClosed).length;
    const isFull = waiting >= settings.connectionsMax;
    const destroy = (): void => {
      client.isClosed = true;
      const isLate = !client.isServed && loop.now - now > base.requestHeadersTimeoutMs - 1;
      world.expect(
        !isPrompt || isEnding || loop.now - now < 1_500,
        'a connection waits for a worker that does not take it',
      );
      const couldServe = workers.some((each) => !each.isDead && !each.isLeaving && each.readyAt < loop.now - 300);
      // A worker that starts during reloads first gets the settings in force.
      const isWronged = isPrompt && !world.faults.has('reload') && isLate && couldServe;
      world.expect(!isWronged, 'a connection is refused though a worker could serve it');
      const mayEnd = isFull || isEnding || isLate;
      world.expect(client.isServed || mayEnd, 'a connection is lost that no worker had begun to serve');
    };
    const client = { isServed: false, isClosed: false, on: () => client, destroy };
    clients.push(client);
    accept(client as never);
    // Each worker may have two more, also those that have just ended.
    const most = settings.connectionsMax + 2 * 8;
    world.expect(client.isClosed || waiting <= most, 'more than CONNECTIONS_MAX connections wait');
  };
  const count = async (pool: Pool): Promise<void> => {
    const reports = await pool.reports({ withProcessMetrics: false, probesBackend: false });
    const now = addFigures(reports).requests('list', 0);
    world.expect(now >= served, 'a counter has fallen');
    served = now;
  };
  const reload = async (pool: Pool): Promise<void> => {
    const before = tls;
    next = change(settings.connectionsMax);
    world.note(`reload: ${next.instanceName}, WORKERS=${next.workers}`);
    const problem = await pool.reload(next, (tls = {})).then(() => undefined, String);
    if (problem === undefined) settings = next;
    else tls = before;
    next = undefined;
    world.note(problem ?? 'reloaded');
  };
  const act = (pool: Pool): void => {
    for (let more = world.below(6); more > 0; more -= 1) connect();
    // The newest worker may still be starting.
    const choice = [living().at(-1), living().find(({ isLeaving }) => isLeaving)][world.below(4)];
    const worker = choice ?? living()[world.below(living().length)];
    const signal = signals[world.below(signals.length)] ?? null;
    loop.after(world.below(8), () => {
      if (world.has('kill')) worker?.die(signal === null ? 1 : null, signal);
      if (world.has('fault')) worker?.fault();
      if (world.has('halt', worker?.isLeaving === true ? 2 : 10))
        worker?.halt(world.below(2) === 0 ? Infinity : world.below(12_000));
    });
    if (world.below(10) === 0) void count(pool);
    if (next !== undefined) return;
    if (world.has('reload', 4)) void reload(pool);
    else if (world.below(10) === 0) pool.renewTls((tls = {}));
  };

  const note = (_: unknown, text: string): void => {
    world.note(text);
    const isHung = text.startsWith('a worker has not answered');
    const isUnusable = text.startsWith('a worker cannot use the settings in force');
    world.expect(!isHung || world.faults.has('halt'), 'a worker is killed that answers');
    world.expect(
      !isUnusable || [settings, next].some((each) => each?.instanceName.endsWith('unusable')),
      'a worker is killed that could be used',
    );
  };
  const log = { logger: { info: note, warn: note, error: note }, output: {} } as never;
  const system: PoolSystem = {
    fork: () => fork() as never,
    listen: (onConnection) => {
      accept = onConnection;
      return Promise.resolve({ url: 'http://127.0.0.1:1', close: () => Promise.resolve() } as never);
    },
  };
  const starting = startPool(settings, log, tls, [], system).catch(() => undefined);
  const pool = await until(starting, 100_000, 'the start ends');
  assert.ok(pool !== undefined || living().length === 0, 'no worker stays');
  if (pool === undefined) return;
  startedAt = loop.now;
  for (let acts = world.below(60); acts > 0; acts -= 1) {
    act(pool);
    await pass(world.below([5, 200, 200, 12_000][world.below(4)] ?? 0));
  }
  // In half of the worlds, the faults stop, and in the end all is well again.
  if (world.below(2) === 0) {
    world.isCalm = true;
    await pass(calmMs);
    assert.equal(living().length, settings.workers, 'there are WORKERS workers');
    assert.ok(!living().some(({ used }) => used?.tls !== tls || !isInForce(used)), 'all are up to date');
    assertNoneWaits();
    await until(count(pool), 2_000, 'all report');
    assert.ok(served >= living().reduce((sum, each) => sum + each.served, 0), 'all calls are counted');
  }
  world.note('drain');
  pool.beginDrain();
  await pass(world.below(500));
  for (let more = world.below(9); more > 0; more -= 1) connect();
  startedAt = Infinity;
  isEnding = !world.isCalm;
  const limit = new AbortController();
  const cut = new Promise((resolve) => limit.signal.addEventListener('abort', resolve));
  loop.after(base.shutdownTimeoutMs + 1_000, () => limit.abort());
  await until(Promise.race([pool.finishDrain(limit.signal), cut]), 4_000, 'a drain ends');
  assert.ok(!world.isCalm || (!limit.signal.aborted && !pool.hasFailed()), 'a drain without faults succeeds');
  isEnding = true;
  await until(pool.stop(), 1_000, 'a stop ends');
  assert.equal(living().length, 0, 'no worker stays');
  assertNoneWaits();
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  process.stdout.write(await runWorld(Number(process.argv[2])));
}
