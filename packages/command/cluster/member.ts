// One worker, seen from the primary process: its start, its messages, its health and its end.

import cluster, { type Worker } from 'node:cluster';

import type { FetchedKeys, Question } from '../../core/guards/options/ports.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import { startDeadline } from '../service/deadline.ts';
import type { Settings } from '../settings/settings.ts';
import type { FromWorker, ToWorker, WorkerStart } from './messages.ts';
import { closeUntakenConnections } from './untaken-connections.ts';

const reportTimeoutMs = 1_000;
// A worker is killed as hanging after this many heartbeats without a message from it. The longest task of a worker takes
// less than a tenth of that time. A start on a busy machine takes longer, so a starting worker has a higher limit. The
// limits count heartbeats and not seconds, because time passes while the primary process is stopped and reads no messages.
const missedBeatsMax = 10;
const missedStartBeatsMax = 60;
// Node cannot listen for signals in its first moments, so one of these signals to the process group may end a starting
// worker.
const groupSignals: ReadonlySet<string | null> = new Set(['SIGTERM', 'SIGINT', 'SIGHUP']);
// Turns of the event loop in which the last messages of an ended worker may arrive. Normally one or two are enough.
const lastTurnsMax = 100;

export type StartOutcome =
  | { readonly kind: 'ready'; readonly url: string }
  | { readonly kind: 'failed'; readonly message: string }
  /** Ended by a signal to the process group. */
  | { readonly kind: 'interrupted'; readonly message: string };

export interface MemberObserver {
  onReady(member: Member): void;
  /** The worker asks the rate limit's counter. */
  onCount(member: Member, id: number, question: Question): void;
  onKeys(member: Member, keys: FetchedKeys): void;
  /** The worker had no file descriptor left for a connection. */
  onRefused(member: Member): void;
  onUnreachable(member: Member, error: Error): void;
  /** The worker has ended. Called before `exited` resolves. */
  onGone(member: Member): void;
  /** Called after `onGone`, but not if the OS could not create the process. */
  onExit(member: Member, code: number | null, signal: string | null): void;
}

export class Member {
  /** The gateway's settings when the worker started. A worker whose settings are no longer in force is replaced. */
  readonly settings: Settings;
  readonly startedAt = performance.now();
  readonly started: Promise<StartOutcome>;
  readonly exited: Promise<void>;
  /** True if the primary process has told the worker to stop, so that its end is expected. */
  isLeaving = false;
  /** True if the worker hung and was killed. */
  isFrozen = false;
  readonly #worker: Worker;
  readonly #observer: MemberObserver;
  readonly #awaitedReports = new Map<number, (report: Report | undefined) => void>();
  // The certificates last sent to the worker.
  #tls: TlsInForce;
  #lastReport: Report | undefined;
  #nextReportId = 0;
  #missedBeats = 0;
  #isReady = false;

  /** Throws if the OS cannot create the process. */
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

  /** True if the worker serves clients. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** The last report of the worker, also after its end. */
  get lastReport(): Report | undefined {
    return this.#lastReport;
  }

  send(message: ToWorker): void {
    if (this.#worker.isConnected()) {
      // A failed send is ignored, because it means that the worker has ended, and the exit is reported.
      this.#worker.send(message, () => undefined);
    }
  }

  /** Sends these certificates to the worker if it is ready and has other certificates. */
  renewTls(tls: TlsInForce): void {
    if (this.#isReady && this.#tls !== tls) {
      this.#tls = tls;
      this.send({ kind: 'renew-tls', tls });
    }
  }

  /** Requests a report. Resolves with undefined if the worker ends or does not answer in time. */
  async report(request: ReportRequest): Promise<Report | undefined> {
    const id = this.#nextReportId;
    this.#nextReportId += 1;
    const { promise, resolve } = Promise.withResolvers<Report | undefined>();
    this.#awaitedReports.set(id, resolve);
    const callOff = startDeadline(reportTimeoutMs, () => resolve(undefined));
    this.send({ kind: 'report', id, request });
    const report = await Promise.race([promise, this.exited.then(() => undefined)]);
    callOff();
    this.#awaitedReports.delete(id);
    return report;
  }

  /**
   * Counts a heartbeat, and sends it if the worker is ready. If too many heartbeats are unanswered, returns their number
   * and does nothing else. Each message of the worker answers all heartbeats so far.
   */
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
    const closeUntaken = closeUntakenConnections(worker, () => this.#observer.onRefused(this));
    const end = (kind: 'failed' | 'interrupted', message: string): void => {
      this.#observer.onGone(this);
      closeUntaken();
      onStarted({ kind, message });
      onExited(undefined);
    };
    worker.on('error', (error) => {
      if (worker.process.pid === undefined) {
        // The worker never started, because the OS has no process or file descriptor left for it.
        end('failed', `a worker could not be started: ${error.message}`);
      } else {
        this.#observer.onUnreachable(this, error);
      }
    });
    worker.once('exit', (code, signal) => {
      void lastMessagesOf(worker).then(() => {
        const kind = isForGroup(signal) ? 'interrupted' : 'failed';
        end(kind, `a worker ended during its start with ${describeEnd(code, signal)}`);
        this.#observer.onExit(this, code, signal);
      });
    });
  }
}

/** Tells whether the signal may have been for the whole process group. */
export function isForGroup(signal: string | null): boolean {
  return groupSignals.has(signal);
}

export function describeEnd(code: number | null, signal: string | null): string {
  return signal === null ? `exit code ${code ?? 0}` : `signal ${signal}`;
}

// The limits apply to the whole gateway; each worker has an equal share.
function shareOf(settings: Settings): Settings {
  const share = (total: number): number => Math.ceil(total / settings.workers);
  return {
    ...settings,
    connectionsMax: share(settings.connectionsMax),
    inFlightMax: share(settings.inFlightMax),
    bufferedBytesMax: share(settings.bufferedBytesMax),
  };
}

// Waits for the last messages of a worker, which may arrive after its exit; the channel closes after them.
async function lastMessagesOf(worker: Worker): Promise<void> {
  for (let turns = 0; worker.isConnected() && turns < lastTurnsMax; turns += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
