// One worker, seen from the primary process: its start, its messages, its health and its end.

import type { ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';

import type { FetchedKeys, Question } from '../../core/guards/options/ports.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import { startDeadline } from '../service/lifecycle.ts';
import type { Settings } from '../settings/settings.ts';
import { toPlain, type FromWorker, type ToWorker, type WorkerStart } from './messages.ts';

const reportTimeoutMs = 1_000;
// A worker that sends no message during this many heartbeats counts as hanging and is killed. The longest task of a
// worker takes less than a tenth of that time. A start on a busy machine takes longer, so a starting worker has a higher limit. The
// limits count heartbeats, not seconds, because seconds also pass while the primary process is stopped and reads no
// messages.
const missedBeatsMax = 10;
const missedStartBeatsMax = 60;
// Node cannot listen for signals in its first moments, so one of these signals to the process group may end a starting
// worker.
const groupSignals: ReadonlySet<string | null> = new Set(['SIGTERM', 'SIGINT', 'SIGHUP']);
// Largest number of event-loop turns to wait for the last messages of an ended worker. Normally one or two are enough.
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
  onKeys(jwksUrl: string, keys: FetchedKeys): void;
  onUnreachable(member: Member, error: Error): void;
  /** The worker has ended. Called before `exited` resolves. */
  onGone(member: Member): void;
  /** Called after `onGone`, but not if the OS could not create the process. */
  onExit(member: Member, code: number | null, signal: string | null): void;
}

type Answer = Extract<FromWorker, { kind: 'reports' | 'reloaded' | 'reload-finished' }>;

export class Member {
  /** The gateway's settings that were last sent to the worker. */
  settings: Settings;
  readonly startedAt = performance.now();
  readonly started: Promise<StartOutcome>;
  readonly exited: Promise<undefined>;
  /** True if the worker is stopping because fewer workers are needed. */
  isRetired = false;
  /** True if the worker hung and was killed. */
  isFrozen = false;
  readonly #process: ChildProcess;
  readonly #observer: MemberObserver;
  // The receivers of awaited answers, by the answer's kind and id.
  readonly #awaitedAnswers = new Map<string, (answer: Answer) => void>();
  // Connections that wait until the worker has received the connections sent before them.
  readonly #untaken = new Set<Socket>();
  #sentCount = 0;
  // The certificates last sent to the worker.
  #tls: TlsInForce;
  #lastReport: Report | undefined;
  #nextId = 0;
  #missedBeats = 0;
  #isReady = false;

  /** `child` is a worker process that waits for its first message. */
  constructor(child: ChildProcess, settings: Settings, start: WorkerStart, observer: MemberObserver) {
    this.#process = child;
    this.#observer = observer;
    this.settings = settings;
    this.#tls = start.tls;
    const started = Promise.withResolvers<StartOutcome>();
    const exited = Promise.withResolvers<undefined>();
    this.started = started.promise;
    this.exited = exited.promise;
    this.#watchEnd(started.resolve, () => exited.resolve(undefined));
    this.#process.on('message', (message: FromWorker) => this.#onMessage(message, started.resolve));
    this.send({ kind: 'start', settings: shareOf(settings), ...start });
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** True if the worker serves clients. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** The last report of the worker, also after its end. */
  get lastReport(): Report | undefined {
    return this.#lastReport;
  }

  /** True while a connection waits to be sent, because the worker has not received the previous connection. */
  get isReceiving(): boolean {
    return this.#untaken.size > 0;
  }

  send(message: ToWorker): void {
    if (this.#process.connected) {
      // A failed send means that the worker has ended. It is ignored, because the event `exit` reports this end.
      this.#process.send(message, () => undefined);
    }
  }

  /**
   * Passes a connection to the worker, and calls `onSent` when the connection is sent. If the worker ends before it has
   * received the connection, closes the connection.
   */
  take(socket: Socket, onSent?: () => void): void {
    this.#untaken.add(socket);
    this.#sentCount += 1;
    const message: ToWorker = { kind: 'connection', number: this.#sentCount };
    // This process closes its descriptor itself. Without `keepOpen`, Node would close the descriptor when the worker
    // has received the connection, and never if the worker ends before that.
    this.#process.send(message, socket, { keepOpen: true }, () => {
      this.#untaken.delete(socket);
      socket.destroy();
      onSent?.();
    });
  }

  /** Sends these certificates to the worker if it is ready and has other certificates. */
  renewTls(tls: TlsInForce): void {
    if (this.#isReady && this.#tls !== tls) {
      this.#tls = tls;
      this.send({ kind: 'renew-tls', tls });
    }
  }

  /**
   * Makes the worker serve new connections with `settings`, as `ClientService.reload` does [D65]. Rejects with a
   * StartError if the worker cannot use them. If the worker ends, its successor gets them, so the reload succeeds.
   */
  async reload(settings: Settings, tls: TlsInForce): Promise<{ readonly finished: Promise<unknown> }> {
    this.settings = settings;
    this.#tls = tls;
    const id = this.#takeId();
    this.send({ kind: 'reload', id, settings: shareOf(settings), tls });
    const finished = this.#answer('reload-finished', id);
    const reloaded = await this.#answer('reloaded', id);
    if (reloaded?.problem !== undefined) throw new StartError(reloaded.problem, undefined);
    return { finished };
  }

  /** Requests a report. Resolves with undefined if the worker ends or does not answer in time. */
  async report(request: ReportRequest): Promise<Report | undefined> {
    const id = this.#takeId();
    const timeout = Promise.withResolvers<undefined>();
    const callOff = startDeadline(reportTimeoutMs, () => timeout.resolve(undefined));
    this.send({ kind: 'report', id, request });
    const answer = await this.#answer('reports', id, timeout.promise);
    callOff();
    return answer?.reports[0];
  }

  /**
   * If too many heartbeats are unanswered, only returns their number. Otherwise counts a heartbeat, and sends it if the
   * worker is ready. Each message of the worker answers all heartbeats so far.
   */
  beat(): number | undefined {
    if (this.#missedBeats >= (this.#isReady ? missedBeatsMax : missedStartBeatsMax)) return this.#missedBeats;
    this.#missedBeats += 1;
    if (this.#isReady) void this.report({ withProcessMetrics: false, probesBackend: false });
    return undefined;
  }

  kill(): void {
    this.#process.kill('SIGKILL');
  }

  #takeId(): number {
    this.#nextId += 1;
    return this.#nextId;
  }

  // Resolves with the worker's answer, or with undefined if the worker ends or `timeout` resolves first.
  async #answer<Kind extends Answer['kind']>(
    kind: Kind,
    id: number,
    timeout?: Promise<undefined>,
  ): Promise<Extract<Answer, { kind: Kind }> | undefined> {
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const name = `${kind} ${id}`;
    this.#awaitedAnswers.set(name, resolve);
    const answer = await Promise.race([promise, this.exited, ...(timeout === undefined ? [] : [timeout])]);
    this.#awaitedAnswers.delete(name);
    return answer as Extract<Answer, { kind: Kind }> | undefined;
  }

  #onMessage(message: FromWorker, onStarted: (outcome: StartOutcome) => void): void {
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
        this.#observer.onKeys(message.jwksUrl, message.keys);
        break;
      default:
        if (message.kind === 'reports') this.#lastReport = message.reports[0] ?? this.#lastReport;
        this.#awaitedAnswers.get(`${message.kind} ${message.id}`)?.(message);
        break;
    }
  }

  #watchEnd(onStarted: (outcome: StartOutcome) => void, onExited: () => void): void {
    const child = this.#process;
    const end = (kind: 'failed' | 'interrupted', message: string): void => {
      this.#observer.onGone(this);
      for (const socket of this.#untaken) {
        socket.destroy();
      }
      onStarted({ kind, message });
      onExited();
    };
    child.on('error', (error) => {
      if (child.pid === undefined) {
        // The worker never started, because the OS has no process or file descriptor left for it.
        end('failed', `a worker could not be started: ${error.message}`);
      } else {
        this.#observer.onUnreachable(this, error);
      }
    });
    child.once('exit', (code, signal) => {
      void lastMessagesOf(child).then(() => {
        const kind = isForGroup(signal) ? 'interrupted' : 'failed';
        const advice = signal === 'SIGKILL' ? ': check whether the system was out of memory' : '';
        end(kind, `a worker ended during its start with ${describeEnd(code, signal)}${advice}`);
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
function shareOf(settings: Settings): ReturnType<typeof toPlain> {
  const share = (total: number): number => Math.ceil(total / settings.workers);
  return toPlain({
    ...settings,
    connectionsMax: share(settings.connectionsMax),
    inFlightMax: share(settings.inFlightMax),
    bufferedBytesMax: share(settings.bufferedBytesMax),
  });
}

// Waits for the last messages of a worker, which may arrive after its exit. The channel closes after them.
async function lastMessagesOf(child: ChildProcess): Promise<void> {
  for (let turns = 0; child.connected && turns < lastTurnsMax; turns += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
