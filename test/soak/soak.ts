// Runs the built command against a faulty backend: `npm run soak -- --minutes 10 [--seed 1] [--clients 32]`. Every reply is
// compared with the expected reply, and the resources at the end with those after warming up. The exit code is 1 if
// anything is wrong. The simulator (test/simulation/) explores orders and times; the soak watches a real process.

import { setTimeout as wait } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { expectedReply, bodyOf, promptKinds, slow, stalls, type Fault } from '../faults/faults.ts';
import { within } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { assertReply, invalidId, operation, operations, type Operation } from '../helpers/expected.ts';
import { countDescriptors, figureIn } from '../helpers/process-figures.ts';
import { RawClient, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { createRandom } from '../json/texts.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    clients: { type: 'string', default: '32' },
  },
});
const [minutes, seed, clientCount] = [values.minutes, values.seed, values.clients].map(Number) as [
  number,
  number,
  number,
];
if (!(minutes > 0) || !Number.isInteger(seed) || !(clientCount > 0))
  throw new Error('usage: npm run soak -- --minutes N [--seed N] [--clients N]');

const deadlineMs = 2000;
/** A call within this time of a disturbance may have lost its connection. */
const disturbanceMs = 1000;
const warmUpMs = Math.min(60_000, (minutes * 60_000) / 4);
/** All faults except those that are `late` or `diesIdle`, because such faults affect other calls, too. */
const faults: readonly Fault[] = [...Object.values(promptKinds).flat(), ...slow, ...stalls].filter(
  ({ diesIdle, late }) => !diesIdle && !late,
);

/** One call, with its expected course and the number of times that it reached the backend. */
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
  /** The reply of the gateway itself to an invalid request. */
  readonly refusal: readonly [status: number, body: string] | undefined;
  /** False for an invalid or incomplete request, which must cause no backend call. */
  isCallable: boolean;
  sentAt: number;
  arrivals: number;
  wasReused: boolean;
}

const counts = { calls: 0, faulty: 0, refused: 0, abandoned: 0, disturbances: 0, disturbed: 0, late: 0 };
const problems: string[] = [];
const wrong = (text: string): void => {
  if (problems.push(text) <= 20) console.log(`  WRONG after ${(performance.now() / 1000).toFixed()} s: ${text}`);
};

const backend = await ScriptedBackend.start();
const limits = { BACKEND_TIMEOUT_MS: String(deadlineMs), RESPONSE_BYTES_MAX: '1000000' };
// The gateway logs only failed calls, since the soak keeps every line. The inspector is only for garbage collections.
const gateway = await startCommand(
  { BACKEND_URL: backend.url, LOG_LEVEL: 'warn', ...limits },
  { nodeFlags: ['--inspect=127.0.0.1:0'] },
);
const runs = new Map<string, Run>();
let disturbedAt = -Infinity;

backend.answers((exchange) => {
  const { request } = exchange;
  const run = runs.get(request.header('x-request-id') ?? '');
  if (!run) {
    wrong(`a backend call that no client made, or whose reply had been sent:\n${request.head}`);
    return;
  }
  run.arrivals += 1;
  if (run.arrivals === 1) run.wasReused = request.indexOnConnection > 0;
  const isSame =
    run.isCallable &&
    request.method === run.each.method &&
    request.target === run.backendTarget &&
    request.body.equals(run.body ?? Buffer.alloc(0));
  if (!isSame) wrong(`a backend call that differs from its request: ${run.marker}\n${request.head}`);
  const { fault, marker, answerBody } = run;
  if (fault && (run.arrivals === 1 || !run.recovers)) return fault.answer(marker)(exchange);
  return answer(answerBody, { headers: [['X-Backend', marker]] })(exchange);
});

/** The difference to the expected reply, or undefined. */
function flawOf(reply: Reply, marker: string, [status, body]: readonly [number, string]): string | undefined {
  try {
    assertReply(reply, status, body);
  } catch {
    return `expected ${status} ${body.slice(0, 120)}, got ${reply.status} ${reply.text.slice(0, 120)}`;
  }
  const foreign = /s\d+x/.exec(JSON.stringify(reply.headers).replaceAll(marker, ''));
  if (foreign) return `a header contains ${foreign[0]}, the marker of another call`;
  return reply.header('x-request-id') === marker ? undefined : 'the reply has another request id';
}

function check(run: Run, reply: Reply, tookMs: number): void {
  const { marker, each, fault, recovers, arrivals, wasReused, answerBody } = run;
  const isSentAgain = fault?.isSilentDeath === true && each.method === 'GET' && wasReused;
  const well = [each.status, each.passesBody ? answerBody : each.body] as const;
  const flaw = flawOf(reply, marker, !fault || (isSentAgain && recovers) ? well : expectedReply(fault, each, marker));
  const isDisturbed = run.sentAt - disturbedAt < disturbanceMs || disturbedAt > run.sentAt;
  // A disturbance closed the connection before the fault, and the gateway sent the call again.
  const isRescued = recovers && arrivals === 2 && flawOf(reply, marker, well) === undefined;
  const isFailure = flawOf(reply, marker, [500, each.failure]) === undefined;
  counts.faulty += fault ? 1 : 0;
  if (flaw && isDisturbed && (isFailure || isRescued)) counts.disturbed += 1;
  else if (flaw && isFailure && tookMs >= deadlineMs) counts.late += 1;
  else if (flaw) wrong(`${marker}, ${each.name}, ${fault?.name ?? 'no fault'}: ${flaw}`);
  checkArrivals(run, isSentAgain || isDisturbed ? 2 : 1);
}

function checkRefusal(marker: string, flaw: string | undefined): void {
  counts.refused += 1;
  if (flaw) wrong(`${marker}, refused by the gateway: ${flaw}`);
}

/** A read may arrive twice, on a reused connection [D20]. */
function checkArrivals({ each, wasReused, marker, fault, arrivals }: Run, most = 2): void {
  if (arrivals > (each.method === 'GET' && wasReused ? most : 1))
    wrong(`${marker}, ${each.name}, ${fault?.name ?? 'no fault'}: sent to the backend ${arrivals} times`);
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
    run.sentAt = performance.now();
    try {
      const reply = await connection.reply({ limitMs: 5 * deadlineMs });
      if (refusal === undefined) check(run, reply, performance.now() - run.sentAt);
      else checkRefusal(marker, flawOf(reply, marker, refusal));
      if (!connection.isOpen) throw new Error("the client's connection was closed");
    } catch (error) {
      wrong(`${marker}, ${each.name}: ${String(error)}`);
      connection.destroy();
      this.#connection = undefined;
    }
    runs.delete(marker);
  }

  /** The gateway itself refuses 6 % of the calls: an invalid id, or a body that is not JSON. 29 % of the calls have a fault. */
  #plan(kind: number): Run {
    const marker = `s${counts.calls}x`;
    const refused = kind < 0.03 ? operation(5) : kind < 0.06 ? operation(2) : undefined;
    const each = refused ?? this.#pick(operations);
    const fault = refused === undefined && kind < 0.35 ? this.#pick(faults) : undefined;
    const id = String(this.#below(1e9));
    const padding = fault === undefined && this.#chance(0.03) ? 'y'.repeat(this.#below(300_000)) : '';
    const run: Run = {
      marker,
      each,
      path: each.path.replace(/5$/, refused === undefined ? id : 'abc'),
      backendTarget: each.backendTarget.replace(/5$/, id),
      body:
        each.options.body === undefined
          ? undefined
          : Buffer.from(`{"sent":"${marker}${padding}"${refused === undefined ? '}' : ''}`),
      fault,
      recovers: this.#chance(0.5),
      answerBody: padding === '' ? bodyOf(marker) : `{"answered":"${marker}${padding}"}`,
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
    run.isCallable &&= this.#chance(0.7);
    await connection.sendPieces([run.isCallable ? bytes : bytes.subarray(0, 1 + this.#below(bytes.length - 1))]);
    await wait(this.#below(this.#chance(0.1) ? 500 : 10));
    if (this.#chance(0.5)) connection.reset();
    else connection.destroy();
    this.#connection = undefined;
    setTimeout(() => {
      checkArrivals(run);
      runs.delete(run.marker);
    }, 10 * deadlineMs).unref();
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
    console.log(`  ${counts.calls} calls, ${problems.length} wrong, ${left.toFixed()} s to go`);
  }, 30_000);
  // The recorded requests are not needed: each is checked when it arrives.
  const forget = setInterval(() => {
    backend.requests = [];
  }, 1000);
  await Promise.all([disturb(until), ...clients.map((client) => client.work(until))]);
  clearInterval(progress);
  clearInterval(forget);
}

async function collectGarbage(): Promise<void> {
  const socket = new WebSocket(/ws:\/\/\S+/.exec(gateway.stderr)?.[0] ?? '');
  const { promise: done, resolve, reject } = Promise.withResolvers<unknown>();
  socket.addEventListener('open', () => socket.send('{"id":1,"method":"HeapProfiler.collectGarbage"}'));
  socket.addEventListener('message', resolve);
  socket.addEventListener('error', () => reject(new Error('the inspector does not answer')));
  await within(done, 'a garbage collection');
  const closed = new Promise((resolveClose) => socket.addEventListener('close', resolveClose));
  socket.close();
  await within(closed, 'the connection to the inspector is closed');
}

const mib = 1_048_576;
/** The metrics of resources: each with its unit, and by how much it may grow. */
const allowances: readonly [metric: string, unit: number, allowance: number][] = [
  ['nodejs_heap_size_used_bytes', mib, 4],
  ['nodejs_external_memory_bytes', mib, 8],
  ['process_resident_memory_bytes', mib, 64],
];
/** The metrics that must be 0 for an idle gateway. */
const leftovers = ['requests_in_flight', 'buffered_bytes', 'backend_connections', 'bugs_total'];

/** Waits up to half a minute until the gateway has no calls, buffers or backend connections; returns its resources. */
async function rest(): Promise<Map<string, readonly [value: number, allowance: number]>> {
  for (let attempt = 0; ; attempt += 1) {
    // Closed sockets are released a little later.
    await wait(1_000);
    // Twice: after the finalizers of the first collection, the second collection can free more memory.
    await collectGarbage();
    await collectGarbage();
    const { text } = await gateway.admin('/metrics');
    const left = leftovers.filter((name) => figureIn(text, `work_item_gateway_${name}`) !== 0);
    if (left.length > 0 && attempt < 30) continue;
    if (left.length > 0) problems.push(`not 0 in an idle gateway: ${left.join()}`);
    const active = text.matchAll(/^nodejs_active_resources\{type="([^"]+)"\} (\d+)$/gm);
    return new Map([
      ...allowances.map(([name, unit, most]) => [name, [(figureIn(text, name) ?? NaN) / unit, most]] as const),
      ['open files', [countDescriptors(gateway.process.pid) ?? 0, 1]],
      ...Array.from(active, ([, type, count]) => [`active ${type}`, [Number(count), 1]] as const),
    ]);
  }
}

/** A line for each resource; those that have grown beyond their allowance are problems, too. */
function compare(base: Awaited<ReturnType<typeof rest>>, end: typeof base): string[] {
  return Array.from(end, ([name, [to, allowance]]) => {
    const [from] = base.get(name) ?? [0];
    const line = `${name}: ${from.toFixed()} -> ${to.toFixed()} (allowed +${allowance})`;
    if (!(to - from <= allowance)) problems.push(`grown: ${line}`);
    return line;
  });
}

console.log(`Soak: ${minutes} min, ${clientCount} clients, seed ${seed}, ${faults.length} faults; warming up.`);
const clients = Array.from({ length: clientCount }, (_, index) => new Client(index));
await traffic(warmUpMs, clients);
const base = await rest();
console.log(`Running for ${minutes} min.`);
await traffic(minutes * 60_000, clients);
let resources: string[] = [];
if (gateway.isRunning) {
  resources = compare(base, await rest());
  gateway.signal('SIGTERM');
}
const exitCode = await gateway.exitCode(15_000);
await backend.stop();
if (exitCode !== 0) problems.push(`the gateway ended with ${JSON.stringify(await gateway.exited)}`);
const errors = gateway.logs.filter(({ level }) => level === 'error' || level === 'fatal');
problems.push(...errors.map((line) => `the log: ${JSON.stringify(line)}`));
// Without Node's lines about its inspector.
const complaints = gateway.stderr.split('\n').filter((line) => !/^(?:Debugger |For help, see:|$)/.test(line));
problems.push(...complaints.map((line) => `standard error: ${line}`));
// A busy machine may delay a call up to its deadline.
if (counts.late > counts.calls / 100) problems.push(`${counts.late} calls reached their deadline without a reason`);
console.log(JSON.stringify(counts));
console.log(`Resources after warming up -> at the end\n${resources.map((line) => `  ${line}`).join('\n')}`);
for (const problem of problems.slice(0, 40)) console.log(`- ${problem}`);
console.log(
  problems.length === 0
    ? `Nothing wrong (seed ${seed}).`
    : `${problems.length} problems. To repeat the run: npm run soak -- --minutes ${minutes} --clients ${clientCount} --seed ${seed}`,
);
process.exitCode = problems.length === 0 ? 0 : 1;
