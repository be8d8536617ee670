// The common parts of all scenarios: flags, processes, rounds, quiet times and tables.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { BackendOrder, BackendReport } from './backend.ts';
import { findContender, type Contender } from './contenders.ts';
import type { LoadOrder, LoadResult } from './load.ts';
import { memoryMb, resetPeakMemory, watchOthers } from './processes.ts';
import type { Results, Run } from './results.ts';
import { machine, today } from './results.ts';
import { Helper, startContender, stopAll, type Running, type StartOptions } from './running.ts';
import { formatCount, formatRange, formatUs, makeTable, median, quantile, type Cell } from './tables.ts';
import { makeShots, type Workload } from './workloads.ts';

/** A round counts as quiet if other programs used at most this many cores. */
const OTHERS_MAX = 0.05;
const ATTEMPTS_MAX = 4;
const QUIET_SAMPLE_MS = 250;
/** The most time that a run spends on waiting and on repeated rounds. */
const WAIT_MS = 120_000;
/** Enough calls for an engine to compile the hot code. */
export const WARMUP = { warmupMs: 1_000, warmupRequests: 20_000 };
const SETTLE = { warmupMs: 300, warmupRequests: 0 };

type Warmup = typeof WARMUP;

/** A load on a contender. */
export interface LoadCase {
  name: string;
  one: Running;
  workload: Workload;
  /** Default: the workload's `connections`. */
  connections?: number;
  /** Calls a second; default: as many as possible. */
  rate?: number;
  /** Header lines. Each request has one of these lines, in turn. */
  headers?: readonly string[];
}

export interface Cost extends Pick<LoadResult, 'latenciesMs' | 'unanswered'> {
  /** CPU time of a call. */
  us: number;
  perSecond: number;
  peakMb: number;
}

export interface Scenario {
  title: string;
  /** The defaults: the number of rounds, and the measured seconds of a case in each round. */
  rounds: number;
  seconds: number;
  /** The time of a run is divided among its scenarios in proportion to their `minutes`. */
  minutes: number;
  /** The scenario is not part of the complete run. */
  isApart?: true;
  /** The scenario starts peers that are npm packages, so these must be installed. */
  needsPeers?: true;
  /** Runs the scenario and prints its tables. Returns the sections that `--record` records. */
  run: (bench: Bench) => Promise<Partial<Results>>;
}

export interface Flags {
  rounds: number | undefined;
  seconds: number | undefined;
  /** Calls a second, in scenarios with a constant rate. */
  rate: number | undefined;
  /** The names of the cases to measure; all if empty. */
  only: readonly string[];
}

/** The state that all scenarios of a run share: time limits, noisy cases and missed goals. */
export class Session {
  /** After this time, a scenario begins no further round. */
  endsAt = Infinity;
  waitLeftMs: number;
  readonly noisy: string[] = [];
  readonly missed: string[] = [];

  canWait(): boolean {
    return this.waitLeftMs > 0 && performance.now() < this.endsAt;
  }

  /** A quick run does not wait for a quiet machine. */
  constructor(isQuick: boolean) {
    this.waitLeftMs = isQuick ? 0 : WAIT_MS;
  }
}

export class Bench implements AsyncDisposable {
  readonly rounds: number;
  readonly seconds: number;
  readonly flags: Flags;
  readonly folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-bench-'));
  readonly #name: string;
  readonly #session: Session;
  readonly #others = new Map<string, number>();
  readonly #unknown: Set<string>;
  readonly #names: string[] = [];
  #backend: [Helper<BackendOrder, BackendReport>, BackendReport] | undefined;
  #load: Helper<LoadOrder, LoadResult> | undefined;
  #roundsDone = Infinity;

  constructor(name: string, scenario: Scenario, flags: Flags, session: Session) {
    this.#name = name;
    this.rounds = flags.rounds ?? scenario.rounds;
    this.seconds = flags.seconds ?? scenario.seconds;
    this.flags = flags;
    this.#session = session;
    this.#unknown = new Set(flags.only);
  }

  /** The common fields of a section of the results. */
  get section(): Run & { rounds: number; seconds: number } {
    const noisy = this.noisyCases;
    const rounds = Math.min(this.rounds, this.#roundsDone);
    return { date: today, machine, rounds, seconds: this.seconds, ...(noisy.length > 0 && { noisy }) };
  }

  get noisyCases(): string[] {
    return [...this.#others].filter(([, cores]) => cores > OTHERS_MAX).map(([name]) => name);
  }

  /** Returns the cases that `--only` names and the cases that `extra` accepts. If `--only` names none of them, returns all. */
  choose<Case extends { name: string }>(cases: readonly Case[], extra: (one: Case) => boolean = () => false): Case[] {
    this.#names.push(...cases.map(({ name }) => name));
    const { only } = this.flags;
    const named = cases.filter(({ name }) => only.includes(name));
    for (const { name } of named) this.#unknown.delete(name);
    return named.length === 0 ? [...cases] : cases.filter((one) => named.includes(one) || extra(one));
  }

  /** Starts the backend if it is not running yet, then sends it an order. */
  async backend(order: BackendOrder = {}): Promise<BackendReport> {
    this.#backend ??= await Helper.start<BackendOrder, BackendReport>('backend.ts');
    return this.#backend[0].order(order);
  }

  /** Starts a contender, by default the gateway. */
  async start(contender: Contender | string = 'gateway', options: StartOptions = {}): Promise<Running> {
    const found = typeof contender === 'string' ? findContender(contender) : contender;
    const missing = found.findMissing();
    if (missing !== undefined) throw new Error(missing);
    const backendPort = options.backendPort ?? (await this.backend()).port;
    return startContender(found, join(this.folder, found.name), { ...options, backendPort });
  }

  /** Starts a contender. If this machine lacks it, prints why and returns undefined. */
  async startIfPresent(contender: Contender, options: StartOptions = {}): Promise<Running | undefined> {
    const missing = contender.findMissing();
    if (missing === undefined) return await this.start(contender, options);
    this.note(`skipped: ${contender.name}: ${missing}`);
    return undefined;
  }

  /** Sends one load to a contender: measures the cost of a call and the latencies. */
  async load({ one, workload, headers, ...more }: Omit<LoadCase, 'name'>, warmup: Warmup = SETTLE): Promise<Cost> {
    this.#load ??= (await Helper.start<LoadOrder, LoadResult>('load.ts'))[0];
    const { port, pid, ca, contender } = one;
    const shots = makeShots(workload, contender.job, headers);
    const { connections = workload.connections, rate = 0 } = more;
    const measureMs = this.seconds * 1_000;
    await this.backend({ list: workload.list });
    resetPeakMemory(pid);
    const order = { port, pid, ca, shots, connections, rate, ...warmup, measureMs };
    const { processorMs, requests, elapsedMs, ...rest } = await this.#load.order(order);
    const us = (processorMs * 1_000) / requests;
    return { us, perSecond: (requests * 1_000) / elapsedMs, peakMb: memoryMb(pid, 'VmHWM'), ...rest };
  }

  /** Measures loads in turns. The first round of a case has a longer warm-up. */
  loadInTurns<Case extends LoadCase>(cases: readonly Case[]): Promise<Map<Case, Cost[]>> {
    return this.takeTurns(
      cases,
      (one, round) => this.load(one, round === 0 && one.rate === undefined ? WARMUP : SETTLE),
      ({ us, latenciesMs }) => `${us.toFixed(1)} µs, p99 ${quantile(latenciesMs, 0.99).toFixed(1)} ms`,
    );
  }

  /** Prints the costs. `more` adds columns. */
  printCosts<Case extends LoadCase>(
    title: string,
    results: ReadonlyMap<Case, readonly Cost[]>,
    more: Readonly<Record<string, (one: Case, us: number) => Cell>> = {},
  ): void {
    this.print(
      title,
      ['', 'µs a call', 'range', ...Object.keys(more), 'calls a second', 'peak MB', 'other work, cores'],
      [...results].map(([one, costs]) => {
        const all = costs.map(({ us }) => us);
        const perSecond = formatCount(median(costs.map((cost) => cost.perSecond)));
        const peakMb = formatCount(Math.max(...costs.map((cost) => cost.peakMb)));
        const cells = Object.values(more).map((cellOf) => cellOf(one, median(all)));
        return [one.name, formatUs(median(all)), formatRange(all), ...cells, perSecond, peakMb, this.noise(one.name)];
      }),
    );
  }

  /**
   * Measures all cases in turns: each round measures each case once, every second round in reverse order, so that a slow change of
   * the machine's speed affects all cases alike. A measurement that other programs disturbed is repeated on a quiet machine.
   */
  async takeTurns<Case extends { name: string }, Figure>(
    cases: readonly Case[],
    measure: (one: Case, round: number) => Promise<Figure>,
    describe: (figure: Figure) => string,
  ): Promise<Map<Case, Figure[]>> {
    if (this.#unknown.size > 0)
      throw new Error(`--only: there is no ${[...this.#unknown].join('; ')}. There are: ${this.#names.join('; ')}`);
    const figures = new Map<Case, Figure[]>(cases.map((one) => [one, []]));
    for (let round = 0; round < this.rounds; round++) {
      if (round > 0 && performance.now() > this.#session.endsAt) {
        this.say(`no time is left for more than ${round} rounds`);
        this.#roundsDone = Math.min(this.#roundsDone, round);
        break;
      }
      for (const one of round % 2 === 0 ? cases : cases.toReversed()) {
        const { figure, cores } = await this.#measureQuietly(() => measure(one, round));
        figures.get(one)?.push(figure);
        this.#others.set(one.name, Math.max(cores, this.#others.get(one.name) ?? 0));
        this.say(`${round + 1}/${this.rounds} ${one.name}: ${describe(figure)}; other work: ${cores.toFixed(2)} cores`);
      }
    }
    return figures;
  }

  async #measureQuietly<Figure>(measure: () => Promise<Figure>): Promise<{ figure: Figure; cores: number }> {
    let best: { figure: Figure; cores: number } | undefined;
    for (let attempt = 1; ; attempt++) {
      if (attempt > 1) await this.#waitForQuiet();
      const others = watchOthers();
      const from = performance.now();
      const figure = await measure();
      const cores = others();
      if (best === undefined || cores < best.cores) best = { figure, cores };
      if (best.cores <= OTHERS_MAX || attempt === ATTEMPTS_MAX || !this.#session.canWait()) return best;
      this.#session.waitLeftMs -= performance.now() - from;
    }
  }

  async #waitForQuiet(): Promise<void> {
    this.say('waits for other work on this machine to end');
    while (this.#session.canWait()) {
      const others = watchOthers();
      await delay(QUIET_SAMPLE_MS);
      if (others() <= OTHERS_MAX) return;
      this.#session.waitLeftMs -= QUIET_SAMPLE_MS;
      if (!this.#session.canWait()) this.say('other work on this machine does not end');
    }
  }

  say(text: string): void {
    process.stderr.write(`${this.#name} ${text}\n`);
  }

  /** The text of a table's cell: the largest number of cores that other programs used in a round of the case `name`. */
  noise(name: string): string {
    const cores = this.#others.get(name) ?? 0;
    return `${cores.toFixed(2)}${cores > OTHERS_MAX ? ' (noisy)' : ''}`;
  }

  print(title: string, header: readonly string[], rows: readonly (readonly Cell[])[]): void {
    console.log(`\n## ${title}\n\n${makeTable(header, rows)}`);
  }

  note(text: string): void {
    console.log(`\n${text}`);
  }

  /** Records a missed goal or a fault. The run's exit code is then 1. */
  miss(text: string): void {
    this.#session.missed.push(`${this.#name}: ${text}`);
  }

  /** Stops all processes of the scenario. */
  async [Symbol.asyncDispose](): Promise<void> {
    const noisy = this.noisyCases.map((name) => `${name} ${this.#others.get(name)?.toFixed(2) ?? ''}`);
    if (noisy.length > 0) this.#session.noisy.push(`${this.#name}: ${noisy.join('; ')}`);
    await stopAll();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
