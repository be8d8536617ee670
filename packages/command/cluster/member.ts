// One worker process as the primary process sees it: how it starts, what it says, how it is, and how it ends.

import cluster, { type Worker } from 'node:cluster';

import type { FetchedKeys, Question } from '../../core/guards/options/ports.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import { startDeadline } from '../service/deadline.ts';
import type { Settings } from '../settings/settings.ts';
import type { FromWorker, ToWorker, WorkerStart } from './messages.ts';
import { closeUntakenConnections } from './untaken-connections.ts';

const reportTimeoutMs = 1_000;
// One that has left so many heartbeats in a row unanswered hangs: nothing that it does takes a tenth of that; only its
// start may, on a busy machine. Counted in heartbeats of the primary process and not by the clock, which goes on while that
// is stopped.
const missedBeatsMax = 10;
const missedStartBeatsMax = 60;
// Node cannot listen for a signal in its first moments: one for the whole process group may end a worker that starts.
const groupSignals: ReadonlySet<string | null> = new Set(['SIGTERM', 'SIGINT', 'SIGHUP']);
// What a process said before it ended is read within a turn or two.
const lastTurnsMax = 100;

/** How the start of a worker ended. */
export type StartOutcome =
  | { readonly kind: 'ready'; readonly url: string }
  | { readonly kind: 'failed'; readonly message: string }
  /** Ended by a signal that was not meant for it. */
  | { readonly kind: 'interrupted'; readonly message: string };

/** Is told of what a worker does. */
export interface MemberObserver {
  onReady(member: Member): void;
  /** It asks what the rate limit has counted. */
  onCount(member: Member, id: number, question: Question): void;
  onKeys(member: Member, keys: FetchedKeys): void;
  /** It had no descriptor left for a connection. */
  onRefused(member: Member): void;
  onUnreachable(member: Member, error: Error): void;
  /** It has gone: the first that is told. */
  onGone(member: Member): void;
  /** Comes after `onGone`; not for one that could not be started at all. */
  onExit(member: Member, code: number | null, signal: string | null): void;
}

export class Member {
  /** Those of the whole gateway that it was started with: one whose settings are no longer those in force is replaced. */
  readonly settings: Settings;
  readonly startedAt = performance.now();
  readonly started: Promise<StartOutcome>;
  readonly exited: Promise<void>;
  /** It was told to stop: its end is no surprise. */
  isLeaving = false;
  /** It hung and was killed. */
  isFrozen = false;
  readonly #worker: Worker;
  readonly #observer: MemberObserver;
  readonly #awaitedReports = new Map<number, (report: Report | undefined) => void>();
  // What it was given last.
  #tls: TlsInForce;
  #lastReport: Report | undefined;
  #nextReportId = 0;
  #missedBeats = 0;
  #isReady = false;

  /** Throws when the system has no process for it. */
  constructor(settings: Settings, start: WorkerStart, observer: MemberObserver) {
    this.#worker = cluster.fork();
    this.#observer = observer;
    this.settings = settings;
    this.#tls = start.tls;
    const started = Promise.withResolvers<StartOutcome>();
    const exited = Promise.withResolvers<undefined>();
    this.started = started.promise;
    this.exited = exited.promise;
    this.#watchEnd(started.resolve, exited.resolve);
    this.#listen(started.resolve);
    const plain = { ...shareOf(settings), backendUrl: settings.backendUrl.href };
    this.send({ kind: 'start', settings: plain, ...start });
  }

  get pid(): number | undefined {
    return this.#worker.process.pid;
  }

  /** It has said that it takes calls. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** What it last said of itself: of a worker that has gone this is what stays. */
  get lastReport(): Report | undefined {
    return this.#lastReport;
  }

  send(message: ToWorker): void {
    if (this.#worker.isConnected()) {
      // A worker that goes meanwhile says so by its exit.
      this.#worker.send(message, () => undefined);
    }
  }

  /** Gives it these certificates, if it takes calls and has others. */
  renewTls(tls: TlsInForce): void {
    if (this.#isReady && this.#tls !== tls) {
      this.#tls = tls;
      this.send({ kind: 'renew-tls', tls });
    }
  }

  /** Asks how it is; undefined when it does not answer in time. */
  async report(request: ReportRequest): Promise<Report | undefined> {
    const id = this.#nextReportId;
    this.#nextReportId += 1;
    const { promise, resolve } = Promise.withResolvers<Report | undefined>();
    this.#awaitedReports.set(id, resolve);
    const callOff = startDeadline(reportTimeoutMs, () => {
      resolve(undefined);
    });
    this.send({ kind: 'report', id, request });
    const report = await Promise.race([promise, this.exited.then(() => undefined)]);
    callOff();
    this.#awaitedReports.delete(id);
    return report;
  }

  /** One heartbeat: asks how it is. Gives how many it has left unanswered, where they are too many. */
  beat(): number | undefined {
    if (this.#missedBeats >= (this.#isReady ? missedBeatsMax : missedStartBeatsMax)) {
      return this.#missedBeats;
    }
    this.#missedBeats += 1;
    if (this.#isReady) {
      void this.report({ withProcessMetrics: false, probesBackend: false });
    }
    return undefined;
  }

  kill(): void {
    this.#worker.process.kill('SIGKILL');
  }

  #listen(onStarted: (outcome: StartOutcome) => void): void {
    this.#worker.on('message', (message: FromWorker) => {
      this.#missedBeats = 0;
      switch (message.kind) {
        case 'ready':
          this.#isReady = true;
          this.#observer.onReady(this);
          onStarted(message);
          break;
        case 'start-error':
          onStarted({ kind: 'failed', message: message.message });
          break;
        case 'count':
          this.#observer.onCount(this, message.id, message.question);
          break;
        case 'keys':
          this.#observer.onKeys(this, message.keys);
          break;
        case 'reports':
          this.#lastReport = message.reports[0] ?? this.#lastReport;
          this.#awaitedReports.get(message.id)?.(message.reports[0]);
          break;
      }
    });
  }

  #watchEnd(onStarted: (outcome: StartOutcome) => void, onExited: (nothing: undefined) => void): void {
    const worker = this.#worker;
    const closeUntaken = closeUntakenConnections(worker, () => {
      this.#observer.onRefused(this);
    });
    const end = (kind: 'failed' | 'interrupted', message: string): void => {
      this.#observer.onGone(this);
      closeUntaken();
      onStarted({ kind, message });
      onExited(undefined);
    };
    worker.on('error', (error) => {
      if (worker.process.pid === undefined) {
        // It never was: the system has no process or no descriptor left for it.
        end('failed', `a worker could not be started: ${error.message}`);
      } else {
        this.#observer.onUnreachable(this, error);
      }
    });
    worker.once('exit', (code, signal) => {
      void lastWordsOf(worker).then(() => {
        const kind = isForGroup(signal) ? 'interrupted' : 'failed';
        end(kind, `a worker ended as it started, with ${describeEnd(code, signal)}`);
        this.#observer.onExit(this, code, signal);
      });
    });
  }
}

/** Whether the signal may have been for the whole process group, and not for one worker. */
export function isForGroup(signal: string | null): boolean {
  return groupSignals.has(signal);
}

export function describeEnd(code: number | null, signal: string | null): string {
  return signal === null ? `exit code ${code ?? 0}` : `signal ${signal}`;
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

// What it said last may still be in the channel when its end is known; an end of the channel comes last.
async function lastWordsOf(worker: Worker): Promise<void> {
  for (let turns = 0; worker.isConnected() && turns < lastTurnsMax; turns += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
