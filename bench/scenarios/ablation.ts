// Measures the cost of each part of a call: compares the built gateway with a copy of dist/ that lacks the part. In each copy,
// one piece of text is replaced. The copies are not safe to use.
import { cpSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { LoadCase, Scenario } from '../bench.ts';
import { findContender, type Contender } from '../contenders.ts';
import type { Results } from '../results.ts';
import { existing, median } from '../tables.ts';
import { WORKLOADS } from '../workloads.ts';

/** A part, and the change that removes it: in the only file with the text `from`, this text is replaced with `to`. */
type Part = readonly [name: string, from: string, to: string];

const PARTS: readonly Part[] = [
  ['request id', 'readRequestId(fields) {', "readRequestId(fields) { return '0123456789abcdef';"],
  ['trace context', 'readTraceContext(fields) {', 'readTraceContext(fields) { return noTraceContext;'],
  ['figures and log', 'notifyEnd(record, trace) {', 'notifyEnd(record, trace) { return;'],
  ['cross-site and host checks', 'admits(head, client) {', 'admits(head, client) { return true;'],
  ['deadline', 'start(deadline) {', 'start(deadline) { return;'],
  ['budget of buffered bytes', 'take(bytes) {', 'take(bytes) { return true;'],
  ['JSON check', 'function isJson(bytes) {', 'function isJson(bytes) { return true;'],
  ['head and body in one write', 'oneWriteBytesMax = 16384', 'oneWriteBytesMax = -1'],
  ['check of the connection before a request', 'setImmediate(sendAll);', 'sendAll();'],
  ['one clock reading per event', 'instant = clock.now();', ''],
  ['clock', 'monotonicMs() {', 'monotonicMs() { return 1;'],
]; // prettier-ignore

const root = join(import.meta.dirname, '../..');

/** A copy of the gateway without `part`, in build/ so that it finds its packages. */
function takeOut([name, from, to]: Part): Contender {
  const gateway = findContender('gateway');
  const copy = join(root, 'build/ablation', name.replaceAll(' ', '-'));
  rmSync(copy, { recursive: true, force: true });
  cpSync(join(root, 'dist'), copy, { recursive: true });
  const files = globSync(join(copy, 'command/*.js')).filter((path) => readFileSync(path, 'utf8').includes(from));
  const [path = ''] = files;
  const pieces = files.length === 1 ? readFileSync(path, 'utf8').split(from) : [];
  if (pieces.length !== 2) throw new Error(`dist/command does not have "${from}" once`);
  writeFileSync(path, pieces.join(to));
  const start: Contender['start'] = (place) => {
    const command = gateway.start(place);
    return { ...command, args: [join(copy, 'command/main.js'), ...command.args.slice(1)] };
  };
  return { ...gateway, name, start };
}

export const scenario: Scenario = {
  title: 'cost of each part of a call',
  rounds: 7,
  seconds: 1,
  minutes: 10,
  isApart: true,
  run: async (bench) => {
    const whole = findContender('gateway');
    const contenders = bench.choose([whole, ...PARTS.map(takeOut)], ({ name }) => name === whole.name);
    const running = [];
    for (const contender of contenders) running.push(await bench.start(contender));
    const rows = contenders.map(({ name }): Results['ablation']['rows'][number] => ({ name, us: {} }));
    for (const workload of WORKLOADS.filter(({ name }) => ['item', 'put'].includes(name))) {
      const cases = running.map((one): LoadCase => ({
        name: `${one.contender.name}, ${workload.name}`,
        one,
        workload,
      }));
      const results = await bench.loadInTurns(cases);
      const costs = existing(results.get(existing(cases[0])));
      for (const [index, [, without]] of [...results].entries()) {
        // Compares costs of the same round only, since the machine's speed changes between rounds.
        const savings = without.map(({ us }, round) => existing(costs[round]).us - us);
        existing(rows[index]).us[workload.name] = median(index === 0 ? costs.map(({ us }) => us) : savings);
      }
      bench.printCosts(`${workload.title}, each row without one part`, results, {
        'saves, µs': (one) => rows[cases.indexOf(one)]?.us[workload.name]?.toFixed(2),
      });
    }
    rmSync(join(root, 'build/ablation'), { recursive: true, force: true });
    return { ablation: { ...bench.section, rows } };
  },
};
