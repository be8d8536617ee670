// From calls a second to what serves them. Pure arithmetic over the measured figures; docs/capacity.md says how it counts.

import { limits } from '../gateway/limits.ts';
import { neededDescriptors } from '../process/descriptors.ts';
import { neededMemory } from '../process/memory.ts';
import { assumptions, figures, questionsOfProcess } from './figures.ts';

/** What is to be served. */
export interface Demand {
  /** Calls a second, at the busiest time. */
  readonly rate: number;
  /** The body of each call, of its request or of its answer. */
  readonly bodyBytes: number;
  /** Of the calls, how many are creates and updates. */
  readonly writeShare: number;
  /** How long the backend takes for a call. */
  readonly backendMs: number;
  /** Client connections open at once; undefined for twice the calls in flight. */
  readonly connections: number | undefined;
  /** Of a machine, where it is machines that serve. */
  readonly coresOfMachine: number;
  readonly tls: boolean;
  readonly tokens: boolean;
  readonly rateLimit: boolean;
  /** Redis counts for the rate limit. */
  readonly redis: boolean;
  readonly requestLog: boolean;
}

/** Something that more processes do not help: it ends at so many calls a second. */
export interface Ceiling {
  readonly name: string;
  readonly rate: number;
  readonly why: string;
  readonly remedy: string;
}

/** Limits, by their variables: what each gateway is given, where one of them may be missing. */
export interface LimitSettings {
  readonly IN_FLIGHT_MAX: number;
  readonly CONNECTIONS_MAX: number;
  readonly BUFFERED_BYTES_MAX: number;
  /** Where writes are larger than its default. */
  readonly REQUEST_BYTES_MAX?: number;
}

export interface Plan {
  /** Processor time of a call: flat out, and as planned. */
  readonly flatOutUs: number;
  readonly callUs: number;
  /** Calls a second that one process serves as planned, and at most. */
  readonly processRate: number;
  readonly processRateMax: number;
  /** Processes that it takes; one more is planned, which may fail. */
  readonly processes: number;
  /** Processor time of all of them, in cores, while all are there. */
  readonly coresBusy: number;
  readonly pods: {
    readonly count: number;
    readonly countMax: number;
    readonly cpuRequestMillis: number;
    readonly memoryRequestMib: number;
    readonly memoryLimitMib: number;
    readonly descriptors: number;
    readonly settings: LimitSettings;
  };
  readonly machines: {
    readonly count: number;
    readonly workers: number;
    readonly memoryMib: number;
    /** Of each worker. */
    readonly descriptors: number;
    readonly settings: LimitSettings;
  };
  readonly connections: number;
  /** Each way, on one side of the gateway, for all. */
  readonly bitsPerSecond: number;
  readonly backend: {
    /** Calls in flight, each with a connection. */
    readonly connections: number;
    /** Where it takes so long for a call, calls are turned away. */
    readonly msMax: number;
  };
  readonly redis:
    { readonly questionsPerSecond: number; readonly cores: number; readonly clientBytes: number } | undefined;
  /** The lowest first. */
  readonly ceilings: readonly Ceiling[];
}

const mib = 1_048_576;
// docs/operating.md, Sizing: under a load of small bodies.
const loadedBytes = 150_000_000;
// With no other call beside it a call wakes the process from its sleep, twice. How often is in proportion to how idle it is.
const wakeUs =
  (figures.steadyUs - figures.steadyFlatOutUs) / (1 - (figures.steadyRate * figures.steadyUs) / 1_000_000);

/** Microseconds that the bytes of a body take, beyond those of a small one. */
function costOfBytes(bytes: number): number {
  const { smallBytes, readUs, listBytes, listUs, longListBytes, longListUs } = figures;
  const toList = Math.min(Math.max(bytes - smallBytes, 0), listBytes - smallBytes);
  const beyond = Math.max(bytes - listBytes, 0);
  return (
    (toList * (listUs - readUs)) / (listBytes - smallBytes) +
    (beyond * (longListUs - listUs)) / (longListBytes - listBytes)
  );
}

/** Microseconds of a call while the process has no moment of rest: the least that it can take. */
export function flatOutCost(demand: Demand): number {
  const { readUs, updateUs, createUs, tokenUs, rateLimitUs, redisUs, tlsFactor, logLineShare } = figures;
  const { writeShare, bodyBytes } = demand;
  const small = readUs * (1 - writeShare) + ((updateUs + createUs) / 2) * writeShare;
  return (
    (small + costOfBytes(bodyBytes)) * (demand.tls ? tlsFactor : 1) +
    (demand.tokens ? tokenUs : 0) +
    (demand.redis ? redisUs : demand.rateLimit ? rateLimitUs : 0) +
    (demand.requestLog ? readUs * logLineShare : 0)
  );
}

/** How busy a process is with `rate` calls a second, of which each takes `cost` flat out. */
export function busyAt(rate: number, cost: number): number {
  const perUs = rate / 1_000_000;
  return (perUs * (cost + wakeUs)) / (1 + perUs * wakeUs);
}

/** Calls a second that make a process as busy as `busy` says. */
export function rateAt(busy: number, cost: number): number {
  return (busy * 1_000_000) / (cost + wakeUs * (1 - busy));
}

/** What `rate` calls a second ask of Redis, by `processes`: it has one thread. */
function askOfRedis(rate: number, processes: number): { questionsPerSecond: number; cores: number } {
  const { questionOfOneUs, questionOfHundredUs } = figures;
  const clientUs = (questionOfHundredUs - questionOfOneUs) / 99;
  const questionsPerSecond = Math.min(rate, processes * questionsOfProcess);
  const us = questionsPerSecond * (questionOfOneUs - clientUs) + rate * clientUs;
  return { questionsPerSecond, cores: us / 1_000_000 };
}

/** The highest rate at which `isWell`, which holds below some rate and not above. */
function findHighest(isWell: (rate: number) => boolean): number {
  let low = 0;
  let high = 1;
  while (isWell(high)) high *= 2;
  for (let step = 0; step < 50; step += 1) {
    const middle = (low + high) / 2;
    if (isWell(middle)) low = middle;
    else high = middle;
  }
  return low;
}

function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}

/** The next power of two. */
function roundUpTwice(value: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(value, 1)));
}

/** What each of `sharers` gateways needs, with so many workers. */
function sizeGateway(
  demand: Demand,
  inFlight: number,
  connections: number,
  sharers: number,
  workers: number,
) {
  const { bodyBytes, writeShare } = demand;
  const share = Math.max(1, inFlight / sharers);
  const inFlightMax = Math.min(
    limits.inFlightMax.max,
    Math.max(limits.inFlightMax.standard, roundUpTwice(share * assumptions.slowerBackend)),
  );
  const connectionsMax = Math.min(
    limits.connectionsMax.max,
    Math.max(limits.connectionsMax.standard, roundUpTwice((connections / sharers) * 2)),
  );
  const heldBytes = share * bodyBytes;
  const bufferedBytesMax = Math.min(
    limits.bufferedBytesMax.max,
    Math.max(assumptions.bufferedBytesMin, roundUp(heldBytes * assumptions.slowerBackend, mib)),
  );
  const memoryBytes =
    neededMemory({ bufferedBytesMax, workers }) + (connections / sharers) * figures.connectionBytes;
  return {
    heldBytes,
    inFlightMax,
    memoryMib: roundUp(memoryBytes / mib, 128),
    descriptors: neededDescriptors({ connectionsMax, inFlightMax, workers }),
    settings: {
      IN_FLIGHT_MAX: inFlightMax,
      CONNECTIONS_MAX: connectionsMax,
      BUFFERED_BYTES_MAX: bufferedBytesMax,
      ...(writeShare > 0 && bodyBytes > limits.requestBytesMax.standard
        ? { REQUEST_BYTES_MAX: bodyBytes }
        : {}),
    },
  };
}

/** The plan for `demand`. */
export function planCapacity(demand: Demand): Plan {
  const { rate, bodyBytes, backendMs } = demand;
  const { busyShare, twoWorkersFactor, redisClientBytes } = figures;
  const cost = flatOutCost(demand);
  const processRate = rateAt(busyShare, cost);
  const processesFor = (calls: number): number => Math.max(1, Math.ceil(calls / processRate));
  const inFlight = Math.max(1, (rate * backendMs) / 1_000);
  const connections = demand.connections ?? Math.ceil(2 * inFlight);
  const processesForConnections = Math.ceil(connections / assumptions.connectionsOfProcess);
  const processes = Math.max(processesFor(rate), processesForConnections);
  const count = processes + 1;
  const pod = sizeGateway(demand, inFlight, connections, processes, 1);

  // Workers of one machine get in each other's way, a little.
  const workers = Math.min(demand.coresOfMachine, processes);
  const workerRate = workers === 1 ? processRate : (processRate * twoWorkersFactor) / 2;
  const bytesPerCall = bodyBytes + 2 * assumptions.headBytes;
  const linkRate = (busyShare * assumptions.linkBits) / 8 / bytesPerCall;
  const machinesNeeded = Math.max(
    1,
    Math.ceil(rate / (workerRate * workers)),
    Math.ceil(rate / linkRate),
    Math.ceil(processesForConnections / workers),
  );
  const machine = sizeGateway(demand, inFlight, connections, machinesNeeded, workers);

  const ceilings: Ceiling[] = [
    {
      name: 'the balancer',
      rate: linkRate,
      why: `its link of ${assumptions.linkBits / 1e9} Gbit/s is ${Math.round(busyShare * 100)} % full`,
      remedy: 'several balancers by DNS or anycast, or faster links',
    },
  ];
  if (demand.redis) {
    ceilings.push({
      name: 'Redis',
      rate: findHighest((calls) => askOfRedis(calls, processesFor(calls)).cores < busyShare),
      why: `it counts on one thread, which is ${Math.round(busyShare * 100)} % busy then`,
      remedy:
        'groups of gateways with a Redis and a part of the limit each, clients kept to their group by the balancer; or a limit by gateway, without Redis',
    });
  }
  ceilings.sort((before, after) => before.rate - after.rate);

  return {
    flatOutUs: cost,
    callUs: (busyShare * 1_000_000) / processRate,
    processRate,
    processRateMax: 1_000_000 / cost,
    processes,
    coresBusy: count * busyAt(rate / count, cost),
    pods: {
      count,
      countMax: 2 * count,
      cpuRequestMillis: Math.min(
        1_000,
        Math.max(100, roundUp((busyAt(rate / processes, cost) / busyShare) * 1_000, 50)),
      ),
      memoryRequestMib: Math.max(
        256,
        roundUp(
          (loadedBytes + (pod.heldBytes * 4) / 3 + (connections / processes) * figures.connectionBytes) / mib,
          64,
        ),
      ),
      memoryLimitMib: pod.memoryMib,
      descriptors: pod.descriptors,
      settings: pod.settings,
    },
    machines: {
      count: machinesNeeded + 1,
      workers,
      memoryMib: machine.memoryMib,
      descriptors: machine.descriptors,
      settings: machine.settings,
    },
    connections,
    bitsPerSecond: rate * bytesPerCall * 8,
    backend: {
      connections: Math.ceil(inFlight),
      msMax: Math.floor(
        (Math.min(pod.inFlightMax, pod.settings.BUFFERED_BYTES_MAX / Math.max(bodyBytes, 1)) *
          processes *
          1_000) /
          rate,
      ),
    },
    redis: demand.redis ? { ...askOfRedis(rate, count), clientBytes: redisClientBytes } : undefined,
    ceilings,
  };
}
