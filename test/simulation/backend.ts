// The simulated backend. It checks what it gets, and answers as the plan says.

import { Chance, loop } from './event-loop.ts';
import { answerBytes, backendCall, isRead, type RequestBytes } from './messages.ts';
import { isOver, type Asked, type Attempt } from './model.ts';
import { goodAnswer } from './plan.ts';
import { Party, type Dialled, type Options } from './sockets.ts';
import { timeouts, type World } from './world.ts';

export class Backend {
  readonly connections: BackendConnection[] = [];
  /** When connections could not be opened soon, and when they died. */
  readonly #dialTroubles: number[] = [];
  readonly #deaths: number[] = [];
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  dial(address: string, options: Options): Dialled {
    const { plan, isHealthy } = this.#world;
    const number = this.connections.length;
    const { result, afterMs } = (isHealthy ? undefined : plan.dials[number]) ?? { result: 'open', afterMs: 0.5 };
    const opensAt = result === 'never' ? Infinity : loop.now + afterMs;
    const party = new BackendConnection(this.#world, this, number, opensAt);
    party.open(address, plan.network, new Chance(plan.seed, 3, number), options);
    this.connections.push(party);
    this.#world.report(`backend connection ${number}: ${result} after ${afterMs.toFixed(1)} ms`);
    if (result !== 'open') this.#dialTroubles.push(loop.now, loop.now + timeouts.connect);
    // During a pause, the refusal arrives later.
    if (result === 'refused') loop.after(afterMs, () => this.#dialTroubles.push(loop.now));
    if (afterMs > 100) this.#dialTroubles.push(loop.now, loop.now + afterMs);
    return { party, result, afterMs };
  }

  /** True if a call may be waiting for a connection. */
  get isDialling(): boolean {
    return this.connections.some((each) => each.opensAt >= loop.now && !each.handle.isClosed);
  }

  onDeath(ms: number): void {
    this.#deaths.push(loop.now, loop.now + ms);
  }

  /** True if a connection could not be opened soon since `from` or, except for a call on a new one, died. */
  hasTrouble(from: number, isOnNew = false): boolean {
    const since = from - this.#world.plan.network.latencyMs - 2;
    return [...this.#dialTroubles, ...(isOnNew ? [] : this.#deaths)].some((at) => at >= since);
  }
}

export class BackendConnection extends Party {
  readonly number: number;
  readonly opensAt: number;
  readonly #dialledAt = loop.now;
  readonly #world: World;
  readonly #backend: Backend;
  #bytes: Buffer = Buffer.alloc(0);
  #sent = 0;
  #exchanges = 0;
  #hasStrays = false;
  /** When the gateway wrote the head of the latest call, and how many listeners its socket had. */
  #writtenAt = 0;
  #listeners = 0;
  #expected: RequestBytes | undefined;
  #asked: Asked | undefined;
  #attempt: Attempt | undefined;
  #isAnswered = true;

  constructor(world: World, backend: Backend, number: number, opensAt: number) {
    super();
    [this.#world, this.#backend, this.number, this.opensAt] = [world, backend, number, opensAt];
  }

  onWrite(start: string): void {
    if (!/^[A-Z]+ \//.test(start)) return;
    this.#writtenAt = loop.now;
    const { listenerTotal } = this.socket;
    this.#world.expect(this.#exchanges < 2 || listenerTotal <= this.#listeners, 'stays', `${listenerTotal} listeners`);
    this.#listeners = listenerTotal;
  }

  onReceived(bytes: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? bytes : Buffer.concat([this.#bytes, bytes]);
    if (this.#expected === undefined) this.#readHead();
    if (this.#expected !== undefined) this.#readBody(this.#expected.body);
  }

  #readHead(): void {
    const world = this.#world;
    const end = this.#bytes.indexOf('\r\n\r\n') + 4;
    if (end === 3) return;
    const head = this.#bytes.subarray(0, end);
    this.#bytes = this.#bytes.subarray(end);
    const text = head.toString('latin1');
    const asked = world.asked.get(Number(/\r\nx-request-id: simulated\.(\d+)\r\n/.exec(text)?.[1]));
    if (asked === undefined) return world.fail('calls', text);
    this.#asked = asked;
    this.#expected = backendCall(asked.plan);
    world.expect(head.equals(this.#expected.head), 'calls', text);
    const last = this.#attempt;
    const isWhole = this.#isAnswered && (last === undefined || (last.answer.persists && last.got >= last.answer.end));
    // Stray bytes within an answer may have completed it.
    world.expect(isWhole || last?.isMixed === true, 'reuse', `request ${asked.plan.id}`);
    this.#start(asked);
  }

  #start(asked: Asked): void {
    const world = this.#world;
    const { handle, toGateway } = this;
    const { id, answers } = asked.plan;
    const number = asked.attempts.length + 1;
    const isReused = this.#exchanges > 0 || handle.wasIdle;
    const how = isReused ? ', reused' : '';
    world.report(`backend connection ${this.number} gets request ${id}, attempt ${number}${how}`);
    world.checkCall(asked, this, this.#writtenAt, isReused ? this.#dialledAt : Infinity);
    const [first] = asked.attempts;
    const mayResend =
      first === undefined ||
      (isRead(asked.plan) &&
        number === 2 &&
        first.isReused &&
        first.endedAt !== undefined &&
        first.connection.toGateway.delivered === first.deliveredBefore &&
        !isReused);
    world.expect(mayResend, 'resend', `request ${id}`);
    const plan = world.isHealthy ? goodAnswer : (answers[number - 1] ?? goodAnswer);
    const isAfterMixed = this.#attempt?.isMixed === true;
    const attempt: Attempt = {
      ...{ connection: this, plan, answer: answerBytes(asked.plan, number, plan), startedAt: loop.now, isReused },
      ...{ sentBefore: this.#sent, deliveredBefore: toGateway.delivered, got: 0 },
      ...{ isSpoilt: this.#hasStrays && !isAfterMixed, isMixed: isAfterMixed },
      ...{ headAt: undefined, wholeAt: undefined, endedAt: undefined },
    };
    this.#attempt = attempt;
    asked.attempts.push(attempt);
    this.#exchanges += 1;
    this.#isAnswered = false;
    // D19: past the deadline the connection is closed, whether or not the reply was decided before.
    loop.after(timeouts.backend + timeouts.slack + world.pausedMs, () =>
      loop.after(world.pausedMs + 2, () => world.expect(isOver(attempt), 'deadline', `request ${id}`)),
    );
    if (plan.when === 'early') this.#answerSoon(attempt);
  }

  #readBody(body: Buffer): void {
    const bytes = this.#bytes;
    const isRight = bytes.length <= body.length && body.subarray(0, bytes.length).equals(bytes);
    this.#world.expect(isRight, 'calls', `request ${this.#asked?.plan.id ?? 0}: another body`);
    if (bytes.length < body.length) return;
    this.#bytes = Buffer.alloc(0);
    this.#expected = undefined;
    if (this.#attempt?.plan.when === 'whole') this.#answerSoon(this.#attempt);
  }

  #answerSoon(attempt: Attempt): void {
    const { plan, answer } = attempt;
    const { cut, cutAt, thenMs } = plan;
    const isCut = cutAt < 1 && !(cut === 'short' && plan.framing === 'length');
    const length = isCut ? Math.floor(cutAt * answer.bytes.length) : Infinity;
    loop.after(plan.delayMs, () => {
      this.#answer(answer.bytes.subarray(0, length));
      if (!isCut) this.#finish(attempt);
      else if (cut === 'reset') loop.after(1, () => this.#die('reset'));
      else if (cut === 'pause') loop.after(30 + thenMs, () => this.#finish(attempt, answer.bytes.subarray(length)));
      else if (cut !== 'never') this.#die('close');
    });
  }

  #finish(attempt: Attempt, rest: Buffer = Buffer.alloc(0)): void {
    const { then, thenMs, cutAt } = attempt.plan;
    this.#answer(rest);
    this.#isAnswered = true;
    if (cutAt < 1 || (!attempt.answer.persists && then !== 'announce')) {
      this.#die('close');
    } else if (then === 'stray') {
      loop.after(thenMs, () => {
        this.#hasStrays = true;
        const last = this.#attempt;
        if (last !== undefined && !this.#isAnswered)
          last[this.#sent === last.sentBefore ? 'isSpoilt' : 'isMixed'] = true;
        this.#backend.onDeath(this.#world.plan.network.latencyMs * 2);
        this.#answer(Buffer.from('STRAY\r\n\r\n'));
      });
    } else if (then !== 'keep') {
      loop.after(thenMs, () => this.#die(then === 'reset' ? 'reset' : 'close'));
    }
  }

  #answer(bytes: Buffer): void {
    if (!this.isGone) this.#sent += bytes.length;
    this.send(bytes);
  }

  #die(how: 'close' | 'reset'): void {
    if (this.isGone) return;
    this.#world.report(`backend connection ${this.number}: ${how}`);
    this.#backend.onDeath(this.#world.plan.network.latencyMs * 4);
    this[how]();
  }

  onDelivered(what: string): void {
    const attempt = this.#attempt;
    if (attempt === undefined) return;
    const { end, headEnd, bytes } = attempt.answer;
    attempt.got = this.toGateway.delivered - attempt.sentBefore;
    // Stray bytes spoil a call that is on its way to the backend.
    if (attempt.got > end) this.#backend.onDeath(0);
    if (attempt.got >= headEnd) attempt.headAt ??= loop.now;
    if (what !== 'bytes') attempt.endedAt ??= loop.now;
    const isEnded = end === Infinity && what !== 'bytes' && !this.isBroken;
    if (attempt.got >= (isEnded ? bytes.length : end)) attempt.wholeAt ??= loop.now;
  }

  onEnd(): void {
    this.isGone = true;
    if (this.#attempt !== undefined && this.#asked !== undefined) this.#world.checkEnd(this.#asked, this.#attempt);
  }
}
