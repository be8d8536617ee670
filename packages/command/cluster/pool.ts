// Runs several worker processes (worker.ts) on one port: starts and watches them, and replaces workers that die. The
// primary process runs this code and serves no clients.

import { fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';

import type { Question, RateLimitPart } from '../../core/guards/options/ports.ts';
import { loadRateLimit } from '../../core/guards/parts.ts';
import type { Listener, PortSharing } from '../../core/hosts/common/listen.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import { joinFailures, type Failure } from '../../figures/failures.ts';
import { causeOfDeath, Figures } from '../../figures/figures.ts';
import { addFigures } from '../../figures/history.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { Log, Logger } from '../log/log.ts';
import { createKeeper } from '../service/keeper.ts';
import { startDeadline, untilAborted } from '../service/lifecycle.ts';
import { checkPort, openListener } from '../service/listener.ts';
import type { ClientService } from '../service/parts.ts';
import type { Settings } from '../settings/settings.ts';
import { describeEnd, isForGroup, Member, type MemberObserver, type StartOutcome } from './member.ts';
import type { ToWorker } from './messages.ts';

const backOffMinMs = 100;
const backOffMaxMs = 10_000;
// A worker's death counts as early if the worker lived for less than this time.
const settledMs = 10_000;
// Time that a worker has to exit after the message `cut`.
const killTimeoutMs = 500;
const heartbeatMs = 1_000;
// The first passed descriptor in a worker. 0 to 3 are standard input, output, error and the channel to this process.
const firstPassed = 4;

/**
 * Starts `settings.workers` workers with `tls`. If `passed` has listening sockets, all workers share them. If the start
 * fails, stops all workers and rejects with a StartError.
 */
export async function startPool(
  settings: Settings,
  log: Log,
  tls: TlsInForce,
  passed: readonly number[],
): Promise<WorkerPool> {
  const sharing = settings.portSharing === 'auto' ? findSharing() : settings.portSharing;
  const pool = new WorkerPool(settings, sharing, log, tls, passed);
  try {
    await pool.start();
  } catch (error) {
    await pool.stop();
    throw error;
  }
  return pool;
}

// If each worker has its own listening socket, the connections in the socket's queue are lost when the worker ends,
// unless the OS moves them to another worker's queue. Linux moves them since 5.14, if `tcp_migrate_req` is 1; the default
// is 0. `auto` uses a socket per worker only if Linux moves the connections.
function findSharing(): PortSharing {
  try {
    return readFileSync('/proc/sys/net/ipv4/tcp_migrate_req', 'latin1').trim() === '1' ? 'reuse-port' : 'cluster';
  } catch {
    // The system is not Linux, or is Linux before 5.14.
    return 'cluster';
  }
}

class WorkerPool implements ClientService {
  readonly hasWorkers = true;
  readonly #logger: Logger;
  readonly #sharing: PortSharing;
  // The workers, in the order in which they get connections.
  readonly #members = new Set<Member>();
  // Accepts the connections of clients, if `#sharing` is `cluster`.
  readonly #server = createServer({ pauseOnConnect: true, noDelay: true }, (socket) => this.#accept(socket));
  #listener: Listener | undefined;
  // Connections that wait until a worker can receive them.
  readonly #waiting: Socket[] = [];
  // The figures and failures of ended workers, kept because counters must not fall when a worker is replaced.
  readonly #counted = new Figures();
  #failures: readonly Failure[] = [];
  // The counts of the rate limit for all workers together.
  #count: ReturnType<RateLimitPart['createJoinedCount']> | undefined;
  readonly #keys = createKeeper();
  #heartbeat: NodeJS.Timeout | undefined;
  // This process keeps the passed sockets open without accepting connections, so they outlive any worker.
  readonly #passed: readonly number[];
  #settings: Settings;
  #tls: TlsInForce;
  #url = '';
  #earlyDeaths = 0;
  #phase: 'starting' | 'running' | 'stopping' = 'starting';
  #hasFailed = false;
  // While this timer is set, missing workers are not started.
  #pause: NodeJS.Timeout | undefined;

  readonly #observer: MemberObserver = {
    // Certificates or settings may have changed while the worker was starting.
    onReady: (member) => {
      member.renewTls(this.#tls);
      void this.#bringUpToDate(member);
    },
    onCount: (member, id, question) => {
      void this.#answerCount(member, id, question);
    },
    onKeys: (jwksUrl, keys) => this.#keys.keepKeys(jwksUrl, keys),
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
    passed: readonly number[],
  ) {
    this.#tls = tls;
    this.#passed = passed;
    this.#settings = settings;
    this.#sharing = sharing;
    this.#logger = logger;
    output.onDrop = (lines) => this.#counted.count('log line dropped', lines);
  }

  get url(): string {
    return this.#url.replace(/^https?/, this.#tls.clients === undefined ? 'http' : 'https');
  }

  /** @internal */
  async start(): Promise<void> {
    const hasPort = this.#passed.length === 0;
    const isAnyPort = hasPort && this.#settings.port === 0;
    // With `reuse-port` this is the only check, because the OS silently lets two gateways share a port [D31].
    if (hasPort && !isAnyPort) await checkPort('clients', this.#settings, this.#logger);
    this.#heartbeat = setInterval(() => this.#lookForHanging(), heartbeatMs);
    await this.#launch();
    // Opened only now, so that the OS refuses connections until a worker is ready.
    if (hasPort && this.#sharing === 'cluster') {
      this.#listener = await openListener(this.#server, 'clients', this.#settings, this.#logger);
      this.#url = this.#listener.url;
    }
    // The other workers and all replacements use the port that the OS chose.
    if (isAnyPort) this.#settings = { ...this.#settings, port: Number(new URL(this.#url).port) };
    await Promise.all(this.#launchMissing());
    this.#phase = 'running';
    this.#reconcile();
  }

  /**
   * Switches the workers to `settings` and `tls`, one worker at a time, then adjusts the number of workers. If a worker
   * cannot use the new settings, all workers get the old settings again.
   */
  async reload(settings: Settings, tls: TlsInForce): Promise<{ readonly finished: Promise<void> }> {
    if (this.#phase !== 'running') return { finished: Promise.resolve() };
    const previous = { settings: this.#settings, tls: this.#tls };
    this.#settings = { ...settings, port: this.#settings.port };
    this.#tls = tls;
    const ends: Promise<unknown>[] = [];
    try {
      for (const member of this.#serving()) {
        ends.push((await member.reload(this.#settings, tls)).finished);
      }
    } catch (error) {
      ({ settings: this.#settings, tls: this.#tls } = previous);
      await Promise.all(this.#serving().map((member) => this.#bringUpToDate(member)));
      throw error;
    }
    // Workers that kept failing with the old settings may work with the new settings, so they start without a pause.
    this.#endPause();
    ends.push(...Array.from(this.#members, ({ isRetired, exited, started }) => (isRetired ? exited : started)));
    return { finished: Promise.all(ends).then(() => undefined) };
  }

  async #bringUpToDate(member: Member): Promise<void> {
    if (member.settings !== this.#settings) {
      await member.reload(this.#settings, this.#tls).catch((error: unknown) => {
        this.#kill(member, `a worker cannot use the settings in force: killing it (${String(error)})`);
      });
    }
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
    if (first === undefined) return [];
    // A worker that did not answer has no new report, so its last figures are used.
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
    this.#tellAll({ kind: 'begin-drain' });
  }

  async finishDrain(signal: AbortSignal): Promise<void> {
    await this.#stopListening();
    this.#tellAll({ kind: 'finish-drain' });
    void untilAborted(signal).then(() => this.#tellAll({ kind: 'cut' }));
    await this.#allExited();
  }

  async stop(): Promise<void> {
    this.beginDrain();
    await this.#stopListening();
    this.#tellAll({ kind: 'cut' });
    const callOff = startDeadline(killTimeoutMs, () => {
      for (const member of this.#members) {
        this.#kill(member, 'a worker does not exit: killing it');
      }
    });
    await this.#allExited();
    callOff();
  }

  async #stopListening(): Promise<void> {
    const listener = this.#listener;
    this.#listener = undefined;
    await listener?.close();
    // The waiting connections go to the workers first, so each worker receives them before `finish-drain`.
    const serving = this.#serving();
    for (const [index, socket] of this.#waiting.splice(0).entries()) {
      const member = serving[index % serving.length];
      if (member === undefined) {
        socket.destroy();
      } else {
        member.take(socket);
      }
    }
  }

  async #allExited(): Promise<void> {
    await Promise.all(Array.from(this.#members, ({ exited }) => exited));
  }

  #tellAll(message: ToWorker): void {
    for (const member of this.#members) {
      member.send(message);
    }
  }

  // The workers that get connections.
  #serving(): Member[] {
    return [...this.#members].filter(({ isReady, isRetired }) => isReady && !isRetired);
  }

  #accept(socket: Socket): void {
    socket.on('error', () => undefined);
    if (this.#waiting.length < this.#settings.connectionsMax) {
      this.#waiting.push(socket);
      this.#distribute();
    } else {
      socket.destroy();
    }
  }

  // Passes connections to the workers in turn. A worker gets a connection only if it has received its previous
  // connection. So a hung worker gets few connections.
  readonly #distribute = (): void => {
    for (;;) {
      const next = this.#serving().find(({ isReceiving }) => !isReceiving);
      const socket = next === undefined ? undefined : this.#waiting.shift();
      if (next === undefined || socket === undefined) return;
      this.#members.delete(next);
      this.#members.add(next);
      next.take(socket, this.#distribute);
    }
  };

  // Starts missing workers and retires surplus ones. Called after each change of the workers.
  #reconcile(): void {
    if (this.#phase !== 'running' || this.#pause !== undefined) return;
    for (const launched of this.#launchMissing()) {
      launched.catch((error: unknown) => this.#onLaunchFailure(error));
    }
    for (const surplus of this.#serving().slice(this.#settings.workers)) {
      this.#retire(surplus);
    }
  }

  // Each returned promise rejects with a StartError if its worker cannot be started.
  #launchMissing(): Promise<void>[] {
    const count = [...this.#members].filter(({ isRetired }) => !isRetired).length;
    return Array.from({ length: Math.max(0, this.#settings.workers - count) }, () => this.#launch());
  }

  #onLaunchFailure(error: unknown): void {
    if (this.#phase === 'running') {
      this.#earlyDeaths += 1;
      this.#logger.error({ err: error }, 'a worker could not be replaced: trying again');
      this.#startPause();
    }
  }

  // Starts one worker. If a signal to the process group ends the worker during its start, starts another. Rejects with a
  // StartError if the worker cannot be started.
  async #launch(): Promise<void> {
    for (;;) {
      const outcome = await this.#fork();
      if (outcome.kind === 'ready') {
        this.#url ||= outcome.url;
        this.#distribute();
        return;
      }
      if (outcome.kind === 'failed' || this.#phase === 'stopping') throw new StartError(outcome.message, undefined);
    }
  }

  async #fork(): Promise<StartOutcome> {
    const settings = this.#settings;
    const extension = extname(fileURLToPath(import.meta.url));
    try {
      const child = fork(new URL(`../worker-main${extension}`, import.meta.url), [], {
        serialization: 'advanced',
        stdio: ['inherit', 'inherit', 'inherit', 'ipc', ...this.#passed],
      });
      const keys = this.#keys.findKeys(settings.authJwksUrl);
      const passed = this.#passed.map((_, index) => firstPassed + index);
      const start = { sharing: this.#sharing, tls: this.#tls, passed, keys };
      const member = new Member(child, settings, start, this.#observer);
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
    const isExpected = member.isRetired || this.#phase === 'stopping';
    // If a signal to the process group ends a starting worker, this is not counted as a death. #launch() starts another.
    if (!isExpected && (member.isReady || !isForGroup(signal))) {
      this.#counted.count(`death ${causeOfDeath(signal, member.isFrozen)}`);
    }
    if (!member.isReady) {
      // The worker was still starting, so #launch() handles its end, and no client was affected.
      return;
    }
    const ended = { worker: member.pid, code, signal };
    if (!isExpected) {
      this.#earlyDeaths = performance.now() - member.startedAt < settledMs ? this.#earlyDeaths + 1 : 0;
      this.#logger.error(ended, `a worker ended with ${describeEnd(code, signal)}: replacing it`);
      this.#startPause();
    } else if (code !== 0) {
      this.#hasFailed ||= this.#phase === 'stopping';
      this.#logger.warn(ended, `a draining worker ended with ${describeEnd(code, signal)}`);
    }
  }

  // Starts the pause before the next worker is started. After a worker that lived at least `settledMs` there is no pause.
  // Each early death in a row doubles the pause, up to `backOffMaxMs`. Otherwise workers that keep failing would use all
  // CPU time.
  #startPause(): void {
    if (this.#phase !== 'running') return;
    const delayMs = this.#earlyDeaths === 0 ? 0 : Math.min(backOffMaxMs, backOffMinMs * 2 ** (this.#earlyDeaths - 1));
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => this.#endPause(), delayMs);
  }

  #endPause(): void {
    clearTimeout(this.#pause);
    this.#pause = undefined;
    this.#reconcile();
  }

  #retire(member: Member): void {
    member.isRetired = true;
    member.send({ kind: 'begin-drain' });
    member.send({ kind: 'finish-drain' });
    const callOff = startDeadline(member.settings.shutdownTimeoutMs + killTimeoutMs, () =>
      this.#kill(member, 'a retired worker does not exit: killing it'),
    );
    void member.exited.then(callOff);
  }

  // Kills hanging workers, which receive connections without answering. They are replaced like any dead worker.
  #lookForHanging(): void {
    for (const member of this.#members) {
      const missedBeats = member.isRetired ? undefined : member.beat();
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
