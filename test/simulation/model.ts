// The model: what a request may get, by the specification (sections 4 and 7) and what the world has done to it.

import type { BackendConnection } from './backend.ts';
import type { ClientConnection } from './clients.ts';
import { loop } from './event-loop.ts';
import * as messages from './messages.ts';
import type { AnswerPlan, RequestPlan } from './plan.ts';
import { timeouts, type World } from './world.ts';

/** A request, and what has become of it. The gateway is meant where no other party is named. */
export class Asked {
  readonly plan: RequestPlan;
  readonly attempts: Attempt[] = [];
  connection: ClientConnection | undefined;
  /** Positions in the bytes of its connection. */
  start = 0;
  headEnd = 0;
  end = 0;
  continues = 0;
  /** When the client sent it. */
  sentAt = 0;
  /** When its first byte, its head and all of it arrived. */
  headAt: number | undefined;
  headEndAt: number | undefined;
  wholeAt: number | undefined;
  wholeTurn: number | undefined;
  /** The settings in force when its first byte arrived. */
  generation = 0;
  /** When the write of its reply began. */
  repliedAt: number | undefined;
  /** When it was seen that the client has left. */
  leftAt: number | undefined;
  /** The gateway must not write its call later. */
  lastStartAt = Infinity;

  constructor(plan: RequestPlan) {
    this.plan = plan;
  }
}

/** One request that the backend has got. */
export interface Attempt {
  readonly connection: BackendConnection;
  readonly plan: AnswerPlan;
  readonly answer: messages.AnswerBytes;
  readonly startedAt: number;
  /** Bytes that the backend had sent on the connection before, and that the gateway had of them. */
  readonly sentBefore: number;
  readonly deliveredBefore: number;
  /** The connection had carried a call, or had been idle. */
  readonly isReused: boolean;
  /** Stray bytes were sent before the answer. */
  isSpoilt: boolean;
  /** Stray bytes were sent within the answer, or within an earlier one and are perhaps read with it. */
  isMixed: boolean;
  /** Bytes of the answer that the gateway has. */
  got: number;
  /** When the gateway had the answer's head, all of it, and the end of the connection. */
  headAt: number | undefined;
  wholeAt: number | undefined;
  endedAt: number | undefined;
}

/** True if the gateway expects nothing more of it. */
export const isOver = ({ wholeAt, endedAt, connection }: Attempt): boolean =>
  wholeAt !== undefined || endedAt !== undefined || connection.handle.hasClosed;

/** The replies that refuse the request under the settings of one generation; `undefined` among them: it may be admitted. */
export function verdicts(world: World, asked: Asked, generation: number): (messages.Allowed | undefined)[] {
  const { plan } = asked;
  const denies = world.denies.slice(0, generation + 1).find((each) => each !== 'nothing');
  if (messages.isMalformed(plan) && plan.kind !== 'bad-chunk' && plan.kind !== 'unfinished') return [undefined];
  if (denies === 'hosts') return [messages.forbidden];
  if (messages.operationOf(plan) === undefined && plan.kind !== 'bad-id') return [undefined];
  const admitted = denies === 'counter' ? messages.rateLimited : undefined;
  if (world.plan.fetches === undefined) return [admitted];
  if (plan.token === 'none') return [messages.unauthorized];
  return world.keysSince(asked.headAt ?? asked.sentAt).flatMap((keys) => {
    // A call waits for the first keys of its settings.
    const first = world.plan.fetches?.slice(0, world.hasReload ? Infinity : 1) ?? [];
    if (keys === 'none') return first.every(({ result }) => result === 'keys') ? [] : [messages.unavailable];
    return [plan.token === 'first' || (plan.token === 'second' && keys === 'both') ? admitted : messages.unauthorized];
  });
}

/** The replies that the request may have now. */
export function allowedReplies(world: World, asked: Asked): readonly messages.Allowed[] {
  const { plan } = asked;
  const { limits } = world.plan;
  const fixed = messages.fixedReply(plan);
  const allowed = world.denies
    .flatMap((_, generation) => (generation < asked.generation ? [] : verdicts(world, asked, generation)))
    .flatMap((denial) => denial ?? fixed ?? answersFor(world, asked));
  if (limits.inFlight < 1_000 || limits.bytes < 1e6) allowed.push(messages.unavailable);
  if (asked.leftAt !== undefined && asked.wholeAt === undefined) allowed.push(messages.incomplete);
  const beganAt = asked.start === 0 ? (asked.connection?.openedAt ?? 0) : (asked.headAt ?? loop.now);
  const nearlyMs = world.pausedMs > 0 ? 500 : 2;
  const isLate =
    (asked.headEndAt ?? loop.now) - beganAt >= timeouts.headers - nearlyMs ||
    (asked.wholeAt ?? loop.now) - beganAt >= timeouts.request - nearlyMs;
  if (isLate) allowed.push(messages.timedOut);
  return allowed;
}

function answersFor(world: World, asked: Asked): messages.Allowed[] {
  const { plan, attempts } = asked;
  const { backend, pausedMs } = world;
  const failure = messages.allow(500, messages.operationOf(plan)?.failure ?? '');
  const last = attempts.at(-1);
  const since = asked.headAt ?? asked.sentAt;
  const mayFail = world.isStopped || world.plan.limits.bytes < 1e6;
  if (last === undefined) {
    // During a pause, the backend does not get on either.
    const isPaused = pausedMs > 0 && loop.now - since >= timeouts.connect;
    return mayFail || backend.hasTrouble(since) || isPaused ? [failure] : [];
  }
  const { answer, headAt, wholeAt, endedAt, got } = last;
  const byHead = messages.replyToAnswer(plan, last.plan, answer.body, false);
  const byAll = messages.replyToAnswer(plan, last.plan, answer.body, true);
  const decided = wholeAt !== undefined ? byAll : headAt !== undefined ? byHead : undefined;
  const decidedAt = (byHead === undefined ? wholeAt : headAt) ?? Infinity;
  const isLate =
    loop.now >= since + timeouts.backend &&
    decidedAt > (pausedMs > 0 ? since : (attempts[0]?.startedAt ?? since)) + timeouts.backend * 0.85;
  const isUnusable =
    got > 0 &&
    (last.plan.head !== 'good' ||
      last.plan.body === 'not-json' ||
      answer.body.length > messages.bodyLimits.responseBytesMax);
  const isResent = messages.isRead(plan) && attempts.length === 1 && last.isReused && got === 0;
  const isBroken = endedAt !== undefined && decided === undefined && (!isResent || backend.hasTrouble(endedAt, true));
  return [
    ...(mayFail || isLate || isUnusable || isBroken || last.isSpoilt || last.isMixed ? [failure] : []),
    ...(decided !== undefined && !last.isSpoilt ? [decided] : []),
    // The stray bytes may have completed a head that was cut.
    ...(last.isMixed && byHead !== undefined ? [byHead] : []),
  ];
}
