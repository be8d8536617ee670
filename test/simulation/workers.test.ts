// Worlds of workers keep their invariants (workers.ts), and faults planted in the primary process are found.

import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';
import { test } from 'node:test';
import type { startPool } from '../../packages/command/cluster/worker-pool.ts';
import { runWorld } from './workers.ts';

const seeds = Array.from({ length: 300 }, (_, seed) => seed);

test('in 300 worlds no connection is lost that a worker had not begun to serve, each missing worker is started, and each drain ends [D33, D63, D65]', async () => {
  for (const seed of seeds) await runWorld(seed);
});

test('a seed always gives the same history', async () => {
  assert.equal(await runWorld(7), await runWorld(7));
});

/** Planted faults: a file of the cluster, a text in it, and the text in its place. */
const faults = [
  ['member', 'void lastMessagesOf(child)', 'void Promise.resolve()'],
  ['member', 'await this.#observer.bringUpToDate(this);', '{ void this.#observer.bringUpToDate(this); break; }'],
  ['member', 'each <= number', 'each < number'],
  ['member', 'this.#unconfirmed.get(number)?.socket.destroy();', ''],
  ['worker-pool', 'if (this.#pause !== undefined) return;\n    this.#early', 'if (this.#earlyDeaths > 2) return;\n    this.#early'],
  ['worker-pool', 'member.renewTls(this.#tls);', ''],
  ['worker-pool', 'this.#distributor.close();', ''],
  ['worker-pool', "member.leave('fault');", ''],
  ['worker-state', "draining: { ready: 'draining'", "draining: { ready: 'serving'"],
  ['distributor', 'this.#waiting.splice(index, 0, ...added);', 'this.#waiting.push(added[0]!);'],
] as const; // prettier-ignore

registerHooks({
  resolve: (name, context, next) => {
    const { url, ...rest } = next(name, context);
    const [, query = ''] = /(\?fault=\d+)$/.exec(context.parentURL ?? '') ?? [];
    return { ...rest, url: url.includes('/cluster/') && !url.includes('?') ? url + query : url };
  },
  load: (url, context, next) => {
    const loaded = next(url, context);
    const [, name, index = ''] = /\/([\w-]+)\.ts\?fault=(\d+)$/.exec(url) ?? [];
    const [file, from, to] = faults[Number(index)] ?? [];
    if (index === '' || file !== name || from === undefined) return loaded;
    const text = (loaded.source as Buffer).toString();
    assert.ok(text.includes(from), from);
    return { ...loaded, source: text.replace(from, () => to) };
  },
});

for (const [index, [file, from, to]] of faults.entries()) {
  test(`a planted fault is found: ${to} instead of ${from} in ${file}.ts`, async () => {
    const path = `../../packages/command/cluster/worker-pool.ts?fault=${index}`;
    const faulty = (await import(path)) as { readonly startPool: typeof startPool };
    await assert.rejects(async () => {
      for (const seed of seeds) await runWorld(seed, faulty.startPool);
    });
  });
}
