// Plants faults in copies of the gateway, one in each, and shows that the worlds find them.

import { execFile } from 'node:child_process';
import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

type Fault = readonly [name: string, file: string, search: string, replace: string];

const call = 'packages/core/call/call.ts';
const client = 'packages/core/backend/client.ts';
const connection = 'packages/core/http1/backend-connection.ts';
const pool = 'packages/core/backend/connection-pool.ts';
const server = 'packages/core/http1/client-connection.ts';
const gateway = 'packages/core/call/gateway.ts';
const body = 'packages/core/body/body.ts';
const budget = 'packages/core/body/budget.ts';

/** Each replaces a text that the file has once. */
const faults: readonly Fault[] = [
  ['a block is given back before the OS has it', 'packages/core/http1/borrowed-bytes.ts', 'socket.uncork();', 'socket.uncork();\nif (releases) this.release();'],
  ['a block is given back twice', body, 'this.#blocks = [];\n    this.#block =', 'this.#block ='],
  ['an answer keeps its memory counted', body, 'this.#budget.giveBack(this.#heldBytes);', ''],
  ['a write is sent again', client, '(!this.isWrite && isReusedAndSilent === true)', 'isReusedAndSilent === true'],
  ['a read is never sent again', client, '!this.needsNew &&', 'this.needsNew &&'],
  ['a read is sent again after a part of its answer', connection, 'this.#isSilent = false;', ''],
  ['a call has no deadline', client, 'if (!this.#deadline.isRunning) this.#client.answering.start(this.#deadline);', ''],
  ['the deadline for connecting is not cleared', client, 'this.#secondDeadline?.clear();\n    this.#connection = connection;', 'this.#connection = connection;'],
  ['an answer has no limit', client, 'this.#body.length + piece.length > responseBytesMax', 'false'],
  ['a connection with stray bytes is used again', connection, 'this.breakOff();\n      return;', 'return;'],
  ['one connection is given to two calls', pool, 'this.#waiting.delete(waiting);', ''],
  ['connections do not age', pool, 'Math.min(now + idleMs, usableUntil)', 'now + idleMs'],
  ['a connection is used again after `connection: close`', connection, '!this.#persists || ', ''],
  ['the next request starts before the reply', server, "this.#reading !== 'whole' &&", ''],
  ['`100 Continue` twice', server, 'this.socket.write(continueText);', 'this.socket.write(continueText + continueText);'],
  ['the connection stays open after a reply instead of `100 Continue`', server, "      this.#writing !== 'continue'\n", '      true\n'],
  ['a reply to HEAD has a body', server, "if (this.#head?.method === 'HEAD') {", 'if (this.#isTls) {'],
  ['a body has no time limit', server, 'if (took >= requestTimeoutMs)', 'if (took < 0)'],
  ['idle connections stay', server, "this.#reading === 'new' ? requestHeadersTimeoutMs : idleTimeoutMs", 'Infinity'],
  ['a closed connection stays counted', server, 'this.#holding.count(0);', ''],
  ['what is sent ahead has no limit', 'packages/core/http1/sent-ahead.ts', 'this.isFull ||= this.#bytes.length >= bytesMax;', ''],
  ['a connection takes the whole turn', 'packages/core/http1/turns.ts', 'const startsMax = 16;', 'const startsMax = 1_000;'],
  ['reads of a turn have no limit', 'packages/core/http1/turns.ts', 'const readsMax = 64;', 'const readsMax = 10_000;'],
  ["a guard's decision counts after the client has left", call, "if (this.#state !== 'guarding' || this.#isClientGone) return;", ''],
  ['a call stays counted', call, "if (this.#state === 'calling') this.#gateway.exit();", ''],
  ['a read goes on after its client has left', call, 'this.#exchange?.cancel();\n      this.#noteBackendOutcome', 'this.#noteBackendOutcome'],
  ['a write is cancelled when its client leaves', call, 'if (!isRead(this.#calledOperation)) {', "if (this.operation === undefined) {"],
  ['a body in chunks may be longer', call, 'this.requestBytes > this.#gateway.requestBytesMax', 'this.requestBytes > this.#gateway.requestBytesMax + 1'],
  ['calls in flight have no limit', gateway, 'if (this.budget.calls >= this.#inFlightMax) return false;', ''],
  ['held bytes have no limit', budget, 'if (this.#bytes + bytes > this.bytesMax) return false;', ''],
  ['stalled clients stay', 'packages/core/hosts/clients/stall-watch.ts', 'now - progress.since >= this.#timeoutMs', 'false'],
  ['a drain forgets one connection', 'packages/core/hosts/clients/client-listener.ts', 'this.#connections.size > 0 ||', 'this.#connections.size > 1 ||'],
  ['a reload keeps the old settings', 'packages/command/service/local-service.ts', '      current = fresh;\n', ''],
  ['the fetch handler ignores that its client left', 'packages/core/hosts/fetch/fetch.ts', "signal.addEventListener('abort', this.#onAbort);", ''],
  ['a reply of the Node handler stays counted', 'packages/core/hosts/node/node-exchange.ts', "response.once('close', () => budget.giveBack(bytes.length));", ''],
  ['a call does not wait for the first keys', 'packages/core/guards/tokens/tokens.ts', 'await this.#keys.first;', ''],
  ['what is sent ahead is not counted', server, 'const held = this.#ahead.heldBytes + heads', 'const held = heads'],
  ['a body is counted four times', body, 'if (!this.#budget.take(bytes)) return false;\n    this.#heldBytes += bytes;', 'if (!this.#budget.take(4 * bytes)) return false;\n    this.#heldBytes += 4 * bytes;'],
  ['blocks are not given back', body, 'giveBackBlocks(this.#blocks);', ''],
  ['the fetch handler keeps its listener', 'packages/core/hosts/fetch/fetch.ts', "this.#request.signal.removeEventListener('abort', this.#onAbort);", ''],
  ['a read goes on after the end of its client', server, "(this.#reading === 'whole' && isRead)", 'false'],
]; // prettier-ignore

const seeds = 5_000;
const root = join(import.meta.dirname, '../..');

/** Runs worlds with one fault. Returns what was found; undefined if nothing. */
async function find([, file, search, replace]: Fault, folder: string): Promise<string | undefined> {
  await rm(folder, { recursive: true, force: true });
  for (const part of ['packages', 'test/simulation', 'test/helpers', 'package.json'])
    await cp(join(root, part), join(folder, part), { recursive: true });
  const text = await readFile(join(folder, file), 'utf8');
  if (text.split(search).length !== 2) throw new Error(`${file} does not have this text once: ${search}`);
  const faulty = text.replace(search, () => replace);
  await writeFile(join(folder, file), faulty);
  const flags = ['test/simulation/run.ts', '--terse', '--seeds', `1-${seeds}`];
  const found = await promisify(execFile)(process.execPath, flags, { cwd: folder }).then(
    () => undefined,
    (error: unknown) => {
      const { stdout, stderr } = error as { readonly stdout: string; readonly stderr: string };
      return /^seed .*/m.exec(stdout)?.[0] ?? stderr.slice(-2_000);
    },
  );
  await rm(folder, { recursive: true });
  return found;
}

/** Plants each fault. Returns true if every fault is found. */
export async function sabotage(only: string): Promise<boolean> {
  const planted = faults.filter(([name]) => name.includes(only));
  const queue = planted.entries();
  let count = 0;
  const work = async (): Promise<void> => {
    for (const [index, fault] of queue) {
      const found = await find(fault, join(root, 'build/sabotage', String(index)));
      if (found !== undefined) count += 1;
      console.log(
        `${found === undefined ? 'NOT FOUND' : 'found'}  ${fault[0].padEnd(52)} ${found?.slice(0, 120) ?? ''}`,
      );
    }
  };
  await Promise.all([work(), work()]);
  console.log(`${count} of ${planted.length} planted faults were found within ${seeds} worlds`);
  return count === planted.length && count > 0;
}
