// Runs several worker processes (worker.ts) on one port: starts and watches them, and replaces workers that die. The
// primary process runs this code and serves no clients.

import { fork, type ChildProcess } from 'node:child_process';
import { createServer, type Socket } from 'node:net';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';

import { placeOfKeys, type RateLimitPart } from '../../core/guards/ports/ports.ts';
import { loadGuard } from '../../core/guards/guard-parts.ts';
import type { Listener } from '../../core/hosts/common/listen.ts';
import { startDeadline } from '../../core/hosts/common/process-deadline.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import { joinFailures, type Failure } from '../../figures/failures.ts';
import { causeOfDeath, Figures } from '../../figures/figures.ts';
import type { ReportRequest, Reports } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { Log, Logger } from '../log/log.ts';
import { createKeeper } from '../service/keeper.ts';
import { untilAborted } from '../service/lifecycle.ts';
import { checkPort, onceASecond, openListener } from '../service/listener.ts';
import type { ServingProcesses } from '../service/process-parts.ts';
import type { Settings } from '../settings/settings.ts';
import { Distributor } from './distributor.ts';
import { describeEnd, isForGroup, Member, type MemberObserver, type StartOutcome } from './member.ts';
import type { ToWorker } from './messages.ts';

const backOffMinMs = 100;
const backOffMaxMs = 10_000;
// A worker's death counts as early if the worker lived for less than this time.
const settledMs = 10_000;
// Time that a worker has to exit after the message `cut`.
const killTimeoutMs = 500;
const heartbeatMs = 1_000;

/** The processes and the listener of a pool. test/simulation/workers.ts simulates them. */
export interface PoolSystem {
  /** Starts a worker process, which waits for its first message. */
  readonly fork: () => ChildProcess;
  /** Listens for clients. `accept` gets each connection; this process reads none of its bytes. */
  readonly listen: (accept: (socket: Socket) => void, ...where: ListenerPlace) => Promise<Listener>;
}

type ListenerPlace = readonly [settings: Settings, logger: Logger, passed: readonly number[]];

const realSystem: PoolSystem = {
  fork: () =>
    fork(new URL(`../worker-main${extname(fileURLToPath(import.meta.url))}`, import.meta.url), [], {
      serialization: 'advanced',
      // Node blocks the signal that would open its debugger.
      execArgv: [...process.execArgv, '--disable-sigusr1'],
      stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    }),
  listen: (accept, ...where) =>
    openListener(createServer({ pauseOnConnect: true, noDelay: true }, accept), 'clients', ...where),
};

/**
 * Starts `settings.workers` workers with `tls`. If `passed` has listening sockets, accepts connections from them. If the
 * start fails, stops all workers and rejects with a StartError.
 */
export async function startPool(
  settings: Settings,
  log: Log,
  tls: TlsInForce,
  passed: readonly number[],
  system = realSystem,
): Promise<WorkerPool> {
  const pool = new WorkerPool(settings, log, tls, passed, system);
  try {
    await pool.start();
  } catch (error) {
    await pool.stop();
    throw error;
  }
  return pool;
}

class WorkerPool implements ServingProcesses {
  readonly hasWorkers = true;
  readonly #logger: Logger;
  readonly #members = new Set<Member>();
  readonly #distributor: Distributor<Member>;
  readonly #system: PoolSystem;
  #listener: Listener | undefined;
  // The figures and failures of ended workers, kept because counters must not fall when a worker is replaced.
  readonly #counted = new Figures();
  #failures: readonly Failure[] = [];
  // The counts of the rate limit for all workers together.
  #counts: ReturnType<RateLimitPart['createCounts']> | undefined;
  readonly #keys = createKeeper();
  #heartbeat: NodeJS.Timeout | undefined;
  readonly #passed: readonly number[];
  #settings: Settings;
  #tls: TlsInForce;
  // Resolves when the last reload has succeeded or failed.
  #decision: Promise<undefined> | undefined;
  #url = '';
  #earlyDeaths = 0;
  // `announced`: the gateway is about to stop. It still accepts connections and replaces workers [D33].
  #phase: 'starting' | 'running' | 'announced' | 'stopping' = 'starting';
  #hasFailed = false;
  // While this timer is set, missing workers are not started.
  #pause: NodeJS.Timeout | undefined;

  readonly #observer: MemberObserver = {
    isUpToDate: (member) => member.state === 'ended' || member.settings === this.#settings,
    bringUpToDate: (member) => this.#bringUpToDate(member),
    onReady: (member) => {
      // The certificates may have changed while the worker was starting.
      member.renewTls(this.#tls);
      if (this.#phase === 'announced') member.send({ kind: 'begin-drain' });
      // WORKERS may have been lowered while the worker was starting.
      this.#reconcile();
      this.#distributor.distribute();
    },
    onRoom: () => this.#distributor.distribute(),
    onHandedBack: (sockets, { pid }, isLost) => {
      if (isLost) this.#reportLost({ worker: pid, count: sockets.length });
      this.#distributor.handBack(sockets);
    },
    onFault: (member) => this.#onFault(member),
    onCount: (member, requests) => {
      const taken = requests.flatMap(({ key, rate }) => this.#counts?.take(key, rate) ?? []);
      member.send({ kind: 'counted', taken });
    },
    onKeys: (place, keys) => this.#keys.keepKeys(place, keys),
    onUnreachable: ({ pid }, error) => this.#logger.error({ err: error, worker: pid }, 'a worker cannot be reached'),
    onGone: (member) => {
      this.#members.delete(member);
      if (member.lastReport !== undefined) {
        this.#counted.add(new Figures(member.lastReport.figures));
        this.#failures = joinFailures([member.lastReport.failures, this.#failures]);
      }
    },
    onExit: (member, code, signal) => this.#onExit(member, code, signal),
  };

  readonly #reportLost = onceASecond((facts: object) => {
    this.#logger.error(facts, 'could not accept connections: no file descriptor was free in a worker');
  });

  readonly #reportRefused = onceASecond((facts: object) => {
    this.#logger.error(facts, 'closed a connection that no worker could take');
  });

  constructor(
    settings: Settings,
    { logger, output }: Log,
    tls: TlsInForce,
    passed: readonly number[],
    system: PoolSystem,
  ) {
    this.#system = system;
    this.#tls = tls;
    this.#passed = passed;
    this.#settings = settings;
    this.#logger = logger;
    this.#distributor = new Distributor(
      () => this.#serving(),
      () => this.#settings,
      () => {
        this.#counted.count('connection shed');
        this.#reportRefused({ workers: this.#serving().length });
      },
    );
    output.onDrop = (lines) => this.#counted.count('log line dropped', lines);
  }

  get url(): string {
    return this.#url.replace(/^https?/, this.#tls.clients === undefined ? 'http' : 'https');
  }

  async start(): Promise<void> {
    const { port } = this.#settings;
    if (this.#passed.length === 0 && port !== 0) await checkPort('clients', this.#settings, this.#logger);
    await this.#loadCounts(this.#settings);
    this.#heartbeat = setInterval(() => this.#lookForHanging(), heartbeatMs);
    await this.#launch();
    // Opened only now, so that the OS refuses connections until a worker is ready.
    const accept = (socket: Socket): void => this.#distributor.accept(socket);
    this.#listener = await this.#system.listen(accept, this.#settings, this.#logger, this.#passed);
    this.#url = this.#listener.url;
    await Promise.all(this.#launchMissing());
    this.#phase = 'running';
    this.#reconcile();
  }

  /**
   * Switches the workers to `settings` and `tls`, one worker at a time, then adjusts the number of workers. If a worker
   * cannot use the new settings, all workers get the old settings again.
   */
  async reload(settings: Settings, tls: TlsInForce): Promise<{ readonly finished: Promise<void> | undefined }> {
    await this.#loadCounts(settings);
    if (this.#phase !== 'running') return { finished: undefined };
    const previous = { settings: this.#settings, tls: this.#tls };
    const decision = Promise.withResolvers<undefined>();
    this.#decision = decision.promise;
    this.#settings = settings;
    this.#tls = tls;
    const ends: Promise<unknown>[] = [];
    try {
      for (const member of this.#serving()) ends.push((await member.reload(this.#settings, tls)).finished);
    } catch (error) {
      ({ settings: this.#settings, tls: this.#tls } = previous);
      decision.resolve(undefined);
      await Promise.all(this.#serving().map((member) => this.#bringUpToDate(member)));
      this.#reconcile();
      throw error;
    }
    decision.resolve(undefined);
    if (!this.#isOpen()) return { finished: undefined };
    // Workers that kept failing with the old settings may work with the new settings, so they start without a pause.
    this.#endPause();
    ends.push(...Array.from(this.#members, ({ state, exited, started }) => (state === 'draining' ? exited : started)));
    return { finished: Promise.all(ends).then(() => undefined) };
  }

  // If a starting worker cannot use the settings of a reload that fails too, the worker lives, and member.ts calls again.
  async #bringUpToDate(member: Member): Promise<void> {
    const settings = this.#settings;
    if (member.settings === settings) return;
    try {
      await member.reload(settings, this.#tls, this.#keys.findKeys(placeOfKeys(settings)));
    } catch (error) {
      await this.#decision;
      if (settings !== this.#settings || member.state === 'ended') return;
      this.#kill(member, `a worker cannot use the settings in force: killing it (${String(error)})`);
      await member.exited;
    }
  }

  renewTls(tls: TlsInForce): void {
    this.#tls = tls;
    for (const member of this.#members) member.renewTls(tls);
  }

  readonly reports = async (request: ReportRequest): Promise<Reports> => {
    await Promise.all(Array.from(this.#members, (member) => member.report(request)));
    const members = [...this.#members];
    return {
      isServing: members.some(({ isAnswering }) => isAnswering),
      living: members.flatMap(({ lastReport }) => lastReport ?? []),
      ended: { figures: this.#counted.toJSON(), failures: this.#failures },
    };
  };

  /** True if a worker ended by a signal, or with an exit code other than 0, after `beginDrain`. */
  readonly hasFailed = (): boolean => this.#hasFailed;

  beginDrain(): void {
    this.#phase = 'announced';
    this.#tellAll({ kind: 'begin-drain' });
  }

  async finishDrain(signal: AbortSignal): Promise<void> {
    await this.#stopServing();
    this.#tellAll({ kind: 'finish-drain' });
    void untilAborted(signal).then(() => this.#tellAll({ kind: 'cut' }));
    await this.#allExited();
  }

  async stop(): Promise<void> {
    this.beginDrain();
    await this.#stopServing();
    this.#tellAll({ kind: 'cut' });
    const callOff = startDeadline(killTimeoutMs, () => {
      for (const member of this.#members) this.#kill(member, 'a worker does not exit: killing it');
    });
    await this.#allExited();
    callOff();
  }

  async #stopServing(): Promise<void> {
    this.#phase = 'stopping';
    clearInterval(this.#heartbeat);
    this.#endPause();
    const listener = this.#listener;
    this.#listener = undefined;
    await listener?.close();
    // The waiting connections go to the workers first, so each worker receives them before `finish-drain`.
    this.#distributor.close();
    for (const member of this.#members) member.leave('stop');
  }

  async #allExited(): Promise<void> {
    await Promise.all(Array.from(this.#members, ({ exited }) => exited));
  }

  #tellAll(message: ToWorker): void {
    for (const member of this.#members) member.send(message);
  }

  #serving(): Member[] {
    return [...this.#members].filter(({ state }) => state === 'serving');
  }

  #isOpen(): boolean {
    return this.#phase === 'running' || this.#phase === 'announced';
  }

  // Starts missing workers and retires surplus ones. Called after each change of the workers.
  #reconcile(): void {
    if (!this.#isOpen() || this.#pause !== undefined) return;
    for (const launched of this.#launchMissing()) launched.catch((error: unknown) => this.#onLaunchFailure(error));
    for (const surplus of this.#serving().slice(this.#settings.workers)) {
      surplus.leave('surplus');
      surplus.send({ kind: 'begin-drain' });
      surplus.send({ kind: 'finish-drain' });
      this.#limitDrain(surplus);
    }
  }

  // Each returned promise rejects with a StartError if its worker cannot be started.
  #launchMissing(): Promise<void>[] {
    const count = [...this.#members].filter(({ state }) => state !== 'draining').length;
    return Array.from({ length: Math.max(0, this.#settings.workers - count) }, () => this.#launch());
  }

  #onLaunchFailure(error: unknown): void {
    if (this.#isOpen()) {
      this.#logger.error({ err: error }, 'a worker could not be replaced: trying again');
      this.#onEarlyDeath();
    }
  }

  // Starts one worker. If a signal to the process group ends the worker during its start, starts another. Rejects with a
  // StartError if the worker cannot be started.
  async #launch(): Promise<void> {
    for (;;) {
      const outcome = await this.#fork();
      if (outcome.kind === 'ready') return;
      if (outcome.kind === 'failed' || this.#phase === 'stopping') throw new StartError(outcome.message, undefined);
    }
  }

  async #fork(): Promise<StartOutcome> {
    const settings = this.#settings;
    try {
      const keys = this.#keys.findKeys(placeOfKeys(settings));
      const member = new Member(this.#system.fork(), settings, { tls: this.#tls, keys }, this.#observer);
      this.#members.add(member);
      const outcome = await member.started;
      // Until its exit, a worker that could not start would count as one that starts.
      if (outcome.kind === 'failed' && member.state === 'starting') await member.exited;
      return outcome;
    } catch (error) {
      return { kind: 'failed', message: `a worker could not be started: ${String(error)}` };
    }
  }

  // Loads the rate limit before a worker needs it: later, no file descriptor may be free.
  async #loadCounts({ rateLimit }: Settings): Promise<void> {
    if (rateLimit === '' || this.#counts !== undefined) return;
    try {
      this.#counts = (await loadGuard('rateLimit')).createCounts();
    } catch (error) {
      throw new StartError(`the rate limit could not be loaded: ${String(error)}`, error);
    }
  }

  // The worker drains by itself.
  #onFault(member: Member): void {
    const isNew = member.departure === undefined;
    const wasServing = member.state === 'serving';
    member.leave('fault');
    if (!isNew) return;
    this.#counted.count('death exit');
    this.#limitDrain(member);
    // #launch() handles the end of a worker that was still starting.
    if (wasServing) {
      this.#logger.error({ worker: member.pid }, 'a worker had an internal error: replacing it');
      this.#replace(member);
    }
  }

  #onExit(member: Member, code: number | null, signal: string | null): void {
    const { departure, readyAt } = member;
    const isUnexpected = this.#phase !== 'stopping' && (departure === undefined || departure === 'hung');
    // If a signal to the process group ends a starting worker, this is not counted as a death. #launch() starts another.
    if (isUnexpected && (readyAt !== undefined || !isForGroup(signal))) {
      this.#counted.count(`death ${causeOfDeath(signal, departure === 'hung')}`);
    }
    if (readyAt === undefined) {
      // The worker was still starting, so #launch() handles its end, and no client was affected.
      return;
    }
    this.#hasFailed ||= code !== 0 && (this.#phase === 'announced' || this.#phase === 'stopping');
    const ended = { worker: member.pid, code, signal };
    if (isUnexpected) {
      this.#logger.error(ended, `a worker ended with ${describeEnd(code, signal)}: replacing it`);
      this.#replace(member);
    } else if (code !== 0) {
      this.#logger.warn(ended, `a draining worker ended with ${describeEnd(code, signal)}`);
    }
  }

  #replace({ startedAt }: Member): void {
    if (performance.now() - startedAt >= settledMs) {
      this.#earlyDeaths = 0;
      this.#endPause();
    } else {
      this.#onEarlyDeath();
    }
  }

  // Starts the pause before the next worker is started, which is 0 after the first early death. Each further early death in
  // a row doubles the pause, up to `backOffMaxMs`. Otherwise workers that keep failing would use all CPU time. Several
  // deaths at a time count as one.
  #onEarlyDeath(): void {
    if (this.#pause !== undefined) return;
    this.#earlyDeaths += 1;
    const delayMs = this.#earlyDeaths < 2 ? 0 : Math.min(backOffMaxMs, backOffMinMs * 2 ** (this.#earlyDeaths - 2));
    this.#pause = setTimeout(() => this.#endPause(), delayMs);
  }

  #endPause(): void {
    clearTimeout(this.#pause);
    this.#pause = undefined;
    this.#reconcile();
  }

  // Kills a draining worker that does not exit.
  #limitDrain(member: Member): void {
    const callOff = startDeadline(member.settings.shutdownTimeoutMs + killTimeoutMs, () =>
      this.#kill(member, 'a draining worker does not exit: killing it'),
    );
    void member.exited.then(callOff);
  }

  // Kills hanging workers, which receive connections without answering. They are replaced like any dead worker.
  #lookForHanging(): void {
    for (const member of this.#members) {
      const missedBeats = member.beat();
      if (missedBeats !== undefined) {
        member.leave('hung');
        this.#kill(member, `a worker has not answered for ${(missedBeats * heartbeatMs) / 1_000} s: killing it`);
      }
    }
  }

  #kill(member: Member, why: string): void {
    this.#logger.error({ worker: member.pid }, why);
    member.kill();
  }
}
