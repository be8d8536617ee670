// Several worker processes that serve clients on one port: started, watched, replaced when they die, and one
// by one on a reload. It answers no client itself; the workers are worker.ts.

import cluster from 'node:cluster';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';

import { joinFailures, type Failure } from '../../figures/failures.ts';
import { Figures } from '../../figures/figures.ts';
import { addFigures } from '../../figures/history.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import { causeOfDeath } from '../../figures/worker-deaths.ts';
import { startDeadline } from '../service/deadline.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { PortSharing } from '../../core/hosts/common/listen.ts';
import type { Log, Logger } from '../log/log.ts';
import { untilAborted } from '../service/lifecycle.ts';
import { onceASecond, openListener } from '../service/listener.ts';
import type { ClientService } from '../service/services.ts';
import type { Settings } from '../settings/settings.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Question, RateLimitPart } from '../../core/guards/options/ports.ts';
import { loadRateLimit } from '../../core/guards/parts.ts';
import { KeptKeys } from '../service/keeper.ts';
import { describeEnd, isForGroup, Member, type MemberObserver, type StartOutcome } from './member.ts';
import type { ToWorker } from './messages.ts';

const backOffMinMs = 100;
const backOffMaxMs = 10_000;
// A worker that has lived so long did not die of how it was started.
const settledMs = 10_000;
// What is told to cut everything has this long to end by itself.
const killTimeoutMs = 500;
// Every worker is asked how it is at each of them.
const heartbeatMs = 1_000;
// Behind input, outputs and the channel of node:cluster.
const firstPassed = 4;

/** Resolved when every worker is a new one, or the pool is stopping. */
interface Reload extends PromiseWithResolvers<undefined> {
  /** What comes back when it has to be given up. */
  readonly previous: { readonly settings: Settings; readonly tls: TlsInForce };
}

/**
 * Starts `settings.workers` workers with `tls`, which share the listening sockets `passed` where there are any; rejects
 * with a StartError, all of them stopped again.
 */
export async function startPool(
  settings: Settings,
  log: Log,
  tls: TlsInForce,
  passed: readonly number[],
): Promise<WorkerPool> {
  const extension = extname(fileURLToPath(import.meta.url));
  cluster.setupPrimary({
    exec: fileURLToPath(new URL(`../worker-main${extension}`, import.meta.url)),
    args: [],
    serialization: 'advanced',
    stdio: ['inherit', 'inherit', 'inherit', 'ipc', ...passed],
  });
  const sharing = settings.portSharing === 'auto' ? findSharing() : settings.portSharing;
  // With a shared port the system would let two gateways have it unnoticed [D31]; and where 0 was asked for, all
  // of them, and those that replace them, must have the same.
  const port = passed.length > 0 ? settings.port : await findPort(settings, log.logger);
  const pool = new WorkerPool({ ...settings, port }, sharing, log, tls, passed.length);
  try {
    await pool.start();
  } catch (error) {
    await pool.stop();
    throw error;
  }
  return pool;
}

// A socket of each worker's own loses what waits in its queue when it closes, and with it calls on a reload,
// unless the system moves the queue to another worker's. Linux has that since 5.14, and off.
function findSharing(): PortSharing {
  try {
    return readFileSync('/proc/sys/net/ipv4/tcp_migrate_req', 'latin1').trim() === '1'
      ? 'reuse-port'
      : 'cluster';
  } catch {
    // Another system, or an older Linux.
    return 'cluster';
  }
}

// The port that is asked for, when nobody has it; a free one for 0.
async function findPort(settings: Settings, logger: Logger): Promise<number> {
  const listener = await openListener(createServer(), 'clients', settings, logger);
  await listener.close();
  return listener.port;
}

class WorkerPool implements ClientService {
  readonly hasWorkers = true;
  readonly #logger: Logger;
  readonly #sharing: PortSharing;
  readonly #members = new Set<Member>();
  // What workers that have gone had counted and kept: a counter must not fall because one was replaced.
  readonly #counted = new Figures();
  #failures: readonly Failure[] = [];
  // What the rate limit counts, for all workers together.
  #count: ReturnType<RateLimitPart['createJoinedCount']> | undefined;
  readonly #keys = new KeptKeys();
  #heartbeat: NodeJS.Timeout | undefined;
  // As the workers have them: this process listens on none, so that they stay open whatever becomes of a worker.
  readonly #passed: readonly number[];
  #settings: Settings;
  #tls: TlsInForce;
  /** Where it takes calls. */
  url = '';
  #earlyDeaths = 0;
  #phase: 'starting' | 'running' | 'stopping' = 'starting';
  #hasFailed = false;
  #reload: Reload | undefined;
  // Until it fires no missing worker is started.
  #pause: NodeJS.Timeout | undefined;

  readonly #observer: MemberObserver = {
    onReady: (member) => {
      member.renewTls(this.#tls);
    },
    onCount: (member, id, question) => {
      void this.#answerCount(member, id, question);
    },
    onKeys: ({ settings }, keys) => {
      this.#keys.keep(settings.authJwksUrl, keys, performance.now());
    },
    // As the listener of a single process says it.
    onRefused: onceASecond(({ pid }) => {
      this.#logger.error(
        { worker: pid },
        'a connection could not be taken: the worker has no descriptor left',
      );
    }),
    onUnreachable: ({ pid }, error) => {
      this.#logger.error({ err: error, worker: pid }, 'a worker cannot be reached');
    },
    onGone: (member) => {
      this.#members.delete(member);
      if (member.lastReport !== undefined) {
        this.#counted.add(new Figures(member.lastReport.figures));
        this.#failures = joinFailures([member.lastReport.failures, this.#failures]);
      }
    },
    onExit: (member, code, signal) => {
      this.#onExit(member, code, signal);
    },
  };

  constructor(
    settings: Settings,
    sharing: PortSharing,
    { logger, output }: Log,
    tls: TlsInForce,
    passedSockets: number,
  ) {
    this.#tls = tls;
    this.#passed = Array.from({ length: passedSockets }, (_, index) => firstPassed + index);
    this.#settings = settings;
    this.#sharing = sharing;
    this.#logger = logger;
    output.onDrop = (lines) => {
      this.#counted.recordDroppedLogLines(lines);
    };
  }

  /** @internal */
  async start(): Promise<void> {
    this.#heartbeat = setInterval(() => {
      this.#lookForHanging();
    }, heartbeatMs);
    this.url = await this.#launch();
    await Promise.all(Array.from({ length: this.#settings.workers - 1 }, async () => await this.#launch()));
    this.#phase = 'running';
    this.#reconcile();
  }

  /**
   * Replaces every worker, one by one and without losing a call, by one with `settings` and `tls`; each takes over as it
   * is ready. Resolves when the last old worker has gone. Rejects with a StartError when a new worker does not start; then
   * the old settings come back.
   */
  async reload(settings: Settings, tls: TlsInForce): Promise<{ readonly finished: Promise<void> }> {
    if (this.#phase !== 'running') {
      return { finished: Promise.resolve() };
    }
    this.#logger.info({ workers: settings.workers }, 'SIGHUP: replacing the workers one by one');
    const previous = { settings: this.#settings, tls: this.#tls };
    const reload: Reload = { ...Promise.withResolvers<undefined>(), previous };
    this.#reload = reload;
    this.#settings = { ...settings, port: this.#settings.port };
    this.#tls = tls;
    // What could not live with the old settings may with the new ones.
    this.#endPause();
    this.#reconcile();
    await reload.promise;
    return { finished: Promise.resolve() };
  }

  // One that starts meanwhile gets them when it is ready.
  renewTls(tls: TlsInForce): void {
    this.#tls = tls;
    for (const member of this.#members) {
      member.renewTls(tls);
    }
  }

  readonly reports = async (request: ReportRequest): Promise<readonly Report[]> => {
    const members = [...this.#members].filter(({ isReady }) => isReady);
    const answers = await Promise.all(members.map((member) => member.report(request)));
    const [first, ...others] = answers.filter((report) => report !== undefined);
    if (first === undefined) {
      return [];
    }
    // Those that did not answer are no part of it, but what they had counted is.
    const silent = members
      .filter((member, index) => answers[index] === undefined && this.#members.has(member))
      .flatMap(({ lastReport }) => lastReport ?? []);
    const counted = addFigures([{ figures: this.#counted.toJSON() }, ...silent, first]);
    const failures = joinFailures([first.failures, this.#failures, ...silent.map((each) => each.failures)]);
    return [{ ...first, figures: counted.toJSON(), failures }, ...others];
  };

  /** A worker did not end as it should have: with the exit code 0, when it was told to. */
  readonly hasFailed = (): boolean => this.#hasFailed;

  beginDrain(): void {
    this.#phase = 'stopping';
    clearInterval(this.#heartbeat);
    this.#endPause();
    this.#endReload();
    for (const member of this.#members) {
      member.isLeaving = true;
      member.send({ kind: 'begin-drain' });
    }
  }

  async finishDrain(signal: AbortSignal): Promise<void> {
    this.#tellAll({ kind: 'finish-drain' });
    void untilAborted(signal).then(() => {
      this.#tellAll({ kind: 'cut' });
    });
    await this.#allExited();
  }

  async stop(): Promise<void> {
    this.beginDrain();
    this.#tellAll({ kind: 'cut' });
    const callOff = startDeadline(killTimeoutMs, () => {
      for (const member of this.#members) {
        this.#kill(member, 'a worker does not end: killing it');
      }
    });
    await this.#allExited();
    callOff();
  }

  async #allExited(): Promise<void> {
    await Promise.all(Array.from(this.#members, ({ exited }) => exited));
  }

  #tellAll(message: ToWorker): void {
    for (const member of this.#members) {
      member.send(message);
    }
  }

  // Compares what there is with what should be and takes the next step; whoever changes one of them calls it. Once
  // all have started, nothing else starts or ends a worker: so reloads, deaths, and deaths in a reload never add up.
  #reconcile(): void {
    if (this.#phase !== 'running') {
      return;
    }
    const wanted = this.#settings.workers;
    const staying = [...this.#members].filter(({ isLeaving }) => !isLeaving);
    const outdated = staying.filter(({ settings }) => settings !== this.#settings);
    if (staying.length < wanted) {
      if (this.#pause === undefined) {
        for (let missing = wanted - staying.length; missing > 0; missing -= 1) {
          void this.#launchNext();
        }
      }
      return;
    }
    // One by one: the next step comes when nobody starts and nobody leaves.
    if (staying.length < this.#members.size || staying.some(({ isReady }) => !isReady)) {
      return;
    }
    const [first] = staying;
    const [next = first] = outdated;
    if (outdated.length > 0 && (staying.length === wanted || outdated.length === staying.length)) {
      // Not one of them goes before a new one has shown that it can take over.
      void this.#launchNext();
    } else if (staying.length > wanted && next !== undefined) {
      this.#retire(next);
    } else {
      this.#endReload();
    }
  }

  #endReload(): void {
    this.#reload?.resolve(undefined);
    this.#reload = undefined;
  }

  async #launchNext(): Promise<void> {
    const settings = this.#settings;
    try {
      this.url = await this.#launch();
    } catch (error) {
      // With settings that have gone out of force meanwhile, it does not matter.
      if (this.#phase === 'running' && settings === this.#settings) {
        this.#onLaunchFailure(error);
      }
    }
    this.#reconcile();
  }

  #onLaunchFailure(error: unknown): void {
    if (this.#reload === undefined) {
      this.#earlyDeaths += 1;
      this.#logger.error({ err: error }, 'a worker could not be replaced: trying again');
      this.#startPause();
      return;
    }
    // Whatever has been replaced already goes back, by the same steps.
    ({ settings: this.#settings, tls: this.#tls } = this.#reload.previous);
    this.#reload.reject(error);
    this.#reload = undefined;
  }

  // Starts one worker and resolves with its address when it takes calls; rejects with a StartError.
  async #launch(): Promise<string> {
    for (;;) {
      const outcome = await this.#fork();
      if (outcome.kind === 'ready') {
        return outcome.url;
      }
      if (outcome.kind === 'failed' || this.#phase === 'stopping') {
        throw new StartError(outcome.message, undefined);
      }
    }
  }

  async #fork(): Promise<StartOutcome> {
    const settings = this.#settings;
    try {
      const keys = this.#keys.find(settings.authJwksUrl, performance.now());
      const start = { sharing: this.#sharing, tls: this.#tls, passed: this.#passed, keys };
      const member = new Member(settings, start, this.#observer);
      this.#members.add(member);
      return await member.started;
    } catch (error) {
      return { kind: 'failed', message: `a worker could not be started: ${String(error)}` };
    }
  }

  // Loaded with the first question: without a rate limit there is none.
  async #answerCount(member: Member, id: number, question: Question): Promise<void> {
    const { createJoinedCount } = await loadRateLimit();
    this.#count ??= createJoinedCount();
    member.send({ kind: 'counted', id, answer: this.#count.answer(question, performance.now()) });
  }

  #onExit(member: Member, code: number | null, signal: string | null): void {
    // A worker that a signal to the whole group ends as it starts is started again.
    if (!member.isLeaving && (member.isReady || !isForGroup(signal))) {
      this.#counted.recordWorkerDeath(causeOfDeath(signal, member.isFrozen));
    }
    if (!member.isReady) {
      // Whoever launched it knows, and nothing of a client's was cut.
      return;
    }
    const ended = { worker: member.pid, code, signal };
    if (!member.isLeaving) {
      this.#earlyDeaths = performance.now() - member.startedAt < settledMs ? this.#earlyDeaths + 1 : 0;
      this.#logger.error(ended, `a worker ended with ${describeEnd(code, signal)}: replacing it`);
      this.#startPause();
    } else if (code !== 0) {
      this.#hasFailed ||= this.#phase === 'stopping';
      this.#logger.warn(
        ended,
        `a worker that was to finish its calls ended with ${describeEnd(code, signal)}`,
      );
    }
    this.#reconcile();
  }

  // None the first time, then longer and longer ones: a worker that cannot live must not eat the machine.
  #startPause(): void {
    if (this.#phase !== 'running') {
      return;
    }
    const delayMs =
      this.#earlyDeaths === 0 ? 0 : Math.min(backOffMaxMs, backOffMinMs * 2 ** (this.#earlyDeaths - 1));
    this.#endPause();
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      this.#reconcile();
    }, delayMs);
  }

  #endPause(): void {
    clearTimeout(this.#pause);
    this.#pause = undefined;
  }

  #retire(member: Member): void {
    member.isLeaving = true;
    member.send({ kind: 'begin-drain' });
    member.send({ kind: 'finish-drain' });
    const callOff = startDeadline(member.settings.shutdownTimeoutMs + killTimeoutMs, () => {
      this.#kill(member, 'a worker that was to be replaced does not end: killing it');
    });
    void member.exited.then(callOff);
  }

  // One that hangs takes connections and answers none; killed, it is replaced like any that dies.
  #lookForHanging(): void {
    for (const member of this.#members) {
      const missedBeats = member.isLeaving ? undefined : member.beat();
      if (missedBeats !== undefined) {
        member.isFrozen = true;
        this.#kill(
          member,
          `a worker has not answered for ${(missedBeats * heartbeatMs) / 1_000} s: killing it`,
        );
      }
    }
  }

  #kill(member: Member, why: string): void {
    this.#logger.error({ worker: member.pid }, why);
    member.kill();
  }
}
