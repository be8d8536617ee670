// Runs one world: the gateway, its clients and its backend, in virtual time. Checks the invariants all the time.

import '../helpers/overwrite-released.ts';

import { getEventListeners } from 'node:events';
import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import type { Log } from '../../packages/command/log/log.ts';
import { startLocalService, type LocalService } from '../../packages/command/service/local-service.ts';
import { createKeeper } from '../../packages/command/service/keeper.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import type { Settings } from '../../packages/command/settings/settings.ts';
import { giveBackBlocks, takeBlock } from '../../packages/core/body/blocks.ts';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import type { Counter } from '../../packages/core/guards/ports/ports.ts';
import { createFetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { createNodeHandler } from '../../packages/core/hosts/node/node.ts';
import { Backend, type BackendConnection } from './backend.ts';
import { Client, type ClientConnection } from './clients.ts';
import { loop, resetLoop, runInTurn, runMicrotasks } from './event-loop.ts';
import { FetchClient } from './fetch-clients.ts';
import { invariants, type Invariant } from './invariants.ts';
import { issuer, tokenSettings } from './issuer.ts';
import * as messages from './messages.ts';
import { allowedReplies, isOver, verdicts, type Asked, type Attempt } from './model.ts';
import type { Event, Plan } from './plan.ts';
import { surroundings } from './sockets.ts';

/** The time limits of the worlds, in ms. `slack`: how late they may be [D19, D35]. */
export const timeouts = {
  ...{ connect: 500, backend: 1_000, headers: 1_000, request: 2_000, idle: 4_000, stall: 1_500 },
  ...{ slack: 100, sweep: 1_000, counter: 1_100, keys: 16_000 },
};

export interface Violation {
  readonly invariant: string;
  readonly detail: string;
}

class ViolationError extends Error {}

const replyHeaders =
  'content-type content-length cache-control x-content-type-options x-request-id date connection keep-alive allow retry-after ratelimit ratelimit-policy www-authenticate'.split(' '); // prettier-ignore
const baseSettings = resolveSettings('serve', { backendUrl: 'http://backend.test:5104', docs: 'false' }, {}).settings;

// All ledgers that the world uses. No ledger may ever be below 0.
const budgets = new Set<BufferBudget>();
let current: World | undefined;
for (const name of ['take', 'add', 'giveBack'] as const) {
  const method = Reflect.get(BufferBudget.prototype, name) as (this: BufferBudget, bytes: number) => never;
  BufferBudget.prototype[name] = function (bytes: number): never {
    const result = method.call(this, bytes);
    budgets.add(this);
    current?.expect(this.bytes >= 0, 'ledger', `${this.bytes} bytes`);
    return result;
  };
}

const blockSizes = [512, 4_096, 16_384, 32_768, 49_152, 65_536];

// Takes all unused blocks from their store, and gives them back. Returns their number.
function countBlocks(): number {
  const allocate = Buffer.allocUnsafeSlow.bind(Buffer);
  let created: Buffer | undefined;
  Buffer.allocUnsafeSlow = (size) => (created = allocate(size));
  const blocks = blockSizes.flatMap((size) => {
    const taken = [takeBlock(size)];
    while (taken.at(-1) !== created) taken.push(takeBlock(size));
    return taken.slice(0, -1);
  });
  Buffer.allocUnsafeSlow = allocate;
  giveBackBlocks(blocks);
  return blocks.length;
}
giveBackBlocks(blockSizes.flatMap((size) => [takeBlock(size), takeBlock(size)]));

const countListeners = (): number => process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0);

export class World {
  readonly plan: Plan;
  readonly asked = new Map<number, Asked>();
  readonly backend = new Backend(this);
  readonly history: string[] | undefined;
  violation: Violation | undefined;
  isHealthy = false;
  isListening = true;
  isStopped = false;
  pausedMs = 0;
  /** The number of reloads, and what each generation of settings denies. */
  generation = 0;
  readonly denies: Event['denies'][] = ['nothing'];
  // Since when connections that are quiet for a second may be closed.
  #drainedAt = Infinity;
  readonly #startedAt = loop.now;
  readonly #keys: { readonly at: number; readonly keys: 'none' | 'first' | 'both' }[] = [{ at: 0, keys: 'none' }];
  #clients: readonly Client[];
  readonly #parties: ClientConnection[] = [];
  #service: LocalService | undefined;
  #drained: Promise<void> | undefined;
  #reload: (denies: Event['denies']) => void = () => undefined;
  #take: (socket: Socket) => void = () => undefined;

  /** A reload may fetch keys for settings that are never in force. */
  get hasReload(): boolean {
    return this.plan.events.some(({ what }) => what === 'reload');
  }

  constructor(plan: Plan, hasHistory: boolean) {
    this.plan = plan;
    this.history = hasHistory ? [] : undefined;
    this.#clients = plan.clients.map((each, index) => new Client(this, each, index));
  }

  report(line: string): void {
    if (this.violation === undefined)
      this.history?.push(`${(loop.now - this.#startedAt).toFixed(2).padStart(9)} ms  ${line}`);
  }

  fail(invariant: Invariant, detail: string): never {
    this.violation ??= { invariant: invariants[invariant], detail };
    throw new ViolationError(detail);
  }

  expect(isKept: boolean, invariant: Invariant, detail: string): void {
    if (!isKept) this.fail(invariant, detail);
  }

  /** Keeps an error that no caller can handle. */
  note(invariant: Invariant, error: unknown): void {
    if (error instanceof ViolationError) return;
    const detail = error instanceof Error ? (error.stack ?? error.message) : String(error);
    this.violation ??= { invariant: invariants[invariant], detail };
  }

  /** Runs the world to its end, or to the first violation. */
  run(): Violation | undefined {
    try {
      this.#run();
    } catch (error) {
      this.note('throws', error);
    }
    if (this.violation === undefined) return undefined;
    // Ends what is left, so that the next world begins with nothing.
    for (const { socket } of [...this.backend.connections, ...this.#parties]) socket.destroy();
    for (let turns = 0; turns < 1_000; turns += 1) {
      try {
        loop.runTurn();
      } catch {
        // The violation is known.
      }
    }
    return this.violation;
  }

  #run(): void {
    const { plan } = this;
    const [blocks, listeners] = [countBlocks(), countListeners()];
    surroundings.dial = (...to) => this.backend.dial(...to);
    let fetches = 0;
    issuer.next = () => {
      const fetch = plan.fetches?.[fetches++ % plan.fetches.length];
      return fetch === undefined || this.isHealthy ? { result: 'keys', afterMs: 0, hasSecond: true } : fetch;
    };
    issuer.onKeys = ({ result, hasSecond }) => {
      this.report(`a fetch of keys: ${result}${hasSecond ? ', both' : ''}`);
      if (result === 'keys') this.#keys.push({ at: loop.now, keys: hasSecond ? 'both' : 'first' });
    };
    const end = plan.host === 'own' ? this.#startOwn() : this.#startHandler();
    const baseline = new Set(loop.timers.tasks.filter(({ isLive }) => isLive));
    for (const client of this.#clients) loop.after(client.plan.startMs, () => client.connect());
    for (const event of plan.events) loop.after(event.atMs, () => this.#happen(event));
    const isDone = (): boolean => this.#clients.every((client) => client.isDone);
    this.#runUntil(isDone, 10_000);
    this.report('the faults stop');
    this.isHealthy = true;
    for (const client of this.#clients) client.heal();
    const isInTime = this.#runUntil(isDone, 20_000 + this.pausedMs);
    const waiting = this.#clients.filter((client) => !client.isDone).map(({ name }) => name);
    this.expect(isInTime, 'live', `${waiting.join()} still wait`);
    const guardMs = plan.fetches === undefined ? timeouts.counter : timeouts.keys;
    if (!this.isStopped) this.#runUntil(() => false, timeouts.connect + timeouts.backend + guardMs + timeouts.sweep);
    if (!this.isStopped) this.#checkEmpty();
    end();
    for (const task of baseline) task.isLive = false;
    this.#runUntil(() => false, 70_000);
    this.#checkEmpty();
    for (const { callback, isLive } of loop.timers.tasks) this.expect(!isLive, 'stays', callback.toString());
    for (const { handle, address } of [...this.#parties, ...this.backend.connections])
      this.expect(handle.isClosed, 'stays', `a connection of ${address}`);
    this.expect(countBlocks() >= blocks, 'stays', 'a block is missing');
    this.expect(countListeners() === listeners, 'stays', 'listeners of the process');
  }

  #checkEmpty(): void {
    for (const { bytes, calls } of budgets)
      this.expect(bytes === 0 && calls === 0, 'stays', `${bytes} bytes, ${calls} calls`);
  }

  /** Runs turns until `isDone` returns true. Returns false if that takes more than `ms`. */
  #runUntil(isDone: () => boolean, ms: number): boolean {
    const until = loop.now + ms;
    const turns = loop.turn + 1_000_000;
    while (!isDone()) {
      if (!loop.runTurn() || loop.now > until || loop.turn > turns) return isDone();
      if (this.violation !== undefined) throw new ViolationError();
      if (loop.turn % 8 === 0) this.#checkHeld();
    }
    return true;
  }

  #settle<T>(promise: Promise<T>, ms: number, invariant: Invariant): T {
    let result: { readonly value: T } | undefined;
    promise.then((value) => (result = { value }), (error: unknown) => this.note(invariant, error)); // prettier-ignore
    runMicrotasks();
    this.#runUntil(() => result !== undefined, ms);
    return result === undefined ? this.fail(invariant, `not within ${ms} ms`) : result.value;
  }

  // The limits of all hosts.
  get #limits() {
    const { ageMs, limits } = this.plan;
    return {
      ...messages.bodyLimits,
      ...{ requestTimeoutMs: timeouts.request, replyStallTimeoutMs: timeouts.stall },
      ...{ backendTimeoutMs: timeouts.backend, backendConnectTimeoutMs: timeouts.connect, backendIdleTimeoutMs: 700 },
      ...{ backendConnectionAgeMaxMs: ageMs, inFlightMax: limits.inFlight, bufferedBytesMax: limits.bytes },
    };
  }

  // The command's server.
  #startOwn(): () => void {
    const { guardMs, limits, fetches } = this.plan;
    const settings: Settings = {
      ...baseSettings,
      ...this.#limits,
      ...{ requestHeadBytesMax: messages.headBytesMax, requestHeadersTimeoutMs: timeouts.headers },
      ...{ idleTimeoutMs: timeouts.idle, connectionsMax: limits.connections },
      ...(guardMs !== undefined && { rateLimit: '100000/60s' }),
      ...(fetches !== undefined && tokenSettings),
    };
    const keeper = { ...createKeeper(), counter: guardMs && this.#createCounter(guardMs) };
    const none = (): undefined => undefined;
    const error = (fields: { readonly err?: { readonly stack?: string } }, message: string): void =>
      this.expect(!message.startsWith('internal error'), 'bug', fields.err?.stack ?? message);
    const logger = { isLevelEnabled: (level: string) => level === 'error', debug: none, info: none, warn: none, error };
    const options = { listens: false, tls: {}, keeper, parts: {} };
    const starting = startLocalService(settings, { logger, output: {} } as unknown as Log, options);
    const service = this.#settle(starting, 2_000, 'starts');
    this.#service = service;
    this.#take = (socket) => service.take(socket);
    this.#reload = (denies) => {
      const next: Settings = {
        ...settings,
        requestHeadBytesMax: messages.headBytesMax + 1,
        ...(denies === 'hosts' && { allowedHosts: ['other.test'] }),
        ...(denies === 'counter' && { rateLimit: '99999/60s' }),
      };
      service.reload(next, {}).then(
        ({ finished }) => {
          // A drain keeps the old settings.
          if (finished === undefined) return;
          this.report(`reloaded: ${denies} is denied`);
          this.denies.push(denies);
          this.generation += 1;
          this.#drainedAt = Math.min(this.#drainedAt, loop.now);
          void finished.then(() => this.report('the old settings have ended'));
        },
        (reason: unknown) => this.note('starts', reason),
      );
    };
    return () => {
      this.#drain();
      this.#settle(this.#drained ?? Promise.resolve(), 3_000 + timeouts.sweep + this.pausedMs, 'drain');
      this.isStopped = true;
      this.#settle(service.stop(), 2_000, 'drain');
    };
  }

  #drain(): void {
    if (this.#drained !== undefined || this.#service === undefined) return;
    this.report('the gateway drains');
    this.#drainedAt = Math.min(this.#drainedAt, loop.now);
    this.isListening = false;
    this.#service.beginDrain();
    const { signal } = new AbortController();
    this.#drained = this.#service.finishDrain(signal).then(() => {
      const left = this.#service?.connectionCount ?? 0;
      if (left > 0) this.note('drain', `${left} are left`);
      if (getEventListeners(signal, 'abort').length > 0) this.note('stays', "listeners of the drain's signal");
    });
  }

  #happen({ what, ms, denies }: Event): void {
    this.report(`event: ${what}`);
    if (what === 'reload') this.#reload(denies);
    if (what === 'drain') this.#drain();
    if (what === 'pause') {
      loop.pause(ms);
      this.pausedMs += ms;
    } else if (what === 'cut') {
      this.isStopped = true;
      this.isListening = false;
      void this.#service?.stop();
    }
  }

  // Node's server with the handler for it, or the fetch handler.
  #startHandler(): () => void {
    const log = (line: string): void => this.expect(!line.includes('bug:'), 'bug', line);
    const options = { backendUrl: 'http://backend.test:5104', log, ...this.#limits };
    let handler: { close(): Promise<void> };
    if (this.plan.host === 'node') {
      const node = (handler = createNodeHandler(options));
      const server = createServer((request, response) => node(request, response));
      server.keepAliveTimeout = 0;
      this.#take = (socket) => server.emit('connection', socket);
    } else {
      const fetch = (handler = createFetchHandler(options));
      this.#clients = this.plan.clients.map((each, index) => new FetchClient(this, each, index, fetch));
    }
    return () => {
      for (const { socket } of this.#parties) socket.destroy();
      this.isStopped = true;
      this.#settle(handler.close(), 2_000, 'drain');
    };
  }

  // A counter that answers later, or never.
  #createCounter(delays: readonly number[]): Counter {
    let counted = 0;
    return {
      revive: () => Promise.resolve(),
      close: () => undefined,
      take: (_key, { limit }) =>
        new Promise((resolve) => {
          const ms = this.isHealthy ? 0 : (delays[counted++ % delays.length] ?? 0);
          // Without an answer, the gateway counts by itself, and admits.
          if (ms === Infinity && limit !== 99_999) return;
          loop.after(Math.min(ms, 300), () => resolve({ left: limit === 99_999 ? -1 : 1_000, msLeft: 1_000 }));
        }),
    };
  }

  /** Passes a connection to the gateway. */
  accept(party: ClientConnection): void {
    this.#parties.push(party);
    this.#take(party.socket);
  }

  /** The keys that were in force since `from`. After a reload, each generation of settings has its own. */
  keysSince(from: number): readonly ('none' | 'first' | 'both')[] {
    const known = this.hasReload ? 0 : this.#keys.findLastIndex(({ at }) => at < from);
    return this.#keys.slice(Math.max(0, known)).map(({ keys }) => keys);
  }

  /** Checks a call that the gateway wrote at `writtenAt`. `dialledAt`: when its connection was opened, if it was used before. */
  checkCall(asked: Asked, { isGatewayClosed }: BackendConnection, writtenAt: number, dialledAt: number): void {
    const { plan, connection, attempts } = asked;
    const text = `request ${plan.id}, ${plan.kind}`;
    const arrivedAt = messages.isRead(plan) ? asked.headEndAt : asked.wholeAt;
    this.expect(messages.fixedReply(plan) === undefined && arrivedAt !== undefined, 'whole', text);
    this.expect(verdicts(this, asked, asked.generation).includes(undefined), 'reloaded', text);
    const before = connection?.outstanding.find((each) => each.start < asked.start && each.repliedAt === undefined);
    this.expect(before === undefined, 'order', text);
    const { ageMs } = this.plan;
    const isOld = writtenAt - dialledAt - this.pausedMs > ageMs + 2;
    this.expect(ageMs === 0 || attempts.length > 0 || !isOld, 'age', text);
    // A read that arrived behind a write before the end of its client is cancelled as soon as it starts [D21].
    const isCancelled = messages.isRead(plan) && isGatewayClosed;
    this.expect(writtenAt <= asked.lastStartAt || isCancelled, 'gone', text);
  }

  /** The gateway has seen that a client has left. `isReset`: it cannot read any more. */
  onLeft(outstanding: readonly Asked[], isReset: boolean): void {
    for (const asked of outstanding) asked.leftAt ??= loop.now;
    const pending = outstanding.filter(({ repliedAt }) => repliedAt === undefined);
    const [first] = pending;
    // Writes that arrived before an end are sent. After a reset, only the first one is, if it waits for a connection. A
    // write behind a read that is cancelled would violate `order`.
    for (const asked of pending) {
      const mayStart = !messages.isRead(asked.plan) && (!isReset || (asked === first && this.backend.isDialling));
      if (!mayStart) asked.lastStartAt = Math.min(asked.lastStartAt, loop.now);
    }
    if (first === undefined || !messages.isRead(first.plan)) return;
    loop.after(2, () => {
      const attempt = first.attempts.at(-1);
      const isCancelled = first.repliedAt !== undefined || attempt === undefined || isOver(attempt);
      this.expect(isCancelled, 'cancelled', `request ${first.plan.id}`);
    });
  }

  /** A request that needs nothing else is answered in the turn in which it arrives, whatever others send [D58]. */
  checkTurns({ plan, wholeTurn = loop.turn }: Asked): void {
    const isAlone = this.plan.network.readsPerTurn === 1 && plan.kind === 'no-path';
    this.expect(!isAlone || loop.turn - wholeTurn <= 2, 'alone', `request ${plan.id}`);
  }

  checkReply(asked: Asked, status: number, headers: ReadonlyMap<string, string>, body: Buffer): void {
    const { plan } = asked;
    const text = `request ${plan.id}, ${plan.kind}: ${status} ${body.toString('latin1', 0, 80)} (${body.length} bytes)`;
    this.report(`reply to ${text}`);
    // Node itself answers a request that is cut off.
    if (this.plan.host === 'node' && status === 400 && asked.leftAt !== undefined) return;
    const isRefusal = [400, 408, 431, 503].includes(status);
    const hasId = headers.get('x-request-id') === messages.requestIdOf(plan.id);
    const isCounted =
      this.plan.guardMs !== undefined &&
      messages.operationOf(plan) !== undefined &&
      (status < 400 || status === 404 || status === 429);
    const isRight =
      [...headers.keys()].every((name) => replyHeaders.includes(name)) &&
      (status === 204 || headers.get('content-type') === 'application/json') &&
      headers.get('cache-control') === 'no-store' &&
      headers.get('x-content-type-options') === 'nosniff' &&
      (hasId || (isRefusal && /^[0-9a-f-]{36}$/.test(headers.get('x-request-id') ?? ''))) &&
      (!isCounted || headers.has('ratelimit'));
    this.expect(isRight, 'headers', `${text}: ${JSON.stringify([...headers])}`);
    const allowed = allowedReplies(this, asked);
    const isAllowed = allowed.some(
      (each) => each.status === status && (plan.kind === 'head' || each.body.equals(body)),
    );
    this.expect(isAllowed, 'reply', `${text}; allowed: ${allowed.map((each) => each.status).join()}`);
    this.#checkTime(asked, status, text);
  }

  #checkTime(asked: Asked, status: number, text: string): void {
    const { sentAt, wholeAt, repliedAt = loop.now, connection } = asked;
    const before = connection?.lastRepliedAt ?? 0;
    if (connection !== undefined) connection.lastRepliedAt = repliedAt;
    const startedAt = Math.max(before, (this.plan.host === 'own' ? asked.headAt : asked.headEndAt) ?? sentAt);
    const tookMs = repliedAt - startedAt;
    const isEarly = status === 408 && tookMs < timeouts.headers - 2 && asked.start > 0;
    // While the client does not read, the gateway takes no further request from it.
    const unreadMs = connection?.hasStopped === true ? connection.client.plan.stopsForMs : 0;
    const { guardMs: counterMs, fetches } = this.plan;
    const guardMs = (counterMs === undefined ? 0 : timeouts.counter) + (fetches === undefined ? 0 : timeouts.keys);
    const lateMs = tookMs - unreadMs - timeouts.request - timeouts.sweep - guardMs - this.pausedMs * 2;
    this.expect(!isEarly && (wholeAt !== undefined || lateMs <= 0), 'late', `${text}: after ${tookMs} ms`);
    const callMs = repliedAt - Math.max(wholeAt ?? repliedAt, before) - unreadMs;
    const boundMs = timeouts.backend + 2 * timeouts.connect + guardMs + timeouts.slack + this.pausedMs * 3 + 50;
    this.expect(callMs <= boundMs, 'deadline', `${text}: after ${callMs} ms`);
  }

  /** The gateway has closed a connection. Checks that no reply is missing. `isCut`: a part of one has come. */
  checkLost(party: ClientConnection, isCut: boolean): void {
    const { limits } = this.plan;
    const { outstanding, name, client, closedAt = loop.now } = party;
    const isLimited = limits.connections < 1_000 || limits.bytes < 1e6;
    const isStalled =
      party.hasStopped &&
      (client.plan.stopsForMs + this.pausedMs >= timeouts.stall - 200 || this.#drainedAt < Infinity);
    if (this.isStopped || isLimited || isStalled || (party.isLast && !isCut) || party.hasLeft) return;
    this.expect(!isCut && outstanding[0]?.headAt === undefined, 'one', name);
    const idleMs = closedAt - party.activeAt;
    const isQuiet = closedAt - Math.max(party.activeAt, this.#drainedAt) >= 900 - this.pausedMs;
    const isLate = closedAt - (party.restSince ?? closedAt) >= timeouts.request - 2;
    this.expect(isQuiet || isLate || idleMs >= timeouts.headers - 2, 'idle', `${name}: after ${idleMs} ms`);
  }

  /** The gateway has closed its connection to the backend. */
  checkEnd({ plan, wholeAt = 0 }: Asked, { connection, headAt, got, endedAt, isSpoilt }: Attempt): void {
    const isEarly = (connection.closedAt ?? loop.now) < wholeAt + timeouts.backend * 0.85;
    const isUndecided = headAt === undefined && got === 0 && endedAt === undefined && !isSpoilt && !this.isStopped;
    this.expect(messages.isRead(plan) || !isUndecided || !isEarly, 'continued', `request ${plan.id}`);
  }

  /** A client has read nothing for a time. */
  checkStall({ name, handle }: ClientConnection): void {
    const stuckMs = handle.isClosed || handle.writeQueueSize === 0 ? 0 : loop.now - handle.progressAt;
    const isInTime = stuckMs <= timeouts.stall + timeouts.sweep + this.pausedMs * 2;
    this.expect(isInTime, 'stall', `${name}: after ${stuckMs} ms`);
  }

  checkIdle({ name, activeAt, outstanding, hasLeft, closedAt, isReading }: ClientConnection): void {
    const isIdle = outstanding.length === 0 && !hasLeft && closedAt === undefined && isReading;
    const idleMs = this.plan.host === 'own' && isIdle ? loop.now - activeAt : 0;
    this.expect(idleMs <= timeouts.idle + timeouts.sweep + this.pausedMs, 'idle', `${name}: ${idleMs} ms`);
  }

  /** One connection gets at most 64 reads a turn, and what it sends ahead is held as at most 64 KiB and one read [D58]. */
  checkReads(reads: number, aheadBytes: number, name: string): void {
    // Without room, the gateway drops what is sent ahead.
    if (this.plan.host !== 'own' || this.plan.limits.bytes < 1e6) return;
    this.expect(reads <= 65, 'turns', `${name}: ${reads} reads`);
    this.expect(aheadBytes <= 131_072, 'ahead', `${name}: ${aheadBytes} bytes`);
  }

  // The ledger is at least what the world sees that the gateway holds, and at most what the open requests and connections
  // can make it hold [D69].
  #checkHeld(): void {
    const { plan } = this;
    let counted = 0;
    for (const { bytes, calls } of budgets) {
      counted += bytes;
      const isKept = calls <= plan.limits.inFlight && (plan.host === 'node' || bytes <= plan.limits.bytes);
      this.expect(isKept, 'limits', `${calls} calls, ${bytes} bytes`);
    }
    let [least, most] = [0, 0];
    for (const party of this.#parties) {
      const { handle, socket, toGateway, pending } = party;
      // The buffer of bytes sent ahead has up to twice their length, of which a part may have been read.
      const aheadMax = toGateway.delivered > (pending?.headEnd ?? Infinity) ? 140_000 : 0;
      if (!handle.hasClosed) most += 2 * party.recentUnsent.note(socket.writableLength) + 12_288 + aheadMax;
      if (handle.isClosed) continue;
      // Buffers of more than 16 KiB are not copied.
      for (const { length } of handle.unsent) least += length > 16_384 ? length : 0;
      if (pending !== undefined && plan.host === 'own') least += this.#leastHeldBy(party, pending);
    }
    for (const asked of this.asked.values()) most += mostHeldBy(asked);
    this.expect(counted >= least, 'ledger', `${counted} bytes are counted, at least ${least} are held`);
    const isBelow = counted <= most || plan.host !== 'own';
    this.expect(isBelow, 'ledger', `${counted} bytes are counted, at most ${most} are held`);
  }

  // Bytes of a request's body, of what was sent behind it, and of the answer that arrives. A connection may hold 4 KiB uncounted.
  #leastHeldBy(
    { toGateway, isEnding, hasLeft, client }: ClientConnection,
    { plan, attempts, headEnd, end }: Asked,
  ): number {
    const isDropped =
      isEnding || hasLeft || client.plan.requests.some(messages.isMalformed) || this.plan.limits.bytes < 1e6;
    if (attempts.some(isOver) || isDropped) return 0;
    const { delivered } = toGateway;
    const isKept = plan.kind === 'create' || plan.kind === 'update';
    const body = isKept ? Math.min(delivered, end) - headEnd - framingBytes : 0;
    const held = Math.max(0, body) + Math.max(0, delivered - end) - 4_096;
    const last = attempts.at(-1);
    if (last === undefined || last.isSpoilt || last.isMixed) return Math.max(0, held);
    const [byHead, byAll] = [false, true].map((isWhole) =>
      messages.replyToAnswer(plan, last.plan, last.answer.body, isWhole),
    );
    const isPassed = byHead === undefined && byAll !== undefined && byAll.status < 300;
    return Math.max(0, held) + (isPassed ? Math.max(0, last.got - last.answer.headEnd - framingBytes) : 0);
  }
}

// The lines of chunks, at most.
const framingBytes = 60;

// A body is held in buffers of up to twice its length, an answer in whole blocks.
function mostHeldBy(asked: Asked): number {
  const { connection: party, attempts, headAt, headEnd, end, repliedAt, lastStartAt } = asked;
  if (party === undefined || headAt === undefined) return 0;
  const { handle, toGateway } = party;
  // A call may be on its way to the backend.
  const isAnswered = repliedAt !== undefined || attempts.length > 0 || lastStartAt <= loop.now - 2_000;
  const isDone = attempts.every((each) => each.wholeAt !== undefined || each.connection.handle.hasClosed);
  if (isDone && (handle.hasClosed ? isAnswered : !party.outstanding.includes(asked))) return 0;
  const body = Math.max(0, Math.min(toGateway.delivered, end) - headEnd);
  return attempts.reduce((sum, { got }) => sum + got + 65_536, 2 * body + 20_480);
}

let hasLoaded = false;

/** Runs the world of `plan`. */
export async function runWorld(
  plan: Plan,
  hasHistory = false,
): Promise<{ violation: Violation | undefined; history: readonly string[] }> {
  if (!hasLoaded) {
    // In virtual time, nothing can be loaded.
    await import('../../packages/core/guards/rate-limit/rate-limit-part.ts');
    const { loadJose } = await import('../../packages/core/guards/tokens/signing-keys.ts');
    await import('../../packages/core/guards/tokens/tokens-part.ts');
    await loadJose();
    hasLoaded = true;
  }
  return await runInTurn(() => {
    resetLoop();
    budgets.clear();
    current = new World(plan, hasHistory);
    const { history = [] } = current;
    const violation = current.run();
    current = undefined;
    return { violation, history };
  });
}
