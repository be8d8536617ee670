// The simulated backend. It checks what it gets, and answers as the plan says.

import { Chance, loop } from './event-loop.ts';
import { answerBytes, backendCall, isRead, type AnswerBytes, type RequestBytes } from './messages.ts';
import { goodAnswer, type AnswerPlan } from './plan.ts';
import { Party, type Dialled } from './sockets.ts';
import { timeouts, type Asked, type World } from './world.ts';

/** One request that the backend has got. */
export interface Attempt {
  readonly connection: BackendConnection;
  readonly plan: AnswerPlan;
  readonly answer: AnswerBytes;
  readonly startedAt: number;
  /** Bytes that the backend had sent on the connection before. */
  readonly sentBefore: number;
  /** Bytes that the gateway had on the connection when the backend got the request. */
  readonly deliveredBefore: number;
  /** The connection had carried a call, or had been idle. */
  readonly isReused: boolean;
  /** Stray bytes were sent before the answer. */
  isSpoilt: boolean;
  /** Stray bytes were sent within the answer, or within an earlier one and are perhaps read with it. */
  isMixed: boolean;
  /** Bytes of the answer that the gateway has. */
  got: number;
  /** When the gateway had the answer's head, and all of it. */
  headAt: number | undefined;
  wholeAt: number | undefined;
  /** When the gateway saw the end of the connection. */
  endedAt: number | undefined;
}

export class Backend {
  readonly #world: World;
  readonly connections: BackendConnection[] = [];
  /** When connections could not be opened soon, and when they died. */
  readonly dialTroubles: number[] = [];
  readonly deaths: number[] = [];

  constructor(world: World) {
    this.#world = world;
  }

  dial(): Dialled {
    const { plan } = this.#world;
    const number = this.connections.length;
    const dialled = (this.#world.isHealthy ? undefined : plan.dials[number]) ?? {
      result: 'open' as const,
      afterMs: 0.5,
    };
    const party = new BackendConnection(this.#world, this, number);
    this.connections.push(party);
    this.#world.report(`backend connection ${number}: ${dialled.result} after ${dialled.afterMs.toFixed(1)} ms`);
    if (dialled.result !== 'open') this.dialTroubles.push(loop.now, loop.now + timeouts.connect);
    // During a pause, the refusal arrives later.
    if (dialled.result === 'refused') loop.after(dialled.afterMs, () => this.dialTroubles.push(loop.now));
    if (dialled.afterMs > 100) this.dialTroubles.push(loop.now, loop.now + dialled.afterMs);
    const chance = new Chance(plan.seed, 3, number);
    return { party, network: plan.network, chance, ...dialled };
  }

  /** True if a connection could not be opened soon since `from` or, except for a call on a new one, died. */
  hasTrouble(from: number, isOnNew = false): boolean {
    const troubles = isOnNew ? this.dialTroubles : [...this.dialTroubles, ...this.deaths];
    return troubles.some((at) => at >= from - this.#world.plan.network.latencyMs - 2);
  }
}

export class BackendConnection extends Party {
  readonly number: number;
  readonly dialledAt = loop.now;
  readonly #world: World;
  readonly #backend: Backend;
  #bytes: Buffer = Buffer.alloc(0);
  #sent = 0;
  #exchanges = 0;
  #hasStrays = false;
  #expected: RequestBytes | undefined;
  #asked: Asked | undefined;
  attempt: Attempt | undefined;
  #isAnswered = true;
  /** When the gateway wrote the head of the latest call. */
  #writtenAt = 0;

  constructor(world: World, backend: Backend, number: number) {
    super();
    this.#world = world;
    this.#backend = backend;
    this.number = number;
  }

  override onWrite = (bytes: string | Uint8Array): void => {
    if (/^[A-Z]+ \//.test(Buffer.from(bytes.slice(0, 9) as string).toString())) this.#writtenAt = loop.now;
  };

  onBytes(bytes: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? bytes : Buffer.concat([this.#bytes, bytes]);
    if (this.#expected === undefined) this.#readHead();
    if (this.#expected !== undefined) this.#readBody(this.#expected);
  }

  #readHead(): void {
    const world = this.#world;
    const end = this.#bytes.indexOf('\r\n\r\n');
    if (end === -1) return;
    const head = this.#bytes.subarray(0, end + 4);
    this.#bytes = this.#bytes.subarray(end + 4);
    const id = Number(/\r\nx-request-id: simulated\.(\d+)\r\n/.exec(head.toString('latin1'))?.[1]);
    const asked = world.asked.get(id);
    const where = `backend connection ${this.number}`;
    if (asked === undefined)
      return world.fail('the backend gets only calls of requests', `${where}: ${head.toString('latin1')}`);
    this.#expected = backendCall(asked.plan);
    this.#asked = asked;
    if (!head.equals(this.#expected.head))
      world.fail("the backend gets the call's own bytes", `${where}: ${head.toString('latin1')}`);
    const { attempt } = this;
    const isWhole =
      this.#isAnswered && (attempt === undefined || (attempt.answer.persists && attempt.got >= attempt.answer.end));
    // Stray bytes within an answer may have completed it.
    if (!isWhole && attempt?.isMixed !== true) {
      world.fail('a connection is used again only after a whole answer', `${where}, request ${id}`);
    }
    this.#start(asked);
  }

  #start(asked: Asked): void {
    const world = this.#world;
    const { handle } = this.connection;
    const number = asked.attempts.length + 1;
    const isReused = this.#exchanges > 0 || handle.wasIdle;
    world.report(
      `backend connection ${this.number} gets request ${asked.plan.id}, attempt ${number}${isReused ? ', reused' : ''}`,
    );
    world.checkCall(asked, this.dialledAt, !isReused, this.#writtenAt);
    const [first] = asked.attempts;
    if (first !== undefined) {
      const mayResend =
        isRead(asked.plan) &&
        number === 2 &&
        first.isReused &&
        first.endedAt !== undefined &&
        first.connection.connection.toGateway.delivered === first.deliveredBefore &&
        !isReused;
      if (!mayResend) world.fail('a write is sent once, a read again only as D20 says', `request ${asked.plan.id}`);
    }
    const plan = world.isHealthy ? goodAnswer : (asked.plan.answers[number - 1] ?? goodAnswer);
    const answer = answerBytes(asked.plan, number, plan);
    const isAfterMixed = this.attempt?.isMixed === true;
    const common = { got: 0, headAt: undefined, wholeAt: undefined, endedAt: undefined };
    const attempt: Attempt = {
      connection: this,
      plan,
      answer,
      startedAt: loop.now,
      sentBefore: this.#sent,
      deliveredBefore: this.connection.toGateway.delivered,
      isReused,
      isSpoilt: this.#hasStrays && !isAfterMixed,
      isMixed: isAfterMixed,
      ...common,
    };
    this.attempt = attempt;
    asked.attempts.push(attempt);
    this.#exchanges += 1;
    this.#isAnswered = false;
    // D19: past the deadline the connection is closed, whether or not the reply was decided before.
    loop.after(timeouts.backend + timeouts.slack + world.pausedMs, () =>
      loop.after(world.pausedMs + 2, () => {
        if (attempt.wholeAt === undefined && attempt.endedAt === undefined && !this.connection.isGatewayClosed) {
          world.fail('a call ends by its deadline', `request ${asked.plan.id}, backend connection ${this.number}`);
        }
      }),
    );
    if (plan.when === 'early') this.#answerSoon(attempt);
  }

  #readBody({ body }: RequestBytes): void {
    const bytes = this.#bytes;
    const { attempt } = this;
    if (bytes.length > body.length || !body.subarray(0, bytes.length).equals(bytes)) {
      this.#world.fail("the backend gets the call's own bytes", `request ${this.#asked?.plan.id ?? 0}: another body`);
    }
    if (bytes.length === body.length) {
      this.#bytes = Buffer.alloc(0);
      this.#expected = undefined;
      if (attempt?.plan.when === 'whole') this.#answerSoon(attempt);
    }
  }

  #answerSoon(attempt: Attempt): void {
    loop.after(attempt.plan.delayMs, () => {
      const { plan, answer } = attempt;
      const { bytes } = answer;
      const isCut = plan.cutAt < 1 && !(plan.cut === 'short' && plan.framing === 'length');
      const first = isCut ? bytes.subarray(0, Math.floor(plan.cutAt * bytes.length)) : bytes;
      this.#sendBytes(first);
      if (!isCut) {
        this.#finish(plan, answer);
      } else if (plan.cut === 'reset') {
        loop.after(1, () => this.#die('reset'));
      } else if (plan.cut === 'pause') {
        loop.after(30 + plan.thenMs, () => {
          this.#sendBytes(bytes.subarray(first.length));
          this.#finish(plan, answer);
        });
      } else if (plan.cut !== 'never') {
        this.#die('close');
      }
    });
  }

  #finish({ then, thenMs, cutAt }: AnswerPlan, { persists }: AnswerBytes): void {
    this.#isAnswered = true;
    if (cutAt < 1 || (!persists && then !== 'announce')) {
      this.#die('close');
    } else if (then !== 'keep') {
      loop.after(thenMs, () => {
        if (then === 'stray') {
          this.#hasStrays = true;
          const { attempt } = this;
          const isBefore = this.#sent === attempt?.sentBefore;
          if (attempt !== undefined && !this.#isAnswered) attempt[isBefore ? 'isSpoilt' : 'isMixed'] = true;
          this.#backend.deaths.push(loop.now, loop.now + this.#world.plan.network.latencyMs * 2);
          this.#sendBytes(Buffer.from('STRAY\r\n\r\n'));
        } else {
          this.#die(then === 'reset' ? 'reset' : 'close');
        }
      });
    }
  }

  #sendBytes(bytes: Buffer): void {
    if (this.isGone) return;
    this.#sent += bytes.length;
    this.send(bytes);
  }

  #die(how: 'close' | 'reset'): void {
    if (this.isGone) return;
    this.#world.report(`backend connection ${this.number}: ${how}`);
    this.#backend.deaths.push(loop.now, loop.now + this.#world.plan.network.latencyMs * 4);
    this[how]();
  }

  /** Keeps what the gateway has got. */
  onDelivered(hasEnded: boolean): void {
    const { attempt } = this;
    if (attempt === undefined) return;
    attempt.got = this.connection.toGateway.delivered - attempt.sentBefore;
    if (attempt.got >= attempt.answer.headEnd) attempt.headAt ??= loop.now;
    if (hasEnded) attempt.endedAt ??= loop.now;
    const { end, bytes } = attempt.answer;
    const isWhole =
      attempt.got >= end || (end === Infinity && hasEnded && attempt.got >= bytes.length && !this.connection.isBroken);
    if (isWhole) attempt.wholeAt ??= loop.now;
  }

  onEnd(): void {
    this.isGone = true;
    if (this.attempt !== undefined && this.#asked !== undefined) this.#world.checkEnd(this.#asked, this.attempt);
  }

  onReset(): void {
    this.onEnd();
  }
}
