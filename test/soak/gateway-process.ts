// Starts the built command for the soak and reads its log, metrics, open files, and memory after a garbage collection.
// Only error lines of the log are kept.

import { spawn, type ChildProcess } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { within } from '../helpers/changes.ts';
import { request } from '../helpers/raw-client.ts';

/** The resources that an idle gateway uses. */
export interface Holdings {
  readonly rssBytes: number;
  readonly heapBytes: number;
  readonly externalBytes: number;
  /** The number of active resources by Node's type names. */
  readonly resources: ReadonlyMap<string, number>;
  readonly files: number | undefined;
  readonly requestsInFlight: number;
  readonly bufferedBytes: number;
  readonly backendConnections: number;
  readonly bugs: number;
}

// Lines of Node on standard error about its inspector.
const inspectorLines = /^(?:Debugger |For help, see:|$)/;

export class GatewayProcess {
  port = 0;
  adminPort = 0;
  /** Lines at `error` or `fatal`, and all of standard error. */
  readonly complaints: string[] = [];
  exit: { code: number | null; signal: NodeJS.Signals | null } | undefined;
  readonly exited: Promise<void>;
  linesCount = 0;
  /** The duration, from the gateway's log, of the longest call that reached the deadline. */
  longestTimedOutMs = 0;
  readonly #process: ChildProcess;
  #inspectorUrl = '';

  private constructor(environment: NodeJS.ProcessEnv) {
    // The inspector is only for garbage collections.
    this.#process = spawn(
      process.env['GATEWAY_NODE'] ?? process.execPath,
      ['--inspect=127.0.0.1:0', resolve(import.meta.dirname, '../../dist/command/main.js'), 'serve'],
      { env: { PATH: process.env['PATH'], ...environment }, stdio: ['ignore', 'pipe', 'pipe'] },
    );
    const kill = () => this.#process.kill('SIGKILL');
    process.once('exit', kill);
    this.exited = new Promise((resolveExit) => {
      this.#process.once('close', (code, signal) => {
        process.off('exit', kill);
        this.exit = { code, signal };
        resolveExit();
      });
    });
  }

  static async start(environment: NodeJS.ProcessEnv): Promise<GatewayProcess> {
    const gateway = new GatewayProcess({
      HOST: '127.0.0.1',
      PORT: '0',
      ADMIN_HOST: '127.0.0.1',
      ADMIN_PORT: '0',
      LOG_FORMAT: 'json',
      ...environment,
    });
    const { promise: ready, resolve: say } = Promise.withResolvers<undefined>();
    const { stdout, stderr } = gateway.#process;
    if (!stdout || !stderr) throw new Error('no pipes');
    createInterface({ input: stdout }).on('line', (line) => {
      if (gateway.#readLine(line)) say(undefined);
    });
    createInterface({ input: stderr }).on('line', (line) => {
      gateway.#inspectorUrl ||= /ws:\/\/\S+/.exec(line)?.[0] ?? '';
      if (!inspectorLines.test(line)) gateway.complaints.push(`stderr: ${line}`);
    });
    await within(Promise.race([ready, gateway.exited]), 'the gateway is ready');
    if (gateway.exit) throw new Error(`the gateway did not start\n${gateway.complaints.join('\n')}`);
    return gateway;
  }

  #readLine(text: string): boolean {
    this.linesCount += 1;
    const line = JSON.parse(text) as Readonly<Record<string, unknown>>;
    if (line['level'] === 'error' || line['level'] === 'fatal') this.complaints.push(text);
    if (line['outcome'] === 'timed-out') {
      this.longestTimedOutMs = Math.max(this.longestTimedOutMs, Number(line['durationMs']));
    }
    if (line['msg'] !== 'ready') return false;
    this.port = Number(new URL(String(line['url'])).port);
    this.adminPort = Number(new URL(String(line['adminUrl'])).port);
    return true;
  }

  /** How long the gateway's main thread has waited for a processor so far, in ms; 0 if unknown. */
  waitedForProcessorMs(): number {
    const { pid = 0 } = this.#process;
    try {
      return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'latin1').split(' ')[1]) / 1e6;
    } catch {
      return 0;
    }
  }

  async holdings(): Promise<Holdings> {
    // Twice: after the finalizers of the first collection, the second can free more memory.
    await this.#collectGarbage();
    await this.#collectGarbage();
    const { text } = await request(this.adminPort, 'GET', '/metrics');
    const value = (name: string) => {
      const match = new RegExp(`^${name} (\\S+)$`, 'm').exec(text);
      if (!match) throw new Error(`no metric ${name}`);
      return Number(match[1]);
    };
    const resources = [...text.matchAll(/^nodejs_active_resources\{type="([^"]+)"\} (\d+)$/gm)];
    return {
      rssBytes: value('process_resident_memory_bytes'),
      heapBytes: value('nodejs_heap_size_used_bytes'),
      externalBytes: value('nodejs_external_memory_bytes'),
      resources: new Map(resources.map(([, type = '', count]) => [type, Number(count)])),
      files: this.#countFiles(),
      requestsInFlight: value('work_item_gateway_requests_in_flight'),
      bufferedBytes: value('work_item_gateway_buffered_bytes'),
      backendConnections: value('work_item_gateway_backend_connections'),
      bugs: value('work_item_gateway_bugs_total'),
    };
  }

  #countFiles(): number | undefined {
    try {
      return readdirSync(`/proc/${this.#process.pid ?? 0}/fd`).length;
    } catch {
      return undefined;
    }
  }

  /** Sends SIGTERM and waits for the end of the drain. */
  async stop(): Promise<void> {
    this.#process.kill('SIGTERM');
    await within(this.exited, 'the gateway ends after SIGTERM', 15_000);
  }

  async #collectGarbage(): Promise<void> {
    const socket = new WebSocket(this.#inspectorUrl);
    const { promise: done, resolve: say, reject } = Promise.withResolvers<undefined>();
    socket.addEventListener('open', () => socket.send('{"id":1,"method":"HeapProfiler.collectGarbage"}'));
    socket.addEventListener('message', () => say(undefined));
    socket.addEventListener('error', () => reject(new Error('the inspector does not answer')));
    await within(done, 'a garbage collection');
    const closed = new Promise((resolveClose) => socket.addEventListener('close', resolveClose));
    socket.close();
    await within(closed, 'the connection to the inspector is closed');
  }
}
