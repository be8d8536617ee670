// One worker, seen from the primary process: its start, its messages, its health and its end.

import type { ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';

import type { FetchedKeys } from '../../core/guards/ports/ports.ts';
import { startDeadline } from '../../core/hosts/common/process-deadline.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { Settings } from '../settings/settings.ts';
import { lateMs, type Receiver } from './distributor.ts';
import { toPlain, type CountRequest, type FromWorker, type ToWorker, type WorkerStart } from './messages.ts';
import { nextState, type Departure, type WorkerState } from './worker-state.ts';

const reportTimeoutMs = 1_000;
// A worker that sends no message during this many heartbeats counts as hanging and is killed. The longest task of a
// worker takes less than a tenth of that time. A start on a busy machine takes longer, so a starting worker has a higher limit. The
// limits count heartbeats, not seconds, because seconds also pass while the primary process is stopped and reads no
// messages. A draining worker has a time limit instead.
const missedBeatsMax: Readonly<Partial<Record<WorkerState, number>>> = { starting: 60, serving: 10 };
// After this many unanswered heartbeats, a worker does not count as answering. A long task of a worker takes less time.
const silentBeats = 5;
// Connections that a worker may have received without confirming them. Another worker cannot get them while this worker
// lives, so a hung worker must have few. Two keep a busy worker supplied.
const unconfirmedMax = 2;
// Node cannot listen for signals in its first moments, so one of these signals to the process group may end a starting
// worker.
const groupSignals: ReadonlySet<string | null> = new Set(['SIGTERM', 'SIGINT', 'SIGHUP']);
// After this many turns of the event loop without a message, an ended worker has sent all its messages.
const quietTurnsMin = 10;

export type StartOutcome =
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly message: string }
  | { readonly kind: 'interrupted'; readonly message: string };

export interface MemberObserver {
  /** False if the settings have changed since they were sent to the worker. */
  isUpToDate(member: Member): boolean;
  /** Sends the settings in force. Resolves when the worker uses them, or has ended. */
  bringUpToDate(member: Member): Promise<unknown>;
  onReady(member: Member): void;
  /** The worker has confirmed connections, so it may get others. */
  onRoom(): void;
  /** Another worker must serve these connections. `isLost`: they did not reach this worker. */
  onHandedBack(sockets: readonly Socket[], member: Member, isLost: boolean): void;
  onFault(member: Member): void;
  onCount(member: Member, requests: readonly CountRequest[]): void;
  onKeys(place: string, keys: FetchedKeys): void;
  onUnreachable(member: Member, error: Error): void;
  /** The worker has ended. Called before `exited` resolves. */
  onGone(member: Member): void;
  /** Called after `onGone`, but not if the OS could not create the process. */
  onExit(member: Member, code: number | null, signal: string | null): void;
}

type Answer = Extract<FromWorker, { kind: 'report' | 'reloaded' | 'reload-finished' }>;

export class Member implements Receiver {
  /** The gateway's settings that were last sent to the worker. */
  settings: Settings;
  readonly startedAt = performance.now();
  readonly started: Promise<StartOutcome>;
  readonly exited: Promise<undefined>;
  #readyAt: number | undefined;
  #state: WorkerState = 'starting';
  #departure: Departure | undefined;
  readonly #process: ChildProcess;
  readonly #observer: MemberObserver;
  // By the answer's kind and id.
  readonly #awaitedAnswers = new Map<string, (answer: Answer) => void>();
  // Connections that the worker has not confirmed, by number, and the time when they were passed.
  readonly #unconfirmed = new Map<number, { readonly socket: Socket; readonly at: number }>();
  #sentCount = 0;
  // The number of the worker's connections in its last `pong`, and the number of the connection sent before the `ping`.
  #open = 0;
  #openSince = 0;
  #lastReport: Report | undefined;
  #nextId = 0;
  #missedBeats = 0;
  #isKilled = false;

  constructor(child: ChildProcess, settings: Settings, start: WorkerStart, observer: MemberObserver) {
    this.#process = child;
    this.#observer = observer;
    this.settings = settings;
    const started = Promise.withResolvers<StartOutcome>();
    const exited = Promise.withResolvers<undefined>();
    this.started = started.promise;
    this.exited = exited.promise;
    this.#watchEnd(started.resolve, () => exited.resolve(undefined));
    this.#process.on('message', (message: FromWorker) => this.#onMessage(message, started.resolve));
    this.send({ kind: 'start', settings: toPlain(settings), ...start });
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  get state(): WorkerState {
    return this.#state;
  }

  /** The first reason why the worker was to end; undefined if there was none. */
  get departure(): Departure | undefined {
    return this.#departure;
  }

  get isAnswering(): boolean {
    return this.#state === 'serving' && this.#missedBeats < silentBeats;
  }

  get readyAt(): number | undefined {
    return this.#readyAt;
  }

  /** The last report of the worker, also after its end. */
  get lastReport(): Report | undefined {
    return this.#lastReport;
  }

  get hasRoom(): boolean {
    return this.#unconfirmed.size < unconfirmedMax;
  }

  get isLate(): boolean {
    const [oldest] = this.#unconfirmed.values();
    return oldest !== undefined && performance.now() - oldest.at >= lateMs;
  }

  get connections(): number {
    return this.#open + this.#sentCount - this.#openSince;
  }

  /** Notes that the worker is to end. From now on, it gets no connections. The caller makes the worker end. */
  leave(departure: Departure): void {
    this.#state = nextState(this.#state, 'leave');
    this.#departure ??= departure;
  }

  send(message: ToWorker): void {
    if (this.#process.connected) {
      // A failed send means that the worker has ended. It is ignored, because the event `exit` reports this end.
      this.#process.send(message, () => undefined);
    }
  }

  /**
   * Passes a connection to the worker. This process keeps the connection until the worker has confirmed it. If the worker
   * does not, the observer gets the connection back.
   */
  take(socket: Socket): void {
    this.#sentCount += 1;
    this.#unconfirmed.set(this.#sentCount, { socket, at: performance.now() });
    const message: ToWorker = { kind: 'connection', number: this.#sentCount };
    // Without `keepOpen`, Node would close this process's descriptor when the worker has received the connection. If the
    // sending fails, the worker has ended or its next `pong` shows the loss.
    this.#process.send(message, socket, { keepOpen: true }, () => undefined);
  }

  /** Sends these certificates to the worker if it has started. */
  renewTls(tls: TlsInForce): void {
    if (this.#state !== 'starting') this.send({ kind: 'renew-tls', tls });
  }

  /**
   * Makes the worker serve new connections with `settings`, as `ServingProcesses.reload` does [D65]. Rejects with a
   * StartError if the worker cannot use them; then it keeps those before. If the worker ends, its successor gets them, so
   * the reload succeeds.
   */
  async reload(
    settings: Settings,
    tls: TlsInForce,
    keys?: FetchedKeys,
  ): Promise<{ readonly finished: Promise<unknown> }> {
    const before = this.settings;
    this.settings = settings;
    const id = (this.#nextId += 1);
    this.send({ kind: 'reload', id, settings: toPlain(settings), tls, keys });
    const finished = this.#answer('reload-finished', id);
    const reloaded = await this.#answer('reloaded', id);
    if (reloaded?.problem === undefined) return { finished };
    this.settings = before;
    throw new StartError(reloaded.problem, undefined);
  }

  /** Requests a report. Resolves when `lastReport` is new, or when the worker does not answer or has ended. */
  async report(request: ReportRequest): Promise<void> {
    if (this.#readyAt === undefined || this.#missedBeats > 1) return;
    const id = (this.#nextId += 1);
    const timeout = Promise.withResolvers<undefined>();
    const callOff = startDeadline(reportTimeoutMs, () => timeout.resolve(undefined));
    this.send({ kind: 'report', id, request });
    await this.#answer('report', id, timeout.promise);
    callOff();
  }

  /**
   * If too many heartbeats are unanswered, only returns their number. Otherwise counts a heartbeat. Sends it to a serving
   * worker that has answered the last one. Each message of the worker answers all heartbeats so far.
   */
  beat(): number | undefined {
    const max = missedBeatsMax[this.#state];
    if (max === undefined) return undefined;
    if (this.#missedBeats >= max) return this.#missedBeats;
    this.#missedBeats += 1;
    if (this.#state === 'serving' && this.#missedBeats === 1) this.send({ kind: 'ping', number: this.#sentCount });
    return undefined;
  }

  kill(): void {
    this.#isKilled = true;
    this.#process.kill('SIGKILL');
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
    if (this.#state === 'ended') return;
    this.#missedBeats = 0;
    switch (message.kind) {
      case 'ready':
        this.#lastReport = message.report;
        void this.#becomeReady().then(() => onStarted(message));
        break;
      case 'start-error':
        onStarted({ kind: 'failed', message: message.message });
        break;
      case 'taken':
        this.#onTaken(message.number);
        break;
      case 'pong':
        this.#onPong(message.number, message.open);
        break;
      case 'fault':
        this.#observer.onFault(this);
        // The worker confirms no connection after this message.
        this.#handBack([...this.#unconfirmed.keys()]);
        onStarted({ kind: 'failed', message: 'a worker had an internal error during its start' });
        break;
      case 'count':
        this.#observer.onCount(this, message.requests);
        break;
      case 'keys':
        this.#observer.onKeys(message.place, message.keys);
        break;
      default:
        if (message.kind === 'report') this.#lastReport = message.report ?? this.#lastReport;
        this.#awaitedAnswers.get(`${message.kind} ${message.id}`)?.(message);
        break;
    }
  }

  // A worker counts as starting until it uses the settings in force, so no call begins with older guards [D65].
  async #becomeReady(): Promise<void> {
    while (!this.#observer.isUpToDate(this)) await this.#observer.bringUpToDate(this);
    if (this.#state === 'ended') return;
    this.#state = nextState(this.#state, 'ready');
    this.#readyAt = performance.now();
    this.#observer.onReady(this);
  }

  #onTaken(number: number): void {
    this.#unconfirmed.get(number)?.socket.destroy();
    this.#unconfirmed.delete(number);
    this.#observer.onRoom();
  }

  // Messages arrive in order. So a connection that was sent before the ping, and that is not confirmed before the pong, did
  // not reach the worker. Node drops a message whose descriptor cannot be received.
  #onPong(number: number, open: number): void {
    this.#open = open;
    this.#openSince = number;
    this.#handBack(
      [...this.#unconfirmed.keys()].filter((each) => each <= number),
      true,
    );
  }

  #handBack(numbers: readonly number[], isLost = false): void {
    const sockets = numbers.flatMap((number) => this.#unconfirmed.get(number)?.socket ?? []);
    for (const number of numbers) this.#unconfirmed.delete(number);
    if (sockets.length > 0) this.#observer.onHandedBack(sockets, this, isLost);
  }

  #watchEnd(onStarted: (outcome: StartOutcome) => void, onExited: () => void): void {
    const child = this.#process;
    const end = (kind: 'failed' | 'interrupted', message: string): void => {
      this.#state = nextState(this.#state, 'end');
      this.#observer.onGone(this);
      this.#handBack([...this.#unconfirmed.keys()]);
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
        const advice = signal === 'SIGKILL' && !this.#isKilled ? ': check whether the system was out of memory' : '';
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

// Resolves when the last messages of an ended worker have been read. They are in its channel already, so they are read in
// the next turns of the event loop. Does not wait for 'disconnect', which Node does not emit after every death.
async function lastMessagesOf(child: ChildProcess): Promise<void> {
  let quietTurns = 0;
  const onMessage = (): void => {
    quietTurns = 0;
  };
  child.on('message', onMessage);
  for (; child.connected && quietTurns < quietTurnsMin; quietTurns += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  child.off('message', onMessage);
}
