// Makes the plan of a world from its seed. A plan is plain data: a shorter plan can be made by leaving out parts of it.

import { Chance } from './event-loop.ts';

const operationKinds = ['list', 'create', 'read', 'read', 'update', 'delete', 'head'] as const;
const fixedKinds = ['bad-id', 'no-path', 'bad-method', 'options'] as const;
const badBodyKinds = ['bad-json', 'too-large'] as const;
/** Nothing after these requests is served, because the next request's start is unknown. */
export const malformedKinds = ['no-version', 'two-hosts', 'two-lengths', 'garbage', 'bad-name', 'bad-chunk', 'long-head', 'unfinished'] as const; // prettier-ignore
export type RequestKind = (
  typeof operationKinds | typeof fixedKinds | typeof badBodyKinds | typeof malformedKinds
)[number];

export interface AnswerPlan {
  readonly status: number;
  readonly bytes: number;
  readonly framing: 'length' | 'chunked' | 'until-close';
  readonly body: 'json' | 'not-json' | 'number';
  readonly head: 'good' | 'bad' | 'two-lengths' | '1xx' | 'switching';
  /** `early`: with the request's head. */
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
    pieces: on(0.1), pauses: on(0.15), reload: on(0.25), drain: on(0.2), cut: on(0.1), guard: on(0.3), keys: on(0.2), limits: on(0.15), flood: on(0.1),
  }; // prettier-ignore
  // Tiny pieces of large bodies would take all the time.
  if (groups.pieces) groups.sizes = groups.badBodies = false;
  const host = chance.of([...Array.from({ length: 6 }, () => 'own' as const), 'node', 'fetch']);
  const isOwn = host === 'own';
  const hasKeys = isOwn && groups.keys;
  let id = 0;
  const may = (group: boolean): boolean => group && chance.is(0.5);
  const answer = (): AnswerPlan => {
    const isGood = !chance.is(0.35);
    const part: AnswerPlan = {
      ...goodAnswer,
      status: chance.of([200, 200, 201, 206]),
      framing: chance.of(['length', 'length', 'chunked', 'until-close']),
      ...(groups.sizes && { bytes: chance.of(sizes) }),
      ...(!isGood && may(groups.statuses) && { status: chance.of([204, 301, 400, 404, 404, 412, 500, 503]) }),
      ...(!isGood && may(groups.bodies) && { body: chance.of(['not-json', 'number', 'json']), ...(!groups.pieces && chance.is(0.2) && { bytes: 250_000 }) }),
      ...(!isGood && may(groups.heads) && { head: chance.of(['bad', 'two-lengths', '1xx', '1xx', 'switching']) }),
      ...(!isGood && may(groups.cuts) && { cutAt: chance.of([0, 0, 0.999, chance.next()]), cut: chance.of(['end', 'reset', 'never', 'pause', 'short']) }),
      ...(!isGood && may(groups.delays) && { delayMs: chance.of([5, 50, 400, 700, 5_000]), when: chance.of(['whole', 'early']) }),
      ...(!isGood && may(groups.idle) && { then: chance.of(['announce', 'end', 'reset', 'stray']), thenMs: chance.int(0, 50, 3) }),
    }; // prettier-ignore
    // Without a length, a cut can take digits of a number unseen.
    const needsLength = part.body === 'number' || part.then === 'announce';
    return needsLength && part.framing === 'until-close' ? { ...part, framing: 'length' } : part;
  };
  const request = (isOdd: boolean, isFlood: boolean) => {
    const kinds: RequestKind[] = [...operationKinds, ...(groups.fixed ? fixedKinds : [])];
    if (groups.badBodies && chance.is(0.3)) kinds.push(...badBodyKinds, ...badBodyKinds);
    const isSlow = groups.slow && chance.is(0.2);
    return {
      // Every byte of a reply derives from it.
      id: (id += 1),
      kind: isOdd && isOwn ? chance.of(malformedKinds) : isFlood ? 'no-path' : chance.of(kinds),
      token: !hasKeys ? 'none' : chance.of(['first', 'first', 'first', 'first', 'second', 'forged', 'none']),
      bytes: groups.sizes ? chance.of([...sizes, 64, 64]) : 64,
      isChunked: chance.is(0.2),
      expects: isOwn && chance.is(0.1),
      conditions: chance.is(0.2),
      gapMs: chance.is(0.1) ? chance.of([20, 800, 1_500]) : chance.int(0, 5),
      // Sent at once, or in pieces with pauses.
      pieces: isSlow ? chance.int(2, 6) : 1,
      pieceMs: isSlow ? chance.of([1, 20, 300, 2_500]) : 0,
      answers: [answer(), answer()],
    } as const;
  };
  const client = () => {
    const isFlood = groups.flood && chance.is(0.5);
    const length = isFlood ? 50 : chance.int(1, 50, 5);
    const hasOdd = groups.malformed && chance.is(0.3);
    return {
      startMs: chance.int(0, 30),
      ahead: isFlood ? 50 : groups.ahead && host !== 'fetch' && chance.is(0.5) ? chance.int(2, 20) : 1,
      // Stops reading after this many bytes, for a time.
      stopsAfter: may(groups.stops) ? chance.int(0, 40_000, 2) : undefined,
      stopsForMs: chance.of([50, 1_000, 10_000]),
      // Leaves after it has sent, or has got, this many bytes.
      leaves: groups.leaves && chance.is(0.4)
        ? { after: chance.int(1, 3_000, 2), of: chance.of(['sent', 'got']), how: chance.of(['end', 'close', 'reset']) }
        : undefined,
      requests: Array.from({ length }, (_, index) => request(hasOdd && index === length - 1, isFlood)),
    }; // prettier-ignore
  };
  const events = (isOn: boolean, what: 'pause' | 'reload' | 'drain' | 'cut') =>
    !isOn ? [] : [{
      what,
      atMs: chance.int(0, 400, 2),
      // The length of a pause.
      ms: chance.int(600, 1_500),
      // Denied by the settings of a reload.
      denies: what === 'reload' ? chance.of(['nothing', 'hosts', ...(groups.guard ? ['counter', 'counter'] : [])]) : 'nothing',
    }]; // prettier-ignore
  const dial = () =>
    chance.is(0.3)
      ? { result: chance.of(['refused', 'never', 'open']), afterMs: chance.of([1, 200, 450]) }
      : { result: 'open' as const, afterMs: chance.next() };
  const fetch = () => ({
    result: chance.of(['keys', 'keys', 'keys', 'failed', 'never']),
    afterMs: chance.of([0, 1, 20, 300, 2_500]),
    hasSecond: chance.is(0.5),
  });
  return {
    seed,
    host,
    clients: Array.from({ length: chance.int(1, 8, 2.5) }, client),
    events: [
      ...events(groups.pauses, 'pause'),
      ...events(isOwn && groups.reload, 'reload'),
      ...events(isOwn && groups.drain, 'drain'),
      ...events(isOwn && groups.cut, 'cut'),
    ],
    dials: groups.dials ? Array.from({ length: 12 }, dial) : [],
    network: {
      // Longest time in ms until bytes arrive.
      latencyMs: chance.of([0.1, 1, 5]),
      // Largest read, and most reads that one turn returns. More than one is the way of TLS.
      pieceBytes: groups.pieces ? chance.of([1, 7, 100]) : chance.of([65_536, 65_536, 9_000]),
      readsPerTurn: groups.pieces ? 200 : 1,
      // Bytes that the operating system keeps for a reader.
      bufferBytes: groups.stops || chance.is(0.3) ? chance.of([9_000, 30_000]) : 400_000,
    },
    // The delays of the rate limit's counter, in ms; undefined without a rate limit.
    guardMs: isOwn && groups.guard ? Array.from({ length: 8 }, () => chance.of([0, 1, 20, 300, ...(chance.is(0.1) ? [Infinity] : [])])) : undefined,
    // The results of the fetches of keys; undefined if no token is required.
    fetches: hasKeys ? Array.from({ length: 4 }, fetch) : undefined,
    limits: groups.limits
      ? { inFlight: chance.of([1, 2, 1_000]), connections: chance.of([2, 1_000]), bytes: chance.of([150_000, 100_000_000]) }
      : { inFlight: 1_000, connections: 1_000, bytes: 100_000_000 },
    ageMs: chance.of([0, 300, 2_000]),
  }; // prettier-ignore
}
