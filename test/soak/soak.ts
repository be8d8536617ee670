// Runs the built command against a faulty backend for a given time: `npm run soak -- --minutes 10 [--seed 1] [--clients 32]`. Not
// part of `npm test`. Every reply is compared with the expected reply. The gateway's resources at the end are compared with
// its resources after warming up. The exit code is 1 if anything is wrong. test/README.md lists what is checked.

import { setTimeout as wait } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { expectedReply, bodyOf, promptKinds, slow, stalls, type Fault } from '../faults/faults.ts';
import { assertReply, invalidId, operation, operations, type Operation } from '../helpers/expected.ts';
import { createRandom } from '../json/texts.ts';
import { RawClient, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend, type Exchange } from '../helpers/scripted-backend.ts';
import {
  complaints,
  holdings,
  longestTimedOutMs,
  startGateway,
  waitedForProcessorMs,
  type Holdings,
} from './gateway.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    clients: { type: 'string', default: '32' },
  },
});
const minutes = Number(values.minutes);
const seed = Number(values.seed);
const clientCount = Number(values.clients);
if (!(minutes > 0) || !Number.isInteger(seed) || !(clientCount > 0))
  throw new Error('usage: npm run soak -- --minutes N [--seed N] [--clients N]');

const deadlineMs = 2000;
const lateMs = deadlineMs + Math.max(100, deadlineMs / 10);
/** A call within this time of a disturbance may have lost its connection. */
const disturbanceMs = 1000;
/** A good call may have reached the deadline if the processes waited this long for a processor. */
const busyMs = deadlineMs / 2;
const warmUpMs = Math.min(60_000, (minutes * 60_000) / 4);

/** All faults except those that are `late` or `diesIdle`, because such faults affect other calls, too. */
const faults: readonly Fault[] = [...Object.values(promptKinds).flat(), ...slow, ...stalls].filter(
  ({ diesIdle, late }) => !diesIdle && !late,
);

/** One call, with its expected and actual course. */
interface Run {
  readonly marker: string;
  readonly each: Operation;
  readonly path: string;
  readonly backendTarget: string;
  readonly body: Buffer | undefined;
  readonly fault: Fault | undefined;
  /** True if the backend answers without the fault when the call is sent again. */
  readonly recovers: boolean;
  readonly answerBody: string;
  /** False for an incomplete or invalid request, which must cause no backend call. */
  isCallable: boolean;
  /** The reply of the gateway itself to an invalid request. */
  readonly refusal: readonly [status: number, body: string] | undefined;
  sentAt: number;
  /** The number of times that the call reached the backend. */
  arrivals: number;
  wasReused: boolean;
}

const counts = {
  calls: 0,
  good: 0,
  faulty: 0,
  abandoned: 0,
  refused: 0,
  sentAgain: 0,
  disturbed: 0,
  busy: 0,
  disturbances: 0,
  deadlineReplies: 0,
  late: 0,
  lateByGateway: 0,
  longestMs: 0,
  longestOwnMs: 0,
};
const byFault = new Map<string, number>();
const violations: string[] = [];
let violationCount = 0;
function violation(text: string): void {
  violationCount += 1;
  if (violations.length >= 20) return;
  violations.push(text);
  // Also printed immediately, in case the run is stopped early.
  console.log(`  WRONG after ${(performance.now() / 1000).toFixed()} s: ${text}`);
}

// The delays of this process's timers, which must not be attributed to the gateway.
let ownDelayMs = 0;
const tickMs = 10;
let lastTick = performance.now();
setInterval(() => {
  const now = performance.now();
  ownDelayMs += Math.max(0, now - lastTick - tickMs - 2);
  lastTick = now;
}, tickMs).unref();

const backend = await ScriptedBackend.start();
const gateway = await startGateway({
  BACKEND_URL: backend.url,
  BACKEND_TIMEOUT_MS: String(deadlineMs),
  RESPONSE_BYTES_MAX: '1000000',
});
const runs = new Map<string, Run>();
/** Runs whose client has left; checked long after the deadline. */
const abandoned: Run[] = [];
let disturbedAt = -Infinity;
let markers = 0;

backend.answers((exchange) => {
  const { request } = exchange;
  const run = runs.get(request.header('x-request-id') ?? '');
  if (!run) {
    violation(`a backend call that no client made, or whose reply had been sent:\n${request.head}`);
    return;
  }
  run.arrivals += 1;
  if (run.arrivals === 1) run.wasReused = request.indexOnConnection > 0;
  if (!run.isCallable) violation(`an unexpected backend call: ${run.marker}\n${request.head}`);
  const isSame =
    request.method === run.each.method &&
    request.target === run.backendTarget &&
    request.body.equals(run.body ?? Buffer.alloc(0));
  if (!isSame) violation(`a backend call that differs from its request: ${run.marker}\n${request.head}`);
  return respond(run, exchange);
});

function respond({ fault, recovers, arrivals, marker, answerBody }: Run, exchange: Exchange) {
  if (fault && (arrivals === 1 || !recovers)) return fault.answer(marker)(exchange);
  return answer(answerBody, { headers: [['X-Backend', marker]] })(exchange);
}

/** A client with one keep-alive connection at a time; its choices depend only on the seed. */
class Client {
  readonly #random: () => number;
  #connection: RawClient | undefined;

  constructor(index: number) {
    this.#random = createRandom(seed * 1000 + index + 1);
  }

  async work(until: number): Promise<void> {
    while (performance.now() < until && gateway.isRunning) {
      this.#connection ??= await RawClient.open(gateway.port);
      await this.#callOnce(this.#connection);
      if (this.#chance(0.5)) await wait(this.#below(20));
    }
    this.#connection?.destroy();
    this.#connection = undefined;
  }

  async #callOnce(connection: RawClient): Promise<void> {
    counts.calls += 1;
    const kind = this.#random();
    const run = this.#plan(kind);
    const { marker, each, path, body, refusal } = run;
    const bytes = requestBytes(each.method, path, { headers: [['X-Request-Id', marker]], ...(body && { body }) });
    if (kind > 0.92) return this.#abandon(connection, run, bytes);
    const cut = this.#chance(0.1) ? this.#below(bytes.length) : 0;
    await connection.sendPieces(cut > 0 ? [bytes.subarray(0, cut), bytes.subarray(cut)] : [bytes]);
    const started = performance.now();
    const before = delays();
    run.sentAt = started;
    const reply = await this.#reply(connection, marker);
    runs.delete(marker);
    if (refusal !== undefined) {
      counts.refused += 1;
      const flaw = reply && flawOf(reply, marker, ...refusal);
      if (flaw) violation(`${marker}, refused by the gateway: ${flaw}`);
    } else if (reply) {
      check(run, reply, performance.now() - started, delays() - before);
      if (!connection.isOpen) this.#lose(`the client's connection was closed after ${describe(run)}`);
    }
  }

  /** The gateway itself refuses 6 % of the calls: an invalid id, or a body that is not JSON. 29 % of the calls have a fault. */
  #plan(kind: number): Run {
    const marker = `s${(markers += 1)}x`;
    const refused = kind < 0.03 ? operation(5) : kind < 0.06 ? operation(2) : undefined;
    const each = refused ?? this.#pick(operations);
    const fault = refused === undefined && kind < 0.35 ? this.#pick(faults) : undefined;
    const id = String(this.#below(1e9));
    const isLarge = fault === undefined && this.#chance(0.03);
    const padding = isLarge ? 'y'.repeat(this.#below(300_000)) : '';
    const end = refused === undefined ? '}' : '';
    const run: Run = {
      marker,
      each,
      path: each.path.replace(/5$/, refused === undefined ? id : 'abc'),
      backendTarget: each.backendTarget.replace(/5$/, id),
      body: each.options.body === undefined ? undefined : Buffer.from(`{"sent":"${marker}${padding}"${end}`),
      fault,
      recovers: this.#chance(0.5),
      answerBody: isLarge ? `{"answered":"${marker}${padding}"}` : bodyOf(marker),
      isCallable: refused === undefined,
      refusal: refused && (refused === operation(5) ? [400, invalidId] : [500, refused.failure]),
      sentAt: performance.now(),
      arrivals: 0,
      wasReused: false,
    };
    runs.set(marker, run);
    return run;
  }

  /** Sends a whole request or a part of it, and disconnects immediately or a little later. */
  async #abandon(connection: RawClient, run: Run, bytes: Buffer): Promise<void> {
    counts.abandoned += 1;
    const isWhole = this.#chance(0.7);
    const length = isWhole ? bytes.length : 1 + this.#below(bytes.length - 1);
    run.isCallable = isWhole;
    await connection.sendPieces([bytes.subarray(0, length)]);
    await wait(this.#below(this.#chance(0.1) ? 500 : 10));
    if (this.#chance(0.5)) connection.reset();
    else connection.destroy();
    this.#connection = undefined;
    run.sentAt = performance.now();
    abandoned.push(run);
  }

  async #reply(connection: RawClient, marker: string): Promise<Reply | undefined> {
    try {
      return await connection.reply({ limitMs: 5 * deadlineMs });
    } catch (error) {
      this.#lose(`no reply for ${marker}: ${String(error)}`);
      return undefined;
    }
  }

  #lose(text: string): void {
    violation(text);
    this.#connection?.destroy();
    this.#connection = undefined;
  }

  #chance(probability: number): boolean {
    return this.#random() < probability;
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  #pick<T>(from: readonly T[]): T {
    return from[this.#below(from.length)] as T;
  }
}

/** How long this process and the gateway have waited for a processor so far, in ms. */
function delays(): number {
  return ownDelayMs + waitedForProcessorMs(gateway.process.pid);
}

function describe({ marker, each, fault }: Run): string {
  return `${marker}, operation ${each.name}, ${fault ? `fault "${fault.name}"` : 'no fault'}`;
}

/** The difference to the expected reply, or undefined. */
function flawOf(reply: Reply, marker: string, status: number, body: string): string | undefined {
  if (reply.status !== status || reply.text !== body) {
    return `expected ${status} ${shown(body)}, got ${reply.status} ${shown(reply.text)}`;
  }
  try {
    assertReply(reply, status, body);
    const foreign = /s\d+x/.exec(JSON.stringify(reply.headers).replaceAll(marker, ''));
    if (foreign) return `a header contains ${foreign[0]}, the marker of another call`;
    return reply.header('x-request-id') === marker ? undefined : 'the reply has another request id';
  } catch (error) {
    return String(error);
  }
}

function shown(text: string): string {
  return text.length > 120 ? `${text.slice(0, 120)}… (${text.length} characters)` : text;
}

/** Checks the reply, its time, and the number of times that the call was sent. */
function check(run: Run, reply: Reply, tookMs: number, delayedMs: number): void {
  const { marker, each, fault, recovers, arrivals, wasReused, answerBody } = run;
  const isSentAgain = fault?.isSilentDeath === true && each.method === 'GET' && wasReused;
  const well: [number, string] = [each.status, each.passesBody ? answerBody : each.body];
  const isWell = !fault || (isSentAgain && recovers);
  const [status, body] = isWell ? well : expectedReply(fault, each, marker);
  const isDisturbed = run.sentAt - disturbedAt < disturbanceMs || disturbedAt > run.sentAt;
  if (fault) byFault.set(fault.name, (byFault.get(fault.name) ?? 0) + 1);
  counts[fault ? 'faulty' : 'good'] += 1;

  const flaw = flawOf(reply, marker, status, body);
  if (flaw) {
    const isFailure = flawOf(reply, marker, 500, each.failure) === undefined;
    // A disturbance closed the connection before the fault, and the gateway sent the call again.
    const isRescued = recovers && arrivals === 2 && flawOf(reply, marker, ...well) === undefined;
    if ((isFailure || isRescued) && isDisturbed) counts.disturbed += 1;
    else if (isFailure && delayedMs > busyMs) counts.busy += 1;
    else violation(`${describe(run)}: ${flaw}`);
  } else if (arrivals !== (isSentAgain ? 2 : 1) && !isDisturbed) {
    violation(`${describe(run)}: sent to the backend ${arrivals} times`);
  }
  checkArrivals(run);
  if (arrivals > 1) counts.sentAgain += 1;

  if (fault?.waits(each)) counts.deadlineReplies += 1;
  counts.longestMs = Math.max(counts.longestMs, tookMs);
  counts.longestOwnMs = Math.max(counts.longestOwnMs, tookMs - delayedMs);
  if (tookMs > lateMs) {
    counts.late += 1;
    if (tookMs - delayedMs > lateMs) {
      counts.lateByGateway += 1;
      violation(
        `${describe(run)}: the reply came after ${tookMs.toFixed()} ms, including ${delayedMs.toFixed()} ms of waiting for a processor`,
      );
    }
  }
}

function checkArrivals(run: Run): void {
  const most = run.each.method === 'GET' && run.wasReused ? 2 : 1;
  if (run.arrivals > most) violation(`${describe(run)}: sent to the backend ${run.arrivals} times`);
}

function forgetAbandoned(sinceMs: number): void {
  const now = performance.now();
  for (let [oldest] = abandoned; oldest && now - oldest.sentAt > sinceMs; [oldest] = abandoned) {
    abandoned.shift();
    checkArrivals(oldest);
    runs.delete(oldest.marker);
  }
}

/** Every few seconds, closes or resets all connections to the backend, or stops the backend briefly. */
async function disturb(until: number): Promise<void> {
  const random = createRandom(seed * 1000);
  while (performance.now() < until && gateway.isRunning) {
    await wait(3000 + random() * 9000);
    counts.disturbances += 1;
    const kind = random();
    disturbedAt = performance.now();
    if (kind < 0.4) {
      backend.closeConnections();
    } else {
      await backend.stop({ reset: kind < 0.7 });
      await wait(random() * 500);
      await backend.restart();
    }
    disturbedAt = performance.now();
  }
}

async function traffic(durationMs: number, clients: readonly Client[]): Promise<void> {
  const until = performance.now() + durationMs;
  const progress = setInterval(() => {
    const left = Math.max(0, (until - performance.now()) / 1000);
    console.log(`  ${counts.calls} calls, ${violationCount} wrong, ${left.toFixed()} s to go`);
    forgetAbandoned(10 * deadlineMs);
  }, 30_000);
  // The recorded requests are not needed: each is checked when it arrives.
  const forget = setInterval(() => {
    backend.requests = [];
  }, 1000);
  await Promise.all([disturb(until), ...clients.map((client) => client.work(until))]);
  clearInterval(progress);
  clearInterval(forget);
}

/** Waits up to half a minute until the gateway has no calls, buffers or backend connections, then measures. */
async function rest(): Promise<Holdings> {
  for (let attempt = 0; attempt < 60; attempt += 1) {
    const { requestsInFlight, bufferedBytes, backendConnections } = await holdings(gateway);
    if (requestsInFlight + bufferedBytes + backendConnections === 0) break;
    await wait(500);
  }
  forgetAbandoned(0);
  // Waits, because closed sockets are released a little later.
  await wait(1000);
  return holdings(gateway);
}

const mib = (bytes: number): string => `${(bytes / 1_048_576).toFixed(1)} MiB`;
const signedMib = (bytes: number): string => `${bytes < 0 ? '-' : '+'}${mib(Math.abs(bytes))}`;

/** A line for each resource, and true if it has grown beyond its allowance. */
function compare(base: Holdings, end: Holdings): [line: string, hasGrown: boolean][] {
  const types = [...new Set([...base.resources.keys(), ...end.resources.keys()])].sort();
  const bytes = (name: string, from: number, to: number, allowance: number): [string, boolean] => [
    `${name}: ${mib(from)} -> ${mib(to)} (${signedMib(to - from)}, allowed +${mib(allowance)})`,
    to - from > allowance,
  ];
  const exact = (name: string, from: number, to: number, allowance = 0): [string, boolean] => [
    `${name}: ${from} -> ${to}${allowance > 0 ? ` (allowed +${allowance})` : ''}`,
    to - from > allowance,
  ];
  return [
    bytes('heap after a garbage collection', base.heapBytes, end.heapBytes, 4 * 1_048_576),
    bytes('memory outside the heap', base.externalBytes, end.externalBytes, 8 * 1_048_576),
    bytes('memory of the process', base.rssBytes, end.rssBytes, 64 * 1_048_576),
    ...(base.files === undefined || end.files === undefined ? [] : [exact('open files', base.files, end.files, 1)]),
    ...types.map((type) => exact(`active ${type}`, base.resources.get(type) ?? 0, end.resources.get(type) ?? 0, 1)),
    exact('requests in flight', 0, end.requestsInFlight),
    exact('bytes of bodies held', 0, end.bufferedBytes),
    exact('backend connections', 0, end.backendConnections),
    exact('bugs of the gateway', 0, end.bugs),
  ];
}

async function main(): Promise<boolean> {
  console.log(
    `Soak: ${minutes} min, ${clientCount} clients, seed ${seed}, deadline ${deadlineMs} ms, ${faults.length} faults.`,
  );
  const clients = Array.from({ length: clientCount }, (_, index) => new Client(index));
  const startedAt = performance.now();
  console.log(`Warming up for ${(warmUpMs / 1000).toFixed()} s.`);
  await traffic(warmUpMs, clients);
  const base = await rest();
  console.log(`Running for ${minutes} min.`);
  await traffic(minutes * 60_000, clients);
  const seconds = (performance.now() - startedAt) / 1000;
  const isAlive = gateway.isRunning;
  const grown = isAlive ? compare(base, await rest()) : [];
  if (isAlive) gateway.signal('SIGTERM');
  const exitCode = await gateway.exitCode(15_000);
  const wrongLines = complaints(gateway);
  await backend.stop();

  const problems = [
    ...(isAlive ? [] : [`the gateway ended unexpectedly: ${JSON.stringify(await gateway.exited)}`]),
    ...(isAlive && exitCode !== 0 ? [`exit code ${String(exitCode)} after SIGTERM`] : []),
    ...wrongLines.slice(0, 20).map((line) => `the log: ${line}`),
    ...violations,
    ...(violationCount > violations.length ? [`… ${violationCount} wrong in total`] : []),
    ...grown.filter(([, hasGrown]) => hasGrown).map(([line]) => `grown: ${line}`),
  ];
  const never = faults.filter(({ name }) => !byFault.has(name)).length;
  console.log(`
Traffic   ${counts.calls} calls in ${seconds.toFixed()} s: ${counts.good} good, ${counts.faulty} with a fault (${byFault.size} of ${faults.length} faults${never > 0 ? `, ${never} never occurred` : ''}),
          ${counts.refused} refused by the gateway, ${counts.abandoned} whose client left.
          All connections were cut or the backend was stopped ${counts.disturbances} times; ${counts.disturbed} calls failed for that reason.
          ${counts.sentAgain} GETs were sent twice [D20]; ${counts.busy} calls were not judged, because the machine was busy.
Deadline  ${counts.deadlineReplies} calls reached the deadline of ${deadlineMs} ms. The longest call took ${counts.longestMs.toFixed()} ms, or ${counts.longestOwnMs.toFixed()} ms without waiting
          for a processor. In the gateway's log, the longest timed-out call took ${longestTimedOutMs(gateway).toFixed()} ms. ${counts.late} calls took over ${lateMs} ms; the gateway delayed ${counts.lateByGateway} of them.
Log       ${gateway.logs.length} lines, ${wrongLines.length} errors.
Resources after warming up -> at the end
${grown.map(([line, hasGrown]) => `          ${hasGrown ? 'GROWN ' : ''}${line}`).join('\n')}
`);
  if (problems.length > 0) console.log(`${problems.map((each) => `- ${each}`).join('\n')}\n`);
  console.log(
    problems.length === 0
      ? `Nothing wrong (seed ${seed}).`
      : `${problems.length} problems. To repeat the run: npm run soak -- --minutes ${minutes} --clients ${clientCount} --seed ${seed}`,
  );
  return problems.length === 0;
}

process.exitCode = (await main()) ? 0 : 1;
