// Measures how soon abandoned reads are cancelled, by the gateway and by a bare relay over node:net in turns. 2,000 clients, each
// with a read in flight, disconnect at once. The time runs until the last backend connection has closed. Flags: --rounds N (5),
// --clients N (2,000), --bars to fail beyond the limits, --record to place the figures in the documents.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { CONTENDERS, type Contender } from './contenders.ts';
import { record } from './figures.ts';
import { machine, spreadOf, today } from './results.ts';
import { startContender, stopAll } from './running.ts';

// The gateway misses its goal if it takes longer than this, and longer than this multiple of the bare relay's time.
const CANCELLED_MS_MAX = 100;
const FACTOR_MAX = 1.2;
const LIMIT_MS = 30_000;

/** A message from the backend: its port, the number of held requests, or the end of the last one. */
interface Report {
  port?: number;
  held?: number;
  emptyAt?: number;
}

/** The monotonic time of the OS, in ms. It is the same in all processes. */
const nowMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/** Answers `/api/WorkItem/17` and holds every other call until its connection closes. */
function runBackend(): void {
  const answer = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 8\r\n\r\n{"id":1}';
  const held = new Set<Socket>();
  const say = (report: Report): void => void process.send?.(report);
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (bytes: Buffer) => {
      if (/ \/api\/(?:WorkItem|work-items)\/17 /.test(bytes.toString('latin1'))) {
        socket.write(answer);
      } else {
        held.add(socket);
        say({ held: held.size });
      }
    });
    socket.on('close', () => {
      if (held.delete(socket) && held.size === 0) say({ emptyAt: nowMs() });
    });
  });
  process.once('disconnect', () => process.exit());
  server.listen(0, '127.0.0.1', 4_096, () => {
    say({ port: (server.address() as AddressInfo).port });
  });
}

async function measure(): Promise<void> {
  const { values: flags } = parseArgs({
    options: {
      rounds: { type: 'string', default: '5' },
      clients: { type: 'string', default: '2000' },
      bars: { type: 'boolean', default: false },
      record: { type: 'boolean', default: false },
    },
  });
  const clients = Number(flags.clients);
  const backend = fork(import.meta.filename, ['backend']);
  const waiting = new Set<(report: Report) => void>();
  backend.on('message', (report: Report) => {
    for (const each of waiting) each(report);
  });
  const waitFor = async <T>(pick: (report: Report) => T | undefined, what: string): Promise<T> =>
    await new Promise<T>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${what} did not come`)), LIMIT_MS);
      const look = (report: Report): void => {
        const found = pick(report);
        if (found === undefined) return;
        clearTimeout(timer);
        waiting.delete(look);
        resolve(found);
      };
      waiting.add(look);
    });
  const port = await waitFor((report) => report.port, 'the backend');

  const leaveAll = async (gatewayPort: number): Promise<number> => {
    const areHeld = waitFor((report) => (report.held === clients ? true : undefined), 'every call');
    const sockets = await Promise.all(
      Array.from({ length: clients }, async () => {
        const socket = connect({ port: gatewayPort, host: '127.0.0.1', noDelay: true });
        socket.on('error', () => undefined);
        await once(socket, 'connect');
        socket.write('GET /api/work-items/5 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
        return socket;
      }),
    );
    await areHeld;
    const isEmpty = waitFor((report) => report.emptyAt, 'the end of every call');
    for (const socket of sockets) socket.destroy();
    // Node closes destroyed sockets at the end of the event-loop iteration.
    await new Promise((resolve) => setImmediate(resolve));
    const leftAt = nowMs();
    return (await isEmpty) - leftAt;
  };

  const names = ['gateway', 'node-net'];
  const took = new Map<string, number[]>(names.map((name) => [name, []]));
  const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-aborts-'));
  try {
    const running = [];
    for (const contender of CONTENDERS.filter(({ name }) => names.includes(name))) {
      // The calls in flight are more than the gateway's default limit.
      const start: Contender['start'] = (place) => {
        const command = contender.start(place);
        return { ...command, env: { ...command.env, IN_FLIGHT_MAX: String(2 * clients) } };
      };
      running.push(
        await startContender({ ...contender, start }, port, join(folder, contender.name), 'all cores'),
      );
    }
    for (let round = 0; round < Number(flags.rounds); round++)
      for (const one of running) took.get(one.contender.name)?.push(await leaveAll(one.port));
  } finally {
    await stopAll();
    backend.disconnect();
    rmSync(folder, { recursive: true, force: true });
  }
  const [ours = 0, bare = 0] = names.map((name) => {
    const sorted = (took.get(name) ?? []).toSorted((a, b) => a - b);
    const median = sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
    const range = `${sorted[0]?.toFixed(0) ?? ''}–${sorted.at(-1)?.toFixed(0) ?? ''}`;
    console.log(`${name}: ${median.toFixed(0)} ms (${range}) until ${clients} reads are cancelled`);
    return median;
  });
  console.log(`the gateway takes ${(ours / bare).toFixed(2)} of what the bare relay takes`);
  if (flags.record) {
    const rows = names.map((name) => ({ name, cancelledMs: spreadOf(took.get(name) ?? []) }));
    await record('aborts', { date: today, machine, rounds: Number(flags.rounds), clients, rows });
  }
  if (flags.bars && ours > CANCELLED_MS_MAX && ours > FACTOR_MAX * bare) {
    console.log(`over the bar of ${CANCELLED_MS_MAX} ms, or ${FACTOR_MAX} times the relay`);
    process.exitCode = 1;
  }
}

if (process.argv[2] === 'backend') runBackend();
else await measure();
