// Several worker processes that serve clients on one port: started, watched, replaced when they die, and one
// by one on a reload. It answers no client itself; the workers are worker.ts.

import cluster, { type Worker } from 'node:cluster';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';

import { joinFailures, type Failure } from '../../figures/failures.ts';
import { Figures } from '../../figures/figures.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import { causeOfDeath } from '../../figures/worker-deaths.ts';
import { startDeadline } from '../service/deadline.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import { listen, type PortSharing } from '../../core/hosts/common/listen.ts';
import type { Log, Logger } from '../log/log.ts';
import type { ClientService } from '../service/services.ts';
import { listenNames, type Settings } from '../settings/settings.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Question, RateLimitPart } from '../../core/guards/options/ports.ts';
import { loadRateLimit } from '../../core/guards/parts.ts';
import { KeptKeys } from '../service/keeper.ts';
import { plainSettings, type FromWorker, type ToWorker } from './messages.ts';
import { closeUntakenConnections } from './untaken-connections.ts';

const reportTimeoutMs = 1_000;
const backOffMinMs = 100;
const backOffMaxMs = 10_000;
// A worker that has lived so long did not die of how it was started.
const settledMs = 10_000;
// What is told to cut everything has this long to end by itself.
const killTimeoutMs = 500;
// Every worker is asked how it is at each heartbeat. One that has left so many in a row unanswered hangs: nothing
// that it does takes a tenth of that; only its start may, on a busy machine. Counted in our own heartbeats and not by
// the clock, which goes on while this process is stopped.
const heartbeatMs = 1_000;
const missedBeatsMax = 10;
const missedStartBeatsMax = 60;
// Node cannot listen for a signal in its first moments: one for the whole process group may end a worker that starts.
const groupSignals: ReadonlySet<string | null> = new Set(['SIGTERM', 'SIGINT', 'SIGHUP']);
// What a process said before it ended is read within a turn or two.
const lastTurnsMax = 100;
const refusalReportMs = 1_000;
// Behind input, outputs and the channel of node:cluster.
const firstPassed = 4;

interface Member {
  readonly worker: Worker;
  /** What it was started with: one whose settings are no longer those in force is replaced. */
  readonly settings: Settings;
  readonly startedAt: number;
  /** What it was given last. */
  tls: TlsInForce;
  readonly exited: Promise<void>;
  /** What it last said of itself: of a worker that has gone this is what stays. */
  lastReport: Report | undefined;
  missedBeats: number;
  /** It has said that it takes calls. */
  isReady: boolean;
  /** It was told to stop: its end is no surprise. */
  isLeaving: boolean;
  /** It hung and was killed. */
  isFrozen: boolean;
}

/** How the start of a worker ended. */
type StartOutcome =
  | { readonly kind: 'ready'; readonly url: string }
  | { readonly kind: 'failed'; readonly message: string }
  /** Ended by a signal that was not meant for it. */
  | { readonly kind: 'interrupted'; readonly message: string };

interface Reload {
  /** What comes back when it has to be given up. */
  readonly previous: { readonly settings: Settings; readonly tls: TlsInForce };
  /** Undefined: every worker is a new one, or the pool is stopping. */
  readonly end: (error: unknown) => void;
}

/**
 * Starts `settings.workers` workers with `tls`, which share the listening sockets `passed` where there are any; rejects
 * with a StartError, all of them stopped again.
 */
export async function startPool(
  settings: Settings,
  log: Log,
  tls: TlsInForce,
  passed: readonly number[] = [],
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
  const port = passed.length > 0 ? settings.port : await findPort(settings);
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
async function findPort({ host, port }: Settings): Promise<number> {
  const listener = await listen(createServer(), host, port, listenNames('host', 'port'));
  await listener.close();
  return listener.port;
}

class WorkerPool implements ClientService {
  readonly hasWorkers = true;
  readonly #logger: Logger;
  readonly #sharing: PortSharing;
  readonly #members = new Set<Member>();
  readonly #awaitedReports = new Map<number, (report: Report | undefined) => void>();
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
  #url = '';
  #nextReportId = 0;
  #earlyDeaths = 0;
  #phase: 'starting' | 'running' | 'stopping' = 'starting';
  #hasFailed = false;
  #reload: Reload | undefined;
  #refusalReportedAt = -Infinity;
  // Until it fires no missing worker is started.
  #pause: NodeJS.Timeout | undefined;

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

  get url(): string {
    return this.#url;
  }

  /** @internal */
  async start(): Promise<void> {
    this.#heartbeat = setInterval(() => {
      this.#lookForHanging();
    }, heartbeatMs);
    this.#url = await this.#launch();
    await Promise.all(Array.from({ length: this.#settings.workers - 1 }, async () => await this.#launch()));
    this.#phase = 'running';
    this.#reconcile();
  }

  /**
   * Replaces every worker, one by one and without losing a call, by one with `settings` and `tls`; each takes over as it
   * is ready. To be called again only when it has ended: when the last old worker has gone. Rejects with a StartError when a
   * new worker does not start; then the old settings come back.
   */
  async reload(settings: Settings, tls: TlsInForce): Promise<void> {
    if (this.#phase !== 'running') {
      return;
    }
    this.#logger.info({ workers: settings.workers }, 'SIGHUP: replacing the workers one by one');
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    this.#reload = {
      previous: { settings: this.#settings, tls: this.#tls },
      end: (error) => {
        if (error === undefined) {
          resolve(undefined);
        } else {
          reject(error);
        }
      },
    };
    this.#settings = { ...settings, port: this.#settings.port };
    this.#tls = tls;
    // What could not live with the old settings may with the new ones.
    this.#endPause();
    this.#reconcile();
    await promise;
  }

  // One that starts meanwhile gets them when it is ready.
  renewTls(tls: TlsInForce): void {
    this.#tls = tls;
    for (const member of this.#members) {
      this.#renewTlsOf(member);
    }
  }

  #renewTlsOf(member: Member): void {
    if (member.isReady && member.tls !== this.#tls) {
      member.tls = this.#tls;
      send(member, { kind: 'renew-tls', tls: this.#tls });
    }
  }

  readonly reports = async (request: ReportRequest): Promise<readonly Report[]> => {
    const members = [...this.#members].filter(({ isReady }) => isReady);
    const answers = await Promise.all(
      members.map(async (member) => ({ member, report: await this.#askReport(member, request) })),
    );
    // Those that did not answer are no part of it, but what they had counted is.
    const counted = new Figures(this.#counted.toJSON());
    const failures = [this.#failures];
    for (const { member, report } of answers) {
      if (report === undefined && member.lastReport !== undefined && this.#members.has(member)) {
        counted.add(new Figures(member.lastReport.figures));
        failures.push(member.lastReport.failures);
      }
    }
    const [first, ...others] = answers.flatMap(({ report }) => (report === undefined ? [] : [report]));
    if (first === undefined) {
      return [];
    }
    counted.add(new Figures(first.figures));
    return [
      { ...first, figures: counted.toJSON(), failures: joinFailures([first.failures, ...failures]) },
      ...others,
    ];
  };

  /** A worker did not end as it should have: with the exit code 0, when it was told to. */
  readonly hasFailed = (): boolean => this.#hasFailed;

  beginDrain(): void {
    this.#phase = 'stopping';
    clearInterval(this.#heartbeat);
    this.#endPause();
    this.#endReload(undefined);
    for (const member of this.#members) {
      member.isLeaving = true;
      send(member, { kind: 'begin-drain' });
    }
  }

  async finishDrain(signal: AbortSignal): Promise<void> {
    this.#tellAll({ kind: 'finish-drain' });
    const onAbort = (): void => {
      this.#tellAll({ kind: 'cut' });
    };
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) {
      onAbort();
    }
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
    await Promise.all(
      [...this.#members].map(async ({ exited }) => {
        await exited;
      }),
    );
  }

  #tellAll(message: ToWorker): void {
    for (const member of this.#members) {
      send(member, message);
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
      this.#endReload(undefined);
    }
  }

  #endReload(error: unknown): void {
    this.#reload?.end(error);
    this.#reload = undefined;
  }

  async #launchNext(): Promise<void> {
    const settings = this.#settings;
    try {
      this.#url = await this.#launch();
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
    this.#endReload(error);
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
    let worker: Worker;
    try {
      worker = cluster.fork();
    } catch (error) {
      return { kind: 'failed', message: `a worker could not be started: ${String(error)}` };
    }
    const exited = Promise.withResolvers<undefined>();
    const outcome = Promise.withResolvers<StartOutcome>();
    const member: Member = {
      worker,
      settings: this.#settings,
      startedAt: performance.now(),
      tls: this.#tls,
      exited: exited.promise.then(() => undefined),
      lastReport: undefined,
      missedBeats: 0,
      isReady: false,
      isLeaving: false,
      isFrozen: false,
    };
    this.#members.add(member);
    const closeUntaken = closeUntakenConnections(worker, () => {
      this.#reportRefused(member);
    });
    worker.on('message', (message: FromWorker) => {
      member.missedBeats = 0;
      switch (message.kind) {
        case 'ready':
          member.isReady = true;
          this.#renewTlsOf(member);
          outcome.resolve(message);
          break;
        case 'start-error':
          outcome.resolve({ kind: 'failed', message: message.message });
          break;
        case 'count':
          void this.#answerCount(member, message.id, message.question);
          break;
        case 'keys':
          this.#keys.keep(member.settings.authJwksUrl, message.keys, performance.now());
          break;
        case 'reports':
          member.lastReport = message.reports[0] ?? member.lastReport;
          this.#awaitedReports.get(message.id)?.(message.reports[0]);
          break;
      }
    });
    const end = (kind: 'failed' | 'interrupted', message: string): void => {
      this.#members.delete(member);
      closeUntaken();
      if (member.lastReport !== undefined) {
        this.#counted.add(new Figures(member.lastReport.figures));
        this.#failures = joinFailures([member.lastReport.failures, this.#failures]);
      }
      outcome.resolve({ kind, message });
      exited.resolve(undefined);
    };
    worker.on('error', (error) => {
      if (worker.process.pid === undefined) {
        // It never was: the system has no process or no descriptor left for it.
        end('failed', `a worker could not be started: ${error.message}`);
      } else {
        this.#logger.error({ err: error, worker: worker.process.pid }, 'a worker cannot be reached');
      }
    });
    worker.once('exit', (code, signal) => {
      void lastWordsOf(worker).then(() => {
        const kind = groupSignals.has(signal) ? 'interrupted' : 'failed';
        end(kind, `a worker ended as it started, with ${describeEnd(code, signal)}`);
        this.#onExit(member, code, signal);
      });
    });
    send(member, {
      kind: 'start',
      settings: plainSettings(shareOf(member.settings)),
      sharing: this.#sharing,
      tls: member.tls,
      passed: this.#passed,
      keys: this.#keys.find(member.settings.authJwksUrl, performance.now()),
    });
    return await outcome.promise;
  }

  // Loaded with the first question: without a rate limit there is none.
  async #answerCount(member: Member, id: number, question: Question): Promise<void> {
    const { createJoinedCount } = await loadRateLimit();
    this.#count ??= createJoinedCount();
    send(member, { kind: 'counted', id, answer: this.#count.answer(question, performance.now()) });
  }

  #onExit(member: Member, code: number | null, signal: string | null): void {
    // A worker that a signal to the whole group ends as it starts is started again.
    if (!member.isLeaving && (member.isReady || !groupSignals.has(signal))) {
      this.#counted.recordWorkerDeath(causeOfDeath(signal, member.isFrozen));
    }
    if (!member.isReady) {
      // Whoever launched it knows, and nothing of a client's was cut.
      return;
    }
    const ended = { worker: member.worker.process.pid, code, signal };
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

  // As the listener of a single process says it.
  #reportRefused({ worker }: Member): void {
    const now = performance.now();
    if (now - this.#refusalReportedAt >= refusalReportMs) {
      this.#refusalReportedAt = now;
      this.#logger.error(
        { worker: worker.process.pid },
        'a connection could not be taken: the worker has no descriptor left',
      );
    }
  }

  // None the first time, then longer and longer ones: a worker that cannot live must not eat the machine.
  #startPause(): void {
    if (this.#phase !== 'running') {
      return;
    }
    const delayMs =
      this.#earlyDeaths === 0 ? 0 : Math.min(backOffMaxMs, backOffMinMs * 2 ** (this.#earlyDeaths - 1));
    clearTimeout(this.#pause);
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
    send(member, { kind: 'begin-drain' });
    send(member, { kind: 'finish-drain' });
    const callOff = startDeadline(member.settings.shutdownTimeoutMs + killTimeoutMs, () => {
      this.#kill(member, 'a worker that was to be replaced does not end: killing it');
    });
    void member.exited.then(callOff);
  }

  // Undefined when it does not answer in time.
  async #askReport(member: Member, request: ReportRequest): Promise<Report | undefined> {
    const id = this.#nextReportId;
    this.#nextReportId += 1;
    const { promise, resolve } = Promise.withResolvers<Report | undefined>();
    this.#awaitedReports.set(id, resolve);
    const callOff = startDeadline(reportTimeoutMs, () => {
      resolve(undefined);
    });
    send(member, { kind: 'report', id, request });
    const report = await Promise.race([promise, member.exited.then(() => undefined)]);
    callOff();
    this.#awaitedReports.delete(id);
    return report;
  }

  // One that hangs takes connections and answers none; killed, it is replaced like any that dies.
  #lookForHanging(): void {
    for (const member of this.#members) {
      if (member.isLeaving) {
        continue;
      }
      const beatsMax = member.isReady ? missedBeatsMax : missedStartBeatsMax;
      if (member.missedBeats >= beatsMax) {
        member.isFrozen = true;
        this.#kill(member, `a worker has not answered for ${(beatsMax * heartbeatMs) / 1_000} s: killing it`);
      } else {
        member.missedBeats += 1;
        if (member.isReady) {
          void this.#askReport(member, { withProcessMetrics: false, probesBackend: false });
        }
      }
    }
  }

  #kill({ worker }: Member, why: string): void {
    this.#logger.error({ worker: worker.process.pid }, why);
    worker.process.kill('SIGKILL');
  }
}

// The limits are those of the whole gateway: each worker has its share.
function shareOf(settings: Settings): Settings {
  const share = (total: number): number => Math.ceil(total / settings.workers);
  return {
    ...settings,
    connectionsMax: share(settings.connectionsMax),
    inFlightMax: share(settings.inFlightMax),
    bufferedBytesMax: share(settings.bufferedBytesMax),
  };
}

function send({ worker }: Member, message: ToWorker): void {
  if (worker.isConnected()) {
    // A worker that goes meanwhile says so by its exit.
    worker.send(message, () => undefined);
  }
}

function describeEnd(code: number | null, signal: string | null): string {
  return signal === null ? `exit code ${code ?? 0}` : `signal ${signal}`;
}

// What it said last may still be in the channel when its end is known; an end of the channel comes last.
async function lastWordsOf(worker: Worker): Promise<void> {
  for (let turns = 0; worker.isConnected() && turns < lastTurnsMax; turns += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
