// How soon the gateway and a bare relay over node:net cancel abandoned reads. 2,000 clients, each with a read in flight, disconnect
// together. The measured time ends when the last backend connection has closed.
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { BackendReport } from '../backend.ts';
import type { Scenario } from '../bench.ts';
import { GOALS } from '../figures.ts';
import { formatRange, median } from '../tables.ts';

const CLIENTS = 2_000;
/** The goal is missed only if the gateway also takes longer than this multiple of the bare relay's time. */
const FACTOR_MAX = 1.2;
const LIMIT_MS = 30_000;

export const scenario: Scenario = {
  title: 'time to cancel abandoned reads',
  rounds: 5,
  seconds: 0,
  minutes: 0.5,
  run: async (bench) => {
    const waitFor = async (isIt: (report: BackendReport) => boolean): Promise<BackendReport> => {
      const endsAt = performance.now() + LIMIT_MS;
      while (performance.now() < endsAt) {
        const report = await bench.backend();
        if (isIt(report)) return report;
        await delay(5);
      }
      throw new Error(`the backend did not have the expected number of calls in ${LIMIT_MS} ms`);
    };
    // More calls are in flight than the gateway's default limit allows, so the limit is raised.
    const options = { onAllCores: true, env: { IN_FLIGHT_MAX: String(2 * CLIENTS) } };
    const cases = [];
    for (const name of ['gateway', 'node-net']) cases.push({ name, one: await bench.start(name, options) });
    await bench.backend({ held: true });
    const results = await bench.takeTurns(
      cases,
      async ({ one: { port } }) => {
        const sockets = await Promise.all(
          Array.from({ length: CLIENTS }, async () => {
            const socket = connect({ port, host: '127.0.0.1', noDelay: true });
            socket.on('error', () => undefined);
            await once(socket, 'connect');
            socket.write('GET /api/work-items HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
            return socket;
          }),
        );
        await waitFor(({ held }) => held === CLIENTS);
        for (const socket of sockets) socket.destroy();
        // Node closes destroyed sockets at the end of the event-loop iteration, so the measured time begins after that iteration.
        await new Promise((resolve) => setImmediate(resolve));
        const leftAtMs = Number(process.hrtime.bigint()) / 1e6;
        const { emptyAtMs } = await waitFor(({ held }) => held === 0);
        return emptyAtMs - leftAtMs;
      },
      (ms) => `${ms.toFixed(0)} ms`,
    );
    bench.print(
      `Time until ${CLIENTS} reads are cancelled`,
      ['', 'ms', 'range', 'other work, cores'],
      [...results].map(([{ name }, all]) => [name, median(all).toFixed(0), formatRange(all, 0), bench.noise(name)]),
    );
    const [ours = NaN, bare = NaN] = [...results.values()].map(median);
    if (ours > GOALS.cancelledMs && ours > FACTOR_MAX * bare)
      bench.miss(`${ours.toFixed(0)} ms instead of ${GOALS.cancelledMs} ms or ${FACTOR_MAX} times the relay's time`);
    return { aborts: { ...bench.section, clients: CLIENTS, cancelledMs: { gateway: ours, 'node-net': bare } } };
  },
};
