// Runs several worker processes (worker.ts) on one port. Starts and watches them, replaces workers that die, and on a
// reload replaces all workers one by one. The primary process runs this code and serves no clients.

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
// A worker's death counts as early if the worker lived for less than this time.
const settledMs = 10_000;
// Time that a worker has to exit after the message `cut`.
const killTimeoutMs = 500;
const heartbeatMs = 1_000;
// The first passed descriptor in a worker, after standard input, output, error and the channel of node:cluster.
const firstPassed = 4;

/** A reload in progress. Resolved when every worker is new or the pool is stopping. */
interface Reload extends PromiseWithResolvers<undefined> {
  /** The settings and certificates that are restored if the reload fails. */
  readonly previous: { readonly settings: Settings; readonly tls: TlsInForce };
}

/**
 * Starts `settings.workers` workers with `tls`. They share the listening sockets `passed` if there are any. Rejects
 * with a StartError, after stopping all workers.
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
  // The port is checked first, because with `reuse-port` the OS silently lets two gateways share it [D31]. Port 0
  // becomes a fixed port here, which all workers and their replacements use.
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

// With a listening socket per worker, a reload loses the connections in the queue of a closing socket, unless the OS moves
// them to the queue of another worker. Linux moves them since 5.14, if `tcp_migrate_req` is 1; the default is 0. `auto`
// uses a socket per worker only if Linux moves the connections.
function findSharing(): PortSharing {
  try {
    return readFileSync('/proc/sys/net/ipv4/tcp_migrate_req', 'latin1').trim() === '1' ? 'reuse-port' : 'cluster';
  } catch {
    // Not Linux, or Linux before 5.14.
    return 'cluster';
  }
}

// Returns the configured port, or a free one if it is 0. Rejects with a StartError if the port is in use.
async function findPort(settings: Settings, logger: Logger): Promise<number> {
  // A client may connect meanwhile. Without this listener its socket would stay open, and its errors would end this
  // process.
  const server = createServer((socket) => socket.destroy());
  const listener = await openListener(server, 'clients', settings, logger);
  await listener.close();
  return listener.port;
}

class WorkerPool implements ClientService {
  readonly hasWorkers = true;
  readonly #logger: Logger;
  readonly #sharing: PortSharing;
  readonly #members = new Set<Member>();
  // The figures and failures of ended workers, kept because counters must not fall when a worker is replaced.
  readonly #counted = new Figures();
  #failures: readonly Failure[] = [];
  // The counts of the rate limit for all workers together.
  #count: ReturnType<RateLimitPart['createJoinedCount']> | undefined;
  readonly #keys = new KeptKeys();
  #heartbeat: NodeJS.Timeout | undefined;
  // Descriptors that the passed sockets have in the workers. This process keeps the sockets open without listening, so
  // they outlive any worker.
  readonly #passed: readonly number[];
  #settings: Settings;
  #tls: TlsInForce;
  url = '';
  #earlyDeaths = 0;
  #phase: 'starting' | 'running' | 'stopping' = 'starting';
  #hasFailed = false;
  #reload: Reload | undefined;
  // While this timer is set, missing workers are not started.
  #pause: NodeJS.Timeout | undefined;

  readonly #observer: MemberObserver = {
    onReady: (member) => member.renewTls(this.#tls),
    onCount: (member, id, question) => {
      void this.#answerCount(member, id, question);
    },
    onKeys: ({ settings }, keys) => this.#keys.keep(settings.authJwksUrl, keys, performance.now()),
    // Logged at most once a second, like a failed accept in a single process (openListener()).
    onRefused: onceASecond(({ pid }) => {
      this.#logger.error({ worker: pid }, 'could not accept a connection: the worker has no file descriptor left');
    }),
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
    output.onDrop = (lines) => this.#counted.count('log line dropped', lines);
  }

  /** @internal */
  async start(): Promise<void> {
    this.#heartbeat = setInterval(() => this.#lookForHanging(), heartbeatMs);
    this.url = await this.#launch();
    await Promise.all(Array.from({ length: this.#settings.workers - 1 }, async () => await this.#launch()));
    this.#phase = 'running';
    this.#reconcile();
  }

  /**
   * Replaces the workers, one after the other, by workers with `settings` and `tls`, without losing a call. Resolves when
   * the last old worker has ended. If a new worker does not start, rejects with a StartError and restores the old settings.
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
    // Workers that kept failing with the old settings may work with the new settings.
    this.#endPause();
    this.#reconcile();
    await reload.promise;
    return { finished: Promise.resolve() };
  }

  // A worker that is still starting gets the certificates when it is ready.
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
    // A worker that did not answer has no report, but its last figures still count.
    const silent = members
      .filter((member, index) => answers[index] === undefined && this.#members.has(member))
      .flatMap(({ lastReport }) => lastReport ?? []);
    const counted = addFigures([{ figures: this.#counted.toJSON() }, ...silent, first]);
    const failures = joinFailures([first.failures, this.#failures, ...silent.map((each) => each.failures)]);
    return [{ ...first, figures: counted.toJSON(), failures }, ...others];
  };

  /** True if a worker ended by a signal, or with an exit code other than 0, while the pool was stopping. */
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
    void untilAborted(signal).then(() => this.#tellAll({ kind: 'cut' }));
    await this.#allExited();
  }

  async stop(): Promise<void> {
    this.beginDrain();
    this.#tellAll({ kind: 'cut' });
    const callOff = startDeadline(killTimeoutMs, () => {
      for (const member of this.#members) {
        this.#kill(member, 'a worker does not exit: killing it');
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

  // Compares the workers with the settings and takes the next step. Called after each change of workers or settings.
  // Once the first workers have started, only this method starts or retires workers. So a reload and the death of a
  // worker do not interfere.
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
    // Workers are replaced one by one, so wait until no worker is starting or leaving.
    if (staying.length < this.#members.size || staying.some(({ isReady }) => !isReady)) {
      return;
    }
    const [first] = staying;
    const [next = first] = outdated;
    if (outdated.length > 0 && (staying.length === wanted || outdated.length === staying.length)) {
      // A new worker must serve before the first old one is retired.
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
      // The failure does not matter if a reload has replaced these settings meanwhile.
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
    // `#reconcile` then replaces the workers that already have the new settings by workers with the old settings.
    ({ settings: this.#settings, tls: this.#tls } = this.#reload.previous);
    this.#reload.reject(error);
    this.#reload = undefined;
  }

  // Starts one worker. If a signal to the process group ends the worker during its start, starts another. Resolves with
  // the worker's address; rejects with a StartError.
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

  // Loads the rate limit when the first question arrives. Workers send questions only if a rate limit is set.
  async #answerCount(member: Member, id: number, question: Question): Promise<void> {
    const { createJoinedCount } = await loadRateLimit();
    this.#count ??= createJoinedCount();
    member.send({ kind: 'counted', id, answer: this.#count.answer(question, performance.now()) });
  }

  #onExit(member: Member, code: number | null, signal: string | null): void {
    // If a signal to the process group ends a starting worker, this is not counted as a death. #launch() starts another.
    if (!member.isLeaving && (member.isReady || !isForGroup(signal))) {
      this.#counted.count(`death ${causeOfDeath(signal, member.isFrozen)}`);
    }
    if (!member.isReady) {
      // The worker was still starting, so #launch() handles its end, and no client was affected.
      return;
    }
    const ended = { worker: member.pid, code, signal };
    if (!member.isLeaving) {
      this.#earlyDeaths = performance.now() - member.startedAt < settledMs ? this.#earlyDeaths + 1 : 0;
      this.#logger.error(ended, `a worker ended with ${describeEnd(code, signal)}: replacing it`);
      this.#startPause();
    } else if (code !== 0) {
      this.#hasFailed ||= this.#phase === 'stopping';
      this.#logger.warn(ended, `a draining worker ended with ${describeEnd(code, signal)}`);
    }
    this.#reconcile();
  }

  // Starts the pause before the next worker is started. After a worker that lived at least `settledMs` there is no pause.
  // Each early death in a row doubles the pause, up to `backOffMaxMs`. Otherwise workers that keep failing would use all
  // CPU time.
  #startPause(): void {
    if (this.#phase !== 'running') {
      return;
    }
    const delayMs = this.#earlyDeaths === 0 ? 0 : Math.min(backOffMaxMs, backOffMinMs * 2 ** (this.#earlyDeaths - 1));
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
    const callOff = startDeadline(member.settings.shutdownTimeoutMs + killTimeoutMs, () =>
      this.#kill(member, 'a replaced worker does not exit: killing it'),
    );
    void member.exited.then(callOff);
  }

  // Kills hanging workers, which accept connections without answering. They are replaced like any worker that dies.
  #lookForHanging(): void {
    for (const member of this.#members) {
      const missedBeats = member.isLeaving ? undefined : member.beat();
      if (missedBeats !== undefined) {
        member.isFrozen = true;
        this.#kill(member, `a worker has not answered for ${(missedBeats * heartbeatMs) / 1_000} s: killing it`);
      }
    }
  }

  #kill(member: Member, why: string): void {
    this.#logger.error({ worker: member.pid }, why);
    member.kill();
  }
}
