// Several worker processes that serve clients on one port: started, watched, replaced when they die, and one
// by one on SIGHUP. It answers no client itself; the workers are worker.ts.

import cluster, { type Worker } from 'node:cluster';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';

import { joinFailures, type Failure } from '../admin/failures.ts';
import { Figures } from '../admin/figures.ts';
import type { Report, ReportRequest } from '../admin/report.ts';
import { listen, type PortSharing } from '../listen.ts';
import type { Log, Logger } from '../log.ts';
import type { AdminSubject } from '../service.ts';
import type { Settings } from '../settings.ts';
import { StartError } from '../start-error.ts';
import { plainSettings, type FromWorker, type ToWorker } from './messages.ts';

const reportTimeoutMs = 1_000;
const backOffMinMs = 100;
const backOffMaxMs = 10_000;
// A worker that has lived so long did not die of how it was started.
const settledMs = 10_000;
// What is told to cut everything has this long to end by itself.
const killTimeoutMs = 500;
// A worker that has answered nothing for so long hangs: nothing that it does takes a tenth of that.
const hangTimeoutMs = 10_000;
const heartbeatMs = 1_000;

// What belongs to the primary process, or to the port that it keeps: a new value needs a restart.
const keptSettings = ['host', 'port', 'adminHost', 'adminPort', 'portSharing', 'shutdownDelayMs'] as const;

interface Member {
  readonly worker: Worker;
  readonly startedAt: number;
  readonly exited: Promise<void>;
  /** What it last said of itself, and when: of a worker that has gone this is what stays. */
  lastReport: Report | undefined;
  heardAt: number;
  /** It takes calls and was not told to stop. */
  isServing: boolean;
  /** It was told to stop: its end is no surprise. */
  isLeaving: boolean;
}

/** Starts `settings.workers` workers; rejects with a StartError, all of them stopped again. */
export async function startPool(settings: Settings, log: Log): Promise<WorkerPool> {
  const extension = extname(fileURLToPath(import.meta.url));
  cluster.setupPrimary({
    exec: fileURLToPath(new URL(`./worker${extension}`, import.meta.url)),
    args: [],
    serialization: 'advanced',
  });
  const sharing = settings.portSharing === 'auto' ? findSharing() : settings.portSharing;
  // With a shared port the system would let two gateways have it unnoticed [D31]; and where 0 was asked for, all
  // of them, and those that replace them, must have the same.
  const port = await findPort(settings);
  const pool = new WorkerPool({ ...settings, port }, sharing, log);
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
  const listener = await listen(createServer(), host, port, '');
  await listener.close();
  return listener.port;
}

export class WorkerPool implements AdminSubject {
  readonly #logger: Logger;
  readonly #sharing: PortSharing;
  readonly #members = new Set<Member>();
  readonly #awaitedReports = new Map<number, (report: Report | undefined) => void>();
  readonly #replacements = new Set<NodeJS.Timeout>();
  // What workers that have gone had counted and kept: a counter must not fall because one was replaced.
  readonly #counted = new Figures();
  #failures: readonly Failure[] = [];
  #heartbeat: NodeJS.Timeout | undefined;
  #settings: Settings;
  #url = '';
  #nextReportId = 0;
  #earlyDeaths = 0;
  #isStopping = false;
  #hasFailed = false;
  #reload: Promise<void> | undefined;

  constructor(settings: Settings, sharing: PortSharing, { logger, output }: Log) {
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
    const { url } = await this.#launch();
    this.#url = url;
    await Promise.all(Array.from({ length: this.#settings.workers - 1 }, async () => await this.#launch()));
    this.#heartbeat = setInterval(() => {
      this.#lookForHanging();
    }, heartbeatMs);
  }

  /**
   * Replaces every worker, one by one and without losing a call, by one with `settings`; each takes over as it
   * is ready. One reload at a time; resolves when the last old worker has gone, with the settings that are in
   * force then: the old ones where it had to be given up, and some that only a restart changes.
   */
  async reload(settings: Settings): Promise<Settings> {
    await this.#reload;
    this.#reload = this.#replaceAll(settings);
    await this.#reload;
    return this.#settings;
  }

  readonly reports = async (request: ReportRequest): Promise<readonly Report[]> => {
    const members = [...this.#members].filter(({ isServing, isLeaving }) => isServing || isLeaving);
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
    this.#isStopping = true;
    clearInterval(this.#heartbeat);
    for (const timer of this.#replacements) {
      clearTimeout(timer);
    }
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
    const timer = setTimeout(() => {
      for (const member of this.#members) {
        this.#kill(member, 'a worker does not end: killing it');
      }
    }, killTimeoutMs);
    await this.#allExited();
    clearTimeout(timer);
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

  // Starts one worker and resolves when it takes calls.
  async #launch(): Promise<{ url: string }> {
    const worker = cluster.fork();
    const exited = Promise.withResolvers<undefined>();
    const ready = Promise.withResolvers<{ url: string }>();
    const member: Member = {
      worker,
      startedAt: performance.now(),
      exited: exited.promise.then(() => undefined),
      lastReport: undefined,
      heardAt: performance.now(),
      isServing: false,
      isLeaving: false,
    };
    this.#members.add(member);
    worker.on('message', (message: FromWorker) => {
      switch (message.kind) {
        case 'ready':
          member.isServing = true;
          member.heardAt = performance.now();
          ready.resolve(message);
          break;
        case 'start-error':
          ready.reject(new StartError(message.message, undefined));
          break;
        case 'reports':
          member.heardAt = performance.now();
          member.lastReport = message.reports[0];
          this.#awaitedReports.get(message.id)?.(message.reports[0]);
          break;
      }
    });
    worker.on('error', (error) => {
      this.#logger.error({ err: error, worker: worker.process.pid }, 'a worker cannot be reached');
    });
    worker.once('exit', (code, signal) => {
      this.#members.delete(member);
      if (member.lastReport !== undefined) {
        this.#counted.add(new Figures(member.lastReport.figures));
        this.#failures = joinFailures([member.lastReport.failures, this.#failures]);
      }
      ready.reject(
        new StartError(`a worker ended as it started, with ${describeEnd(code, signal)}`, undefined),
      );
      this.#onExit(member, code, signal);
      exited.resolve(undefined);
    });
    send(member, { kind: 'start', settings: plainSettings(shareOf(this.#settings)), sharing: this.#sharing });
    return await ready.promise;
  }

  #onExit(member: Member, code: number | null, signal: string | null): void {
    if (member.isLeaving) {
      this.#hasFailed ||= this.#isStopping && code !== 0;
      return;
    }
    if (!member.isServing) {
      // Whoever launched it knows.
      return;
    }
    this.#earlyDeaths = performance.now() - member.startedAt < settledMs ? this.#earlyDeaths + 1 : 0;
    this.#logger.error(
      { worker: member.worker.process.pid, code, signal },
      `a worker ended with ${describeEnd(code, signal)}: replacing it`,
    );
    this.#replaceLater();
  }

  // At once the first time, then after longer and longer pauses: a worker that cannot live must not eat the
  // machine.
  #replaceLater(): void {
    const delayMs =
      this.#earlyDeaths === 0 ? 0 : Math.min(backOffMaxMs, backOffMinMs * 2 ** (this.#earlyDeaths - 1));
    const timer = setTimeout(() => {
      this.#replacements.delete(timer);
      this.#launch().catch((error: unknown) => {
        if (!this.#isStopping) {
          this.#earlyDeaths += 1;
          this.#logger.error({ err: error }, 'a worker could not be replaced: trying again');
          this.#replaceLater();
        }
      });
    }, delayMs);
    this.#replacements.add(timer);
  }

  async #replaceAll(settings: Settings): Promise<void> {
    const kept = keptSettings.filter(
      (name) => !(name === 'port' && settings.port === 0) && settings[name] !== this.#settings[name],
    );
    if (kept.length > 0) {
      this.#logger.warn({ settings: kept }, 'new values of these settings need a restart: the old ones stay');
    }
    const old = [...this.#members];
    const previous = this.#settings;
    this.#settings = {
      ...settings,
      ...Object.fromEntries(keptSettings.map((name) => [name, previous[name]])),
    };
    for (let index = 0; index < Math.max(settings.workers, old.length); index += 1) {
      if (index < settings.workers) {
        try {
          await this.#launch();
        } catch (error) {
          this.#logger.error(
            { err: error },
            'reload given up: a new worker did not start; the old ones stay',
          );
          this.#settings = previous;
          return;
        }
      }
      const leaving = old[index];
      if (leaving !== undefined) {
        leaving.isLeaving = true;
        send(leaving, { kind: 'begin-drain' });
        send(leaving, { kind: 'finish-drain' });
        const timer = setTimeout(() => {
          this.#kill(leaving, 'a worker that was to be replaced does not end: killing it');
        }, previous.shutdownTimeoutMs + killTimeoutMs);
        await leaving.exited;
        clearTimeout(timer);
      }
    }
    this.#logger.info(
      { workers: settings.workers, changed: describeChanges(previous, this.#settings) },
      'reloaded: every worker is a new one',
    );
  }

  // Undefined when it does not answer in time.
  async #askReport(member: Member, request: ReportRequest): Promise<Report | undefined> {
    const id = this.#nextReportId;
    this.#nextReportId += 1;
    const { promise, resolve } = Promise.withResolvers<Report | undefined>();
    this.#awaitedReports.set(id, resolve);
    const timer = setTimeout(() => {
      resolve(undefined);
    }, reportTimeoutMs);
    send(member, { kind: 'report', id, request });
    const report = await Promise.race([promise, member.exited.then(() => undefined)]);
    clearTimeout(timer);
    this.#awaitedReports.delete(id);
    return report;
  }

  // One that hangs takes connections and answers none; killed, it is replaced like any that dies.
  #lookForHanging(): void {
    for (const member of this.#members) {
      if (member.isServing && !member.isLeaving) {
        if (performance.now() - member.heardAt > hangTimeoutMs) {
          this.#kill(member, `a worker has not answered for ${hangTimeoutMs / 1_000} s: killing it`);
        } else {
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

// No setting is a secret: an address of the backend has no credentials in it.
function describeChanges(before: Settings, after: Settings): Record<string, string> {
  const names = Object.keys(after) as (keyof Settings)[];
  const changed = names.filter((name) => String(before[name]) !== String(after[name]));
  return Object.fromEntries(
    changed.map((name) => [name, `${String(before[name])} → ${String(after[name])}`]),
  );
}
