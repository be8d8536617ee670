// Makes the plan of a world from its seed. A plan is plain data: a shorter plan can be made by leaving out parts of it.

import { Chance } from './event-loop.ts';

const operationKinds = ['list', 'create', 'read', 'read', 'update', 'delete', 'head'] as const;
const fixedKinds = ['bad-id', 'no-path', 'bad-method', 'options'] as const;
const badBodyKinds = ['bad-json', 'too-large', 'bad-json', 'too-large'] as const;
const malformedKinds = ['no-version', 'two-hosts', 'two-lengths', 'garbage', 'bad-name', 'bad-chunk', 'long-head', 'unfinished'] as const; // prettier-ignore
export type RequestKind = (
  typeof operationKinds | typeof fixedKinds | typeof badBodyKinds | typeof malformedKinds
)[number];

export interface AnswerPlan {
  readonly status: number;
  readonly bytes: number;
  readonly framing: 'length' | 'chunked' | 'until-close';
  readonly body: 'json' | 'not-json' | 'number';
  readonly head: 'good' | 'bad' | 'two-lengths' | '1xx' | 'switching';
  /** `early`: with the request's head. `never`: nothing comes after the cut. */
  readonly when: 'whole' | 'early';
  readonly delayMs: number;
  /** The answer stops after this part of its length; 1: it does not stop. */
  readonly cutAt: number;
  readonly cut: 'end' | 'reset' | 'never' | 'pause' | 'short';
  /** The end of the connection afterwards. */
  readonly then: 'keep' | 'announce' | 'end' | 'reset' | 'stray';
  readonly thenMs: number;
}

export type Plan = ReturnType<typeof createPlan>;
export type ClientPlan = Plan['clients'][number];
export type RequestPlan = ClientPlan['requests'][number];
export type Event = Plan['events'][number];

export const goodAnswer: AnswerPlan = {
  status: 200, bytes: 64, framing: 'length', body: 'json', head: 'good', when: 'whole', delayMs: 0, cutAt: 1, cut: 'end', then: 'keep', thenMs: 0,
}; // prettier-ignore
const sizes = [64, 64, 64, 300, 5_000, 9_000, 20_000, 40_000, 66_000, 140_000];

export function createPlan(seed: number) {
  const chance = new Chance(seed, 7);
  // Swarm: a seed switches whole groups of faults on or off.
  const on = (probability = 0.4): boolean => chance.is(probability);
  const groups = {
    statuses: on(), bodies: on(), heads: on(), cuts: on(), delays: on(), idle: on(), dials: on(0.25), sizes: on(),
    ahead: on(0.5), slow: on(0.3), stops: on(0.25), leaves: on(), malformed: on(0.3), fixed: on(0.5), badBodies: on(0.3),
    pieces: on(0.1), pauses: on(0.15), reload: on(0.25), drain: on(0.2), cut: on(0.1), guard: on(0.3), limits: on(0.15), flood: on(0.1),
  }; // prettier-ignore
  // Tiny pieces of large bodies would take all the time.
  if (groups.pieces) groups.sizes = groups.badBodies = false;
  const host = chance.of([...Array.from({ length: 6 }, () => 'own' as const), 'node', 'fetch']);
  let id = 0;
  const answer = (): AnswerPlan => {
    const part = {
      ...goodAnswer,
      status: chance.of([200, 200, 201, 206]),
      framing: chance.of(['length', 'length', 'chunked', 'until-close']),
    };
    if (groups.sizes) part.bytes = chance.of(sizes);
    if (!chance.is(0.35)) return part;
    const may = (group: boolean): boolean => group && chance.is(0.5);
    return {
      ...part,
      ...(may(groups.statuses) && { status: chance.of([204, 301, 400, 404, 404, 412, 500, 503]) }),
      ...(may(groups.bodies) && { body: chance.of(['not-json', 'number', 'json']), ...(!groups.pieces && chance.is(0.2) && { bytes: 250_000 }) }),
      ...(may(groups.heads) && { head: chance.of(['bad', 'two-lengths', '1xx', '1xx', 'switching']) }),
      ...(may(groups.cuts) && { cutAt: chance.of([0, 0, 0.999, chance.next()]), cut: chance.of(['end', 'reset', 'never', 'pause', 'short']) }),
      ...(may(groups.delays) && { delayMs: chance.of([5, 50, 400, 700, 5_000]), when: chance.of(['whole', 'early']) }),
      ...(may(groups.idle) && { then: chance.of(['announce', 'end', 'reset', 'stray']), thenMs: chance.int(0, 50, 3) }),
    }; // prettier-ignore
  };
  // Without a length, a cut can take digits of a number unseen.
  const answerOf = (): AnswerPlan => {
    const part = answer();
    const needsLength = part.body === 'number' || part.then === 'announce';
    return needsLength && part.framing === 'until-close' ? { ...part, framing: 'length' } : part;
  };
  const request = (isOdd: boolean, isFlood: boolean) => {
    const kinds: RequestKind[] = [...operationKinds, ...(groups.fixed ? fixedKinds : [])];
    if (groups.badBodies && chance.is(0.3)) kinds.push(...badBodyKinds);
    let kind = isFlood ? 'no-path' : chance.of(kinds);
    if (isOdd && host === 'own') kind = chance.of(malformedKinds);
    const isSlow = groups.slow && chance.is(0.2);
    return {
      // Every byte of a reply derives from it.
      id: (id += 1),
      kind,
      bytes: groups.sizes ? chance.of([...sizes, 64, 64]) : 64,
      isChunked: chance.is(0.2),
      expects: host === 'own' && chance.is(0.1),
      conditions: chance.is(0.2),
      gapMs: chance.is(0.1) ? chance.of([20, 800, 1_500]) : chance.int(0, 5),
      // Sent at once, or in pieces with pauses.
      pieces: isSlow ? chance.int(2, 6) : 1,
      pieceMs: isSlow ? chance.of([1, 20, 300, 2_500]) : 0,
      answers: [answerOf(), answerOf()],
    };
  };
  const leaving = () => ({
    after: chance.int(1, 3_000, 2),
    of: chance.of(['sent', 'got']),
    how: chance.of(['end', 'close', 'reset']),
  });
  const client = () => {
    const isFlood = groups.flood && chance.is(0.5);
    const length = isFlood ? 50 : chance.int(1, 50, 5);
    const hasOdd = groups.malformed && chance.is(0.3);
    return {
      startMs: chance.int(0, 30),
      ahead: isFlood ? 50 : groups.ahead && host !== 'fetch' && chance.is(0.5) ? chance.int(2, 20) : 1,
      // Stops reading after this many bytes, for a time.
      stopsAfter: groups.stops && chance.is(0.5) ? chance.int(0, 40_000, 2) : undefined,
      stopsForMs: chance.of([50, 1_000, 10_000]),
      // Leaves after it has sent, or has got, this many bytes.
      leaves: groups.leaves && chance.is(0.4) ? leaving() : undefined,
      requests: Array.from({ length }, (_, index) => request(hasOdd && index === length - 1, isFlood)),
    };
  };
  const event = (what: 'pause' | 'reload' | 'drain' | 'cut', ms = 0) => ({
    what,
    ms,
    atMs: chance.int(0, 400, 2),
    denies: what === 'reload' ? chance.of(['nothing', 'hosts', ...(groups.guard ? ['counter', 'counter'] : [])]) : 'nothing',
  }); // prettier-ignore
  const dial = () =>
    chance.is(0.3)
      ? { result: chance.of(['refused', 'never', 'open']), afterMs: chance.of([1, 200, 450]) }
      : { result: 'open' as const, afterMs: chance.next() };
  const isOwn = host === 'own';
  return {
    seed,
    host,
    clients: Array.from({ length: chance.int(1, 8, 2.5) }, client),
    events: [
      ...(groups.pauses ? [event('pause', chance.int(600, 1_500))] : []),
      ...(isOwn && groups.reload ? [event('reload')] : []),
      ...(isOwn && groups.drain ? [event('drain')] : []),
      ...(isOwn && groups.cut ? [event('cut')] : []),
    ],
    dials: groups.dials ? Array.from({ length: 12 }, dial) : [],
    network: {
      latencyMs: chance.of([0.1, 1, 5]),
      pieceBytes: groups.pieces ? chance.of([1, 7, 100]) : chance.of([65_536, 65_536, 9_000]),
      readsPerTurn: groups.pieces ? 200 : 1,
      bufferBytes: groups.stops || chance.is(0.3) ? chance.of([9_000, 30_000]) : 400_000,
    },
    // The delays of a guard's decisions; undefined without the guard.
    guardMs: isOwn && groups.guard ? Array.from({ length: 8 }, () => chance.of([0, 1, 20, 300, ...(chance.is(0.1) ? [Infinity] : [])])) : undefined,
    limits: groups.limits
      ? { inFlight: chance.of([1, 2, 1_000]), connections: chance.of([2, 1_000]), bytes: chance.of([150_000, 100_000_000]) }
      : { inFlight: 1_000, connections: 1_000, bytes: 100_000_000 },
    ageMs: chance.of([0, 300, 2_000]),
  }; // prettier-ignore
}
