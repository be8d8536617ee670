// Several worker processes that serve clients on one port: started, watched, replaced when they die, and one
// by one on SIGHUP. It answers no client itself; the workers are worker.ts.

import cluster, { type Worker } from 'node:cluster';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';

import type { Report, ReportRequest } from '../admin/report.ts';
import { listen, type PortSharing } from '../listen.ts';
import type { Logger } from '../log.ts';
import type { AdminSubject } from '../service.ts';
import type { Settings } from '../settings.ts';
import { StartError } from '../start-error.ts';
import { plainSettings, type FromWorker, type ToWorker } from './messages.ts';

const reportTimeoutMs = 1_000;
const backOffMinMs = 100;
const backOffMaxMs = 10_000;
// A worker that has lived so long did not die of how it was started.
const settledMs = 10_000;
const killTimeoutMs = 2_000;

// What belongs to the primary process, or to the port that it keeps: a new value needs a restart.
const keptSettings = ['host', 'port', 'adminHost', 'adminPort', 'portSharing', 'shutdownDelayMs'] as const;

interface Member {
  readonly worker: Worker;
  readonly startedAt: number;
  readonly exited: Promise<void>;
  /** It takes calls and was not told to stop. */
  isServing: boolean;
  /** It was told to stop: its end is no surprise. */
  isLeaving: boolean;
}

/** Starts `settings.workers` workers; rejects with a StartError, all of them stopped again. */
export async function startPool(settings: Settings, logger: Logger): Promise<WorkerPool> {
  const extension = extname(fileURLToPath(import.meta.url));
  cluster.setupPrimary({
    exec: fileURLToPath(new URL(`./worker${extension}`, import.meta.url)),
    args: [],
    serialization: 'advanced',
  });
  const sharing = settings.portSharing === 'auto' ? findSharing() : settings.portSharing;
  if (sharing === 'reuse-port' && settings.port !== 0) {
    // With a shared port the system would let two gateways have it unnoticed [D31].
    await assertPortIsFree(settings);
  }
  const pool = new WorkerPool(settings, sharing, logger);
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

async function assertPortIsFree({ host, port }: Settings): Promise<void> {
  const listener = await listen(createServer(), host, port, '--port (PORT)');
  await listener.close();
}

export class WorkerPool implements AdminSubject {
  readonly #logger: Logger;
  readonly #sharing: PortSharing;
  readonly #members = new Set<Member>();
  readonly #awaitedReports = new Map<number, (reports: readonly Report[]) => void>();
  readonly #replacements = new Set<NodeJS.Timeout>();
  #settings: Settings;
  #url = '';
  #nextReportId = 0;
  #earlyDeaths = 0;
  #isStopping = false;
  #hasFailed = false;
  #reload: Promise<void> | undefined;

  constructor(settings: Settings, sharing: PortSharing, logger: Logger) {
    this.#settings = settings;
    this.#sharing = sharing;
    this.#logger = logger;
  }

  get url(): string {
    return this.#url;
  }

  /** @internal */
  async start(): Promise<void> {
    // The first one finds the port where 0 was asked for; node:cluster gives it to all that ask for 0.
    const { url, port } = await this.#launch();
    this.#url = url;
    if (this.#sharing === 'reuse-port') {
      this.#settings = { ...this.#settings, port };
    }
    await Promise.all(Array.from({ length: this.#settings.workers - 1 }, async () => await this.#launch()));
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
    const serving = [...this.#members].filter(({ isServing, isLeaving }) => isServing || isLeaving);
    const reports = await Promise.all(serving.map(async (member) => await this.#askReport(member, request)));
    return reports.flat();
  };

  /** A worker did not end as it should have: with the exit code 0, when it was told to. */
  readonly hasFailed = (): boolean => this.#hasFailed;

  beginDrain(): void {
    this.#isStopping = true;
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
      for (const { worker } of this.#members) {
        worker.process.kill('SIGKILL');
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
  async #launch(): Promise<{ url: string; port: number }> {
    const worker = cluster.fork();
    const exited = Promise.withResolvers<undefined>();
    const ready = Promise.withResolvers<{ url: string; port: number }>();
    const member: Member = {
      worker,
      startedAt: performance.now(),
      exited: exited.promise.then(() => undefined),
      isServing: false,
      isLeaving: false,
    };
    this.#members.add(member);
    worker.on('message', (message: FromWorker) => {
      switch (message.kind) {
        case 'ready':
          member.isServing = true;
          ready.resolve(message);
          break;
        case 'start-error':
          ready.reject(new StartError(message.message, undefined));
          break;
        case 'reports':
          this.#awaitedReports.get(message.id)?.(message.reports);
          break;
      }
    });
    worker.on('error', (error) => {
      this.#logger.error({ err: error, worker: worker.process.pid }, 'a worker cannot be reached');
    });
    worker.once('exit', (code, signal) => {
      this.#members.delete(member);
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
        await leaving.exited;
      }
    }
    this.#logger.info({ workers: settings.workers }, 'reloaded: every worker is a new one');
  }

  async #askReport(member: Member, request: ReportRequest): Promise<readonly Report[]> {
    const id = this.#nextReportId;
    this.#nextReportId += 1;
    const { promise, resolve } = Promise.withResolvers<readonly Report[]>();
    this.#awaitedReports.set(id, resolve);
    // One that does not answer is left out.
    const timer = setTimeout(() => {
      resolve([]);
    }, reportTimeoutMs);
    send(member, { kind: 'report', id, request });
    const reports = await Promise.race([promise, member.exited.then(() => [])]);
    clearTimeout(timer);
    this.#awaitedReports.delete(id);
    return reports;
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
