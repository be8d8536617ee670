// Fuzzes HTTP/2 connections: `npm run fuzz -- http2`. Sends random frames in random pieces over real sockets. Checks that
// every connection ends, that the tables of states allow each change, and that nothing is held afterwards. The seed and
// each finding are printed; a finding gives exit code 1.

import { parseArgs } from 'node:util';
import { poll } from '../helpers/changes.ts';
import { startGateway } from '../helpers/gateway.ts';
import { attack } from '../helpers/hostile-frames.ts';
import { watchHttp2States } from '../helpers/http2-states.ts';
import { accounted } from '../helpers/leftovers.ts';
import { answer, latency, timeout, type Answer } from '../helpers/scripted-backend.ts';

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '60' }, seed: { type: 'string', default: String(Date.now()) } },
});
const atOnce = 40;
// Short enough for a run, and longer than a connection needs to send its frames.
const limitMs = 2_000;
const answers: Answer[] = [answer('{"id":5}'), answer(`"${'x'.repeat(200_000)}"`), latency(30, answer('[]')), timeout];

function report(what: string): void {
  console.log(what);
  process.exitCode = 1;
}

console.log(`seed ${values.seed}, ${values.seconds} s`);
const wrongMoves = watchHttp2States();
const settings = {
  requestHeadersTimeoutMs: limitMs,
  requestTimeoutMs: limitMs,
  replyStallTimeoutMs: limitMs,
  idleTimeoutMs: limitMs,
  backendTimeoutMs: 1_000,
  backendIdleTimeoutMs: 200,
};
const end = performance.now() + Number(values.seconds) * 1_000;
let seed = Number(values.seed);
let count = 0;
while (performance.now() < end && process.exitCode === undefined) {
  try {
    await using server = accounted(await startGateway({ host: 'http2', settings }));
    let calls = 0;
    server.backend.answers((exchange) => answers[(calls += 1) % answers.length]?.(exchange));
    const first = seed;
    for (let round = 0; round < 6; round += 1) {
      const clients = await Promise.all(
        Array.from({ length: atOnce }, (_, index) => attack(server.port, seed + index)),
      );
      seed += atOnce;
      count += atOnce;
      await poll(() => server.clients.size === 0, `all connections have ended, from seed ${first}`);
      for (const client of clients) client[Symbol.dispose]();
    }
    for (const [error] of server.told.bugs) report(`a bug, from seed ${first}: ${String(error)}`);
    if (new Set(server.told.stalled).size < server.told.stalled.length) report(`a stall reported twice, seed ${first}`);
  } catch (error) {
    report(`seed ${seed}: ${String(error)}`);
  }
}
for (const move of wrongMoves) report(`a change of state that its table does not allow: ${move}`);
console.log(`${count} connections, ${process.exitCode === undefined ? 'no findings' : 'findings'}`);
