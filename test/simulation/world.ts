// Runs one world: the gateway, its clients and its backend, in virtual time. Checks the invariants all the time.

import '../helpers/overwrite-released.ts';

import { createServer, type Server } from 'node:http';
import type { Log } from '../../packages/command/log/log.ts';
import { startLocalService, type LocalService } from '../../packages/command/service/local-service.ts';
import { createKeeper } from '../../packages/command/service/keeper.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import type { Settings } from '../../packages/command/settings/settings.ts';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import type { Counter, Keeper } from '../../packages/core/guards/ports/ports.ts';
import { createFetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { createNodeHandler } from '../../packages/core/hosts/node/node.ts';
import { Backend, type Attempt } from './backend.ts';
import { Client, type ClientConnection } from './clients.ts';
import { FetchClient } from './fetch-clients.ts';
import { loop, realImmediate, runMicrotasks } from './event-loop.ts';
import {
  allow,
  endsConnection,
  fixedReply,
  forbiddenReply,
  headBytesMax,
  incomplete,
  isRead,
  operationOf,
  overloaded,
  rateLimited,
  replyToAnswer,
  requestBytesMax,
  requestIdOf,
  responseBytesMax,
  timedOut,
  type Allowed,
} from './messages.ts';
import type { ClientPlan, Event, Plan, RequestPlan } from './plan.ts';
import { surroundings, type Connection } from './sockets.ts';

/** The time limits of the worlds, in ms. `slack`: how late they may be [D19, D35]. */
export const timeouts = {
  connect: 500,
  backend: 1_000,
  headers: 1_000,
  request: 2_000,
  idle: 4_000,
  stall: 1_500,
  slack: 100,
  sweep: 1_000,
  guard: 1_100,
};

/** A request, and what has become of it. */
export class Asked {
  readonly plan: RequestPlan;
  readonly address: string;
  readonly attempts: Attempt[] = [];
  connection: ClientConnection | undefined;
  /** Positions in the bytes of its connection. */
  start = 0;
  headEnd = 0;
  end = 0;
  continues = 0;
  sentAt = 0;
  /** When the gateway had its first byte, its head, all of it. */
  headAt: number | undefined;
  headEndAt: number | undefined;
  wholeAt: number | undefined;
  wholeTurn: number | undefined;
  /** The settings in force when its first byte arrived. */
  generation = 0;
  /** When the gateway began to write its reply. */
  repliedAt: number | undefined;
  /** When the gateway saw that its client has left. */
  leftAt: number | undefined;

  constructor(plan: RequestPlan, address: string) {
    this.plan = plan;
    this.address = address;
  }
}

/** Asks what the plan of a client says. */
export interface WorldClient {
  readonly plan: ClientPlan;
  readonly name: string;
  /** True if it waits for nothing and will ask nothing more. */
  readonly isDone: boolean;
  connect(): void;
  /** The faults stop: it reads again, sends nothing new, and leaves if it would wait for ever. */
  heal(): void;
}

export interface GotReply {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Buffer;
}

export interface Violation {
  readonly invariant: string;
  readonly detail: string;
}

class ViolationError extends Error {}

const replyHeaders = new Set(
  'content-type content-length cache-control x-content-type-options x-request-id date connection keep-alive allow retry-after ratelimit ratelimit-policy'.split(
    ' ',
  ),
);

const baseSettings = resolveSettings('serve', { backendUrl: 'http://backend.test:5104', docs: 'false' }, {}).settings;

// All ledgers that the world uses. No ledger may ever be below 0.
const budgets = new Set<BufferBudget>();
let current: World | undefined;
for (const name of ['take', 'add', 'giveBack'] as const) {
  const method = Reflect.get(BufferBudget.prototype, name) as (this: BufferBudget, bytes: number) => never;
  BufferBudget.prototype[name] = function (bytes: number): never {
    const result = method.call(this, bytes);
    budgets.add(this);
    if (this.bytes < 0) current?.fail('the ledger equals what is held', `${this.bytes} bytes`);
    return result;
  };
}

interface Decision {
  readonly askedAt: number;
  readonly decidedAt: number;
}

export class World {
  readonly plan: Plan;
  readonly asked = new Map<number, Asked>();
  readonly history: string[] | undefined;
  violation: Violation | undefined;
  isHealthy = false;
  isListening = true;
  isStopped = false;
  /** Since when connections that are quiet for a second may be closed. */
  drainedAt = Infinity;
  generation = 0;
  pausedMs = 0;
  readonly #startedAt = loop.now;
  readonly #backend: Backend;
  #clients: readonly WorldClient[];
  readonly #connections: Connection[] = [];
  readonly #decisions = new Map<string, Decision[]>();
  readonly #denies: Event['denies'][] = ['nothing'];
  #service: LocalService | undefined;
  #nodeServer: Server | undefined;
  #asks = 0;

  constructor(plan: Plan, hasHistory: boolean) {
    this.plan = plan;
    this.history = hasHistory ? [] : undefined;
    this.#backend = new Backend(this);
    this.#clients = plan.clients.map((each, index) => new Client(this, each, index));
  }

  report(line: string): void {
    this.history?.push(`${(loop.now - this.#startedAt).toFixed(2).padStart(9)} ms  ${line}`);
  }

  fail(invariant: string, detail: string): never {
    this.violation ??= { invariant, detail };
    throw new ViolationError(`${invariant}: ${detail}`);
  }

  /** Keeps an error that no caller can handle. */
  note(invariant: string, error: unknown): void {
    if (error instanceof ViolationError) return;
    this.violation ??= { invariant, detail: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }

  /** Runs the world to its end, or to the first violation. */
  run(): Violation | undefined {
    try {
      this.#run();
    } catch (error) {
      this.note('nothing throws', error);
    }
    return this.violation;
  }

  /** After a violation: ends what is left, so that the next world begins with nothing. */
  abandon(): void {
    for (const { socket } of [...this.#connections, ...this.#backend.connections.map(({ connection }) => connection)])
      socket.destroy();
    for (let turns = 0; turns < 1_000; turns += 1) {
      try {
        if (!loop.runTurn()) return;
      } catch {
        // The violation is known.
      }
    }
  }

  #run(): void {
    surroundings.dial = () => this.#backend.dial();
    surroundings.lookUp = () => Promise.resolve(['198.51.100.1']);
    const starts = { own: () => this.#startOwn(), node: () => this.#startNode(), fetch: () => this.#startFetch() };
    const end = starts[this.plan.host]();
    const baseline = new Set(loop.timers.tasks.filter(({ isLive }) => isLive));
    for (const client of this.#clients) loop.after(client.plan.startMs, () => client.connect());
    for (const event of this.plan.events) loop.after(event.atMs, () => this.#happen(event));
    const isDone = (): boolean => this.#clients.every((client) => client.isDone);
    this.#runUntil(isDone, 10_000);
    // Liveness: the faults stop, and all that is left is answered.
    this.report('the faults stop');
    this.isHealthy = true;
    for (const client of this.#clients) client.heal();
    const isInTime = this.#runUntil(isDone, 20_000 + this.pausedMs);
    if (!isInTime) this.fail('without faults, all that is left is answered', this.#describeLeft());
    const quietMs = timeouts.connect + timeouts.backend + timeouts.guard + timeouts.sweep;
    if (!this.isStopped) this.#runUntil(() => false, quietMs);
    if (!this.isStopped) this.#checkLedger();
    end();
    for (const task of baseline) task.isLive = false;
    this.#runUntil(() => false, 70_000);
    const left = loop.timers.tasks.filter(({ isLive }) => isLive);
    if (left.length > 0)
      this.fail('nothing stays', `timers: ${left.map(({ callback }) => callback.toString().slice(0, 200)).join()}`);
    const open = this.#connections.filter(({ handle }) => !handle.isClosed).length;
    const dialled = this.#backend.connections.filter(({ connection }) => !connection.handle.isClosed).length;
    if (open + dialled > 0) this.fail('nothing stays', `${open} connections of clients, ${dialled} to the backend`);
    this.#checkLedger();
  }

  #checkLedger(): void {
    for (const { bytes, calls } of budgets) {
      if (bytes !== 0 || calls !== 0)
        this.fail('the ledger is 0 when nothing is held', `${bytes} bytes, ${calls} calls`);
    }
  }

  #describeLeft(): string {
    const left = this.#clients.filter((client) => !client.isDone).map((client) => client.name);
    return `${left.join()} still wait`;
  }

  /** Runs turns until `isDone` returns true. Returns false if that takes more than `ms`. */
  #runUntil(isDone: () => boolean, ms: number): boolean {
    const until = loop.now + ms;
    const turns = loop.turn + 1_000_000;
    while (!isDone()) {
      if (!loop.runTurn() || loop.now > until || loop.turn > turns) return isDone();
      if (this.violation !== undefined) throw new ViolationError();
      if (loop.turn % 4 === 0) this.#checkHeld();
    }
    return true;
  }

  #settle<T>(promise: Promise<T>, ms: number, what: string): T {
    let result: { readonly value: T } | undefined;
    promise.then((value) => (result = { value }), (error: unknown) => this.note(what, error)); // prettier-ignore
    runMicrotasks();
    if (!this.#runUntil(() => result !== undefined, ms) || result === undefined) this.fail(what, `not within ${ms} ms`);
    return result.value;
  }

  // The command's server.
  #startOwn(): () => void {
    const { guardMs, limits } = this.plan;
    const settings: Settings = {
      ...baseSettings,
      ...this.#limits,
      ...{ requestHeadBytesMax: headBytesMax, requestHeadersTimeoutMs: timeouts.headers },
      ...{ idleTimeoutMs: timeouts.idle, connectionsMax: limits.connections },
      ...(guardMs !== undefined && { rateLimit: '100000/60s' }),
    };
    const keeper: Keeper = { ...createKeeper(), counter: guardMs && this.#createCounter(guardMs) };
    const starting = startLocalService(settings, this.#createLog(), { listens: false, tls: {}, keeper, parts: {} });
    const service = this.#settle(starting, 2_000, 'the gateway starts');
    this.#service = service;
    this.#reload = (event) => {
      const next: Settings = {
        ...settings,
        requestHeadBytesMax: headBytesMax + 1,
        ...(event.denies === 'hosts' && { allowedHosts: ['other.test'] }),
        ...(event.denies === 'counter' && { rateLimit: '99999/60s' }),
      };
      service.reload(next, {}).then(
        ({ finished }) => {
          // A drain keeps the old settings.
          if (finished === undefined) return;
          this.report(`reloaded: ${event.denies} is denied`);
          this.#denies.push(event.denies);
          this.generation += 1;
          this.drainedAt = Math.min(this.drainedAt, loop.now);
          void finished.then(() => this.report('the old settings have ended'));
        },
        (error: unknown) => this.note('a reload succeeds', error),
      );
    };
    return () => {
      this.#drain();
      this.#settle(this.#drained ?? Promise.resolve(), 3_000 + timeouts.sweep + this.pausedMs, 'a drain ends');
      this.isStopped = true;
      this.#settle(service.stop(), 2_000, 'a stop ends');
    };
  }

  #reload: (event: Event) => void = () => undefined;
  #drained: Promise<void> | undefined;

  #drain(): void {
    if (this.#drained !== undefined || this.#service === undefined) return;
    this.report('the gateway drains');
    this.drainedAt = Math.min(this.drainedAt, loop.now);
    this.isListening = false;
    this.#service.beginDrain();
    this.#drained = this.#service.finishDrain(new AbortController().signal).then(() => {
      const left = this.#service?.connectionCount ?? 0;
      if (left > 0) this.note('a drain ends when no connection is left', `${left} are left`);
    });
  }

  #happen(event: Event): void {
    this.report(`event: ${event.what}`);
    if (event.what === 'pause') {
      loop.pause(event.ms);
      this.pausedMs += event.ms;
    } else if (event.what === 'reload') {
      this.#reload(event);
    } else if (event.what === 'drain') {
      this.#drain();
    } else {
      this.isStopped = true;
      this.isListening = false;
      void this.#service?.stop();
    }
  }

  // The limits of all hosts.
  get #limits() {
    const { ageMs, limits } = this.plan;
    return {
      ...{ requestBytesMax, responseBytesMax, requestTimeoutMs: timeouts.request, replyStallTimeoutMs: timeouts.stall },
      ...{ backendTimeoutMs: timeouts.backend, backendConnectTimeoutMs: timeouts.connect, backendIdleTimeoutMs: 700 },
      ...{ backendConnectionAgeMaxMs: ageMs, inFlightMax: limits.inFlight, bufferedBytesMax: limits.bytes },
    };
  }

  get #handlerOptions() {
    const log = (line: string): void => {
      if (line.includes('bug:')) this.fail('no fault inside the gateway', line);
    };
    return { backendUrl: 'http://backend.test:5104', log, ...this.#limits };
  }

  // Node's server with the handler for it.
  #startNode(): () => void {
    const handler = createNodeHandler(this.#handlerOptions);
    const server = createServer((request, response) => handler(request, response));
    server.keepAliveTimeout = 0;
    this.#nodeServer = server;
    return () => this.#closeHandler(handler);
  }

  #startFetch(): () => void {
    const handler = createFetchHandler(this.#handlerOptions);
    this.#clients = this.plan.clients.map((each, index) => new FetchClient(this, each, index, handler));
    return () => this.#closeHandler(handler);
  }

  #closeHandler(handler: { close(): Promise<void> }): void {
    for (const { socket } of this.#connections) socket.destroy();
    this.isStopped = true;
    this.#settle(handler.close(), 2_000, 'a stop ends');
  }

  #createLog(): Log {
    const none = (): undefined => undefined;
    const error = (fields: { readonly err?: { readonly stack?: string } }, message: string): void => {
      if (message.startsWith('internal error')) this.fail('no fault inside the gateway', fields.err?.stack ?? message);
    };
    const logger = { isLevelEnabled: (level: string) => level === 'error', debug: none, info: none, warn: none, error };
    return { logger, output: {} } as unknown as Log;
  }

  // A guard that decides later, or never.
  #createCounter(delays: readonly number[]): Counter {
    return {
      revive: () => Promise.resolve(),
      close: () => undefined,
      take: (key, { limit }) =>
        new Promise((resolve) => {
          const askedAt = loop.now;
          const ms = this.isHealthy ? 0 : (delays[this.#asks++ % delays.length] ?? 0);
          // Without an answer, the gateway counts by itself, and admits.
          if (ms === Infinity && limit !== 99_999) return;
          loop.after(Math.min(ms, 300), () => {
            const list = this.#decisions.get(key) ?? [];
            list.push({ askedAt, decidedAt: loop.now });
            this.#decisions.set(key, list);
            resolve({ left: limit === 99_999 ? -1 : 1_000, msLeft: 1_000 });
          });
        }),
    };
  }

  /** Passes a connection to the gateway. */
  accept(connection: Connection): void {
    this.#connections.push(connection);
    if (this.#nodeServer === undefined) this.#service?.take(connection.socket);
    else this.#nodeServer.emit('connection', connection.socket);
  }

  // The replies that settings of this generation refuse with.
  #denialOf(asked: Asked, generation: number): Allowed | undefined {
    const { kind } = asked.plan;
    const denies = this.#denies.slice(0, generation + 1).find((each) => each !== 'nothing');
    const isChecked = !endsConnection(asked.plan) || kind === 'bad-chunk' || kind === 'unfinished';
    if (denies === 'hosts' && isChecked) return forbiddenReply;
    return denies === 'counter' && (operationOf(kind) !== undefined || kind === 'bad-id') && isChecked
      ? rateLimited
      : undefined;
  }

  /** Checks that this request may be called at the backend now. */
  checkCall(asked: Asked, dialledAt: number, isFirst: boolean, writtenAt: number): void {
    const { plan, connection, leftAt } = asked;
    const text = `request ${plan.id}, ${plan.kind}`;
    const networkMs = this.plan.network.latencyMs + 1;
    const arrivedAt = isRead(plan) ? asked.headEndAt : asked.wholeAt;
    if (fixedReply(plan.kind) !== undefined || arrivedAt === undefined)
      this.fail('only a whole, valid request is called', text);
    if (this.#denialOf(asked, asked.generation) !== undefined)
      this.fail('after a reload no call starts under the old settings', text);
    const before = connection?.outstanding.find((each) => each.start < asked.start && each.repliedAt === undefined);
    if (before !== undefined) this.fail('a request is finished before the next one starts', text);
    const { ageMs } = this.plan;
    const isNew = asked.attempts.length === 0;
    if (ageMs > 0 && isNew && !isFirst && loop.now - networkMs - dialledAt - this.pausedMs > ageMs + 2)
      this.fail('connections age', text);
    // The gateway may serve whole requests that arrived before the end of a client that may still read [D21].
    const mayRead = connection !== undefined && connection.client.plan.leaves?.how !== 'reset';
    if (leftAt === undefined || mayRead || writtenAt <= leftAt) return;
    const decision = this.#decisions.get(asked.address)?.find(({ askedAt }) => askedAt >= (asked.headEndAt ?? 0));
    const isLate = decision !== undefined && decision.decidedAt > leftAt;
    if (isRead(plan) || isLate) this.fail('no call starts for a client that has left', text);
  }

  /** The gateway has seen that a client has left. */
  onLeft(outstanding: readonly Asked[]): void {
    const [first] = outstanding;
    for (const asked of outstanding) asked.leftAt ??= loop.now;
    if (first === undefined || !isRead(first.plan) || first.repliedAt !== undefined) return;
    loop.after(2, () => {
      const attempt = first.attempts.at(-1);
      if (attempt === undefined || attempt.wholeAt !== undefined || attempt.endedAt !== undefined) return;
      if (first.repliedAt === undefined && !attempt.connection.connection.isGatewayClosed) {
        this.fail('a read is cancelled when its client leaves', `request ${first.plan.id}`);
      }
    });
  }

  /** A request that needs nothing else is answered in the turn in which it arrives, whatever others send [D58]. */
  checkTurns(asked: Asked, ahead: number): void {
    const isAlone = ahead === 1 && this.plan.network.readsPerTurn === 1 && asked.plan.kind === 'no-path';
    if (isAlone && loop.turn - (asked.wholeTurn ?? loop.turn) > 2)
      this.fail('no client waits for others', `request ${asked.plan.id}`);
  }

  checkReply(asked: Asked, reply: GotReply): void {
    const { plan } = asked;
    const { status, headers, body } = reply;
    const shown =
      body.length > 80 ? `${body.toString('latin1', 0, 80)}… (${body.length} bytes)` : body.toString('latin1');
    const text = `request ${plan.id}, ${plan.kind}: ${status} ${shown}`;
    this.report(`reply to ${text}`);
    for (const name of headers.keys()) {
      if (!replyHeaders.has(name)) this.fail('a reply has only the headers of D24', `${text}: ${name}`);
    }
    // Node itself answers a request that is cut off.
    if (this.plan.host === 'node' && status === 400 && asked.leftAt !== undefined) return;
    const isJson = status === 204 || headers.get('content-type') === 'application/json';
    const hasAll = headers.get('cache-control') === 'no-store' && headers.get('x-content-type-options') === 'nosniff';
    if (!isJson || !hasAll) this.fail('a reply has the headers of D24', text);
    const requestId = headers.get('x-request-id') ?? '';
    const isRefusal = [400, 408, 431, 503].includes(status);
    if (requestId !== requestIdOf(plan.id) && !(isRefusal && /^[0-9a-f-]{36}$/.test(requestId)))
      this.fail("a reply has its request's id", `${text}: ${requestId}`);
    const isCounted =
      this.plan.guardMs !== undefined &&
      operationOf(plan.kind) !== undefined &&
      (status < 400 || status === 404 || status === 429);
    if (isCounted && !headers.has('ratelimit')) this.fail('a counted reply says so', text);
    const allowed = this.#allowedFor(asked);
    const isRight = allowed.some(
      (each) => each.status === status && (plan.kind === 'head' ? true : each.body.equals(body)),
    );
    if (!isRight)
      this.fail(
        'a reply is one that this request may have',
        `${text}; allowed: ${allowed.map((each) => each.status).join()}`,
      );
    this.#checkTime(asked, status, text);
  }

  #checkTime(asked: Asked, status: number, text: string): void {
    const { sentAt, wholeAt, repliedAt = loop.now } = asked;
    const before = asked.connection?.lastRepliedAt ?? 0;
    if (asked.connection !== undefined) asked.connection.lastRepliedAt = repliedAt;
    const startedAt = Math.max(before, (this.plan.host === 'own' ? asked.headAt : asked.headEndAt) ?? sentAt);
    if (status === 408 && repliedAt - startedAt < timeouts.headers - 2 && asked.start > 0)
      this.fail('no request is late too early', text);
    if (wholeAt === undefined) {
      // While the client does not read, the gateway takes no further request from it.
      const unreadMs = asked.connection?.hasStopped === true ? asked.connection.client.plan.stopsForMs : 0;
      const lateMs = repliedAt - startedAt - unreadMs - timeouts.request - timeouts.sweep - this.pausedMs * 2;
      if (lateMs > 0) this.fail('a late request is refused in time', `${text}: ${lateMs} ms`);
      return;
    }
    const tookMs = repliedAt - Math.max(wholeAt, before);
    const boundMs = timeouts.backend + 2 * timeouts.connect + timeouts.guard + timeouts.slack + this.pausedMs * 3 + 50;
    if (tookMs > boundMs) this.fail('a call ends by its deadline', `${text}: after ${tookMs} ms`);
  }

  // The replies that the request may have now: the model.
  #allowedFor(asked: Asked): readonly Allowed[] {
    const { plan, generation } = asked;
    const allowed: Allowed[] = [];
    let isAdmitted = false;
    for (let each = generation; each <= this.generation; each += 1) {
      const denial = this.#denialOf(asked, each);
      if (denial === undefined) isAdmitted = true;
      else allowed.push(denial);
    }
    const fixed = fixedReply(plan.kind);
    if (isAdmitted) allowed.push(...(fixed === undefined ? this.#answersFor(asked) : [fixed]));
    const { limits } = this.plan;
    if (limits.inFlight < 1_000 || limits.bytes < 1e6) allowed.push(overloaded);
    if (asked.leftAt !== undefined && asked.wholeAt === undefined) allowed.push(incomplete);
    const beganAt = asked.start === 0 ? (asked.connection?.openedAt ?? 0) : (asked.headAt ?? loop.now);
    const hadMs = (asked.wholeAt ?? loop.now) - beganAt;
    const headMs = (asked.headEndAt ?? loop.now) - beganAt;
    const nearlyMs = this.pausedMs > 0 ? 500 : 2;
    const isLate = headMs >= timeouts.headers - nearlyMs || hadMs >= timeouts.request - nearlyMs;
    if (isLate) allowed.push(timedOut);
    return allowed;
  }

  #answersFor(asked: Asked): Allowed[] {
    const { plan, attempts } = asked;
    const failure = allow(500, operationOf(plan.kind)?.failure ?? '');
    const allowed: Allowed[] = [];
    const last = attempts.at(-1);
    const since = asked.headAt ?? asked.sentAt;
    if (this.isStopped || this.plan.limits.bytes < 1e6) allowed.push(failure);
    if (last === undefined) {
      // During a pause, the backend does not get on either.
      const isPaused = this.pausedMs > 0 && loop.now - since > timeouts.connect;
      if (this.#backend.hasTrouble(since) || isPaused) allowed.push(failure);
      return allowed;
    }
    const { answer, headAt, wholeAt, endedAt, got } = last;
    const [first = last] = attempts;
    const decided =
      wholeAt !== undefined
        ? replyToAnswer(plan, last.plan, answer, false)
        : headAt !== undefined
          ? replyToAnswer(plan, last.plan, answer, true)
          : undefined;
    const byHead = replyToAnswer(plan, last.plan, answer, true);
    const decidedAt = byHead === undefined ? wholeAt : headAt;
    if (decided !== undefined && !last.isSpoilt) allowed.push(decided);
    // The stray bytes may have completed a head that was cut.
    if (last.isMixed && byHead !== undefined) allowed.push(byHead);
    const isLate =
      loop.now >= since + timeouts.backend &&
      (decidedAt ?? Infinity) > (this.pausedMs > 0 ? since : first.startedAt) + timeouts.backend * 0.85;
    const isUnusable =
      got > 0 && (last.plan.head !== 'good' || last.plan.body === 'not-json' || answer.body.length > responseBytesMax);
    const isResent = isRead(plan) && attempts.length === 1 && last.isReused && got === 0;
    const isBroken =
      endedAt !== undefined && decided === undefined && (!isResent || this.#backend.hasTrouble(endedAt, true));
    if (isLate || isUnusable || isBroken || last.isSpoilt || last.isMixed) allowed.push(failure);
    return allowed;
  }

  /** The gateway has closed a connection. Checks that no reply is missing. */
  checkLost(party: ClientConnection, isCut: boolean): void {
    const { plan, isStopped } = this;
    const { outstanding, name, connection, client } = party;
    const isLimited = plan.limits.connections < 1_000 || plan.limits.bytes < 1e6;
    const isStalled =
      party.hasStopped && (client.plan.stopsForMs + this.pausedMs >= timeouts.stall - 200 || this.drainedAt < Infinity);
    if (isStopped || isLimited || isStalled || (party.isLast && !isCut) || party.hasLeft) return;
    const closedAt = connection.closedAt ?? loop.now;
    if (isCut) this.fail('a reply is whole', name);
    if (outstanding[0]?.headAt !== undefined)
      this.fail('each request gets its reply', `${name}: request ${outstanding[0].plan.id}`);
    const idleMs = closedAt - party.activeAt;
    const isQuiet = closedAt - Math.max(party.activeAt, this.drainedAt) >= 900 - this.pausedMs;
    const isLate = closedAt - (party.restSince ?? closedAt) >= timeouts.request - 2;
    if (!isQuiet && !isLate && idleMs < timeouts.headers - 2)
      this.fail('no connection is closed without a reason', `${name}: after ${idleMs} ms`);
  }

  /** The gateway has closed its connection to the backend. */
  checkEnd(asked: Asked, { connection, headAt, got, endedAt, isSpoilt }: Attempt): void {
    const isEarly = (connection.connection.closedAt ?? loop.now) < (asked.wholeAt ?? 0) + timeouts.backend * 0.85;
    const isUndecided = headAt === undefined && got === 0 && endedAt === undefined && !isSpoilt && !this.isStopped;
    if (!isRead(asked.plan) && isUndecided && isEarly)
      this.fail('a write that was sent runs to its end', `request ${asked.plan.id}`);
  }

  /** A client has read nothing for a time. */
  checkStall(party: ClientConnection): void {
    const { handle } = party.connection;
    const stuckMs = loop.now - handle.progressAt;
    const isStuck = !handle.isClosed && handle.writeQueueSize > 0;
    if (isStuck && stuckMs > timeouts.stall + timeouts.sweep + this.pausedMs * 2)
      this.fail('a stalled client is cut off in time', `${party.name}: after ${stuckMs} ms`);
  }

  checkIdle(party: ClientConnection): void {
    const idleMs = loop.now - party.activeAt;
    const isIdle =
      party.outstanding.length === 0 && !party.hasLeft && party.connection.closedAt === undefined && party.isReading;
    if (this.plan.host === 'own' && isIdle && idleMs > timeouts.idle + timeouts.sweep + this.pausedMs)
      this.fail('an idle connection is closed in time', `${party.name}: ${idleMs} ms`);
  }

  /** One connection gets at most 64 reads a turn, and what it sends ahead is held as at most 64 KiB and one read [D58]. */
  checkReads(reads: number, aheadBytes: number, name: string): void {
    // Without room, the gateway drops what is sent ahead.
    if (this.plan.host !== 'own' || this.plan.limits.bytes < 1e6) return;
    if (reads > 65) this.fail('a connection gets its share of a turn, and no more', `${name}: ${reads} reads`);
    if (aheadBytes > 131_072) this.fail('what is sent ahead is bounded', `${name}: ${aheadBytes} bytes`);
  }

  // Bytes that wait to be sent count [D69].
  #checkHeld(): void {
    const { inFlight, bytes: bytesMax } = this.plan.limits;
    for (const { bytes, calls } of budgets) {
      const isOver = calls > inFlight || (this.plan.host !== 'node' && bytes > bytesMax);
      if (isOver) this.fail('the limits hold', `${calls} calls, ${bytes} bytes`);
    }
    let waiting = 0;
    for (const { handle } of this.#connections) waiting += handle.isClosed ? 0 : handle.lentBytes;
    let counted = 0;
    for (const { bytes } of budgets) counted += bytes;
    if (waiting > counted) this.fail('what is held is counted', `${waiting} bytes wait, ${counted} are counted`);
  }
}

/** Runs the world of `plan`. Call it in `runInTurn`. */
export function runWorld(
  plan: Plan,
  hasHistory = false,
): { violation: Violation | undefined; history: readonly string[] } {
  loop.reset();
  budgets.clear();
  const world = new World(plan, hasHistory);
  current = world;
  const violation = world.run();
  if (violation !== undefined) world.abandon();
  current = undefined;
  return { violation, history: world.history ?? [] };
}

let hasLoaded = false;

/** Calls `act` in a turn of the real event loop, because microtasks cannot be run inside a microtask. */
export async function runInTurn<T>(act: () => T): Promise<T> {
  if (!hasLoaded) {
    // In virtual time, nothing can be loaded.
    await import('../../packages/core/guards/rate-limit/rate-limit-part.ts');
    hasLoaded = true;
  }
  return await new Promise((resolve, reject) => {
    realImmediate(() => {
      try {
        resolve(act());
      } catch (error) {
        reject(error instanceof Error ? error : new Error(String(error)));
      }
    });
  });
}
