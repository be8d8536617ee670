// Writes the tables of docs/capacity.md, by the calculator of `work-item-gateway capacity`: what stands between the marks
// `<!-- NAME, by ... -->` and `<!-- end -->`. A test fails when they are stale. The text around them is by hand.

import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { format, resolveConfig } from 'prettier';

import { readDemand, type GivenFlags } from '../src/capacity/flags.ts';
import { planCapacity, type Demand, type Plan } from '../src/capacity/plan.ts';
import {
  describeAbout,
  describeBits,
  describeCapacity,
  describeCount,
  describeFirstLimit,
} from '../src/capacity/report.ts';

const path = fileURLToPath(new URL('../docs/capacity.md', import.meta.url));
const rates = ['1k', '10k', '100k', '1M'];

interface Column {
  readonly demand: Demand;
  readonly plan: Plan;
}

function column(flags: GivenFlags): Column {
  const { demand, problems } = readDemand(flags);
  if (problems.length > 0) throw new Error(problems.join('; '));
  return { demand, plan: planCapacity(demand) };
}

/** A table with a column for each of `columns`. */
function table(
  heads: readonly string[],
  columns: readonly Column[],
  rows: readonly (readonly [string, (each: Column) => string])[],
): string {
  const lines = [
    heads,
    heads.map((_, index) => (index === 0 ? '---' : '--:')),
    ...rows.map(([name, show]) => [name, ...columns.map(show)]),
  ];
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

function tableOfRates(flags: GivenFlags): string {
  const columns = rates.map((rate) => column({ '--rate': rate, ...flags }));
  return table(['Calls a second', ...columns.map(({ demand }) => describeCount(demand.rate))], columns, [
    ['processes for the calls', ({ plan }) => describeCount(plan.processes)],
    ['**pods**, one more', ({ plan }) => `**${describeCount(plan.pods.count)}**`],
    ['cores in use', ({ plan }) => describeAbout(plan.coresBusy)],
    ['request of a pod, cpu', ({ plan }) => `${plan.pods.cpuRequestMillis}m`],
    [
      'memory, request and limit',
      ({ plan }) => `${plan.pods.memoryRequestMib}Mi, ${plan.pods.memoryLimitMib}Mi`,
    ],
    ['`IN_FLIGHT_MAX` of a pod', ({ plan }) => describeCount(plan.pods.settings.IN_FLIGHT_MAX)],
    ['file descriptors of a pod', ({ plan }) => describeCount(plan.pods.descriptors)],
    ['or **machines** of 4 cores, one more', ({ plan }) => `**${describeCount(plan.machines.count)}**`],
    ['client connections', ({ plan }) => describeCount(plan.connections)],
    ['backend connections', ({ plan }) => describeCount(plan.backend.connections)],
    ['503 where the backend takes', ({ plan }) => `${describeCount(plan.backend.msMax)} ms`],
    ['network, each way', ({ plan }) => describeBits(plan.bitsPerSecond)],
    ...(flags['--redis'] === undefined
      ? []
      : ([
          ['questions to Redis', ({ plan }) => describeCount(plan.redis?.questionsPerSecond ?? 0)],
          ['of Redis’ one thread', ({ plan }) => `${describeAbout((plan.redis?.cores ?? 0) * 100)} %`],
        ] satisfies [string, (each: Column) => string][])),
    [
      'breaks first',
      ({ demand, plan }) => describeFirstLimit(demand, plan).replace(/(?:, before this rate)?:.*/, ''),
    ],
  ]);
}

const sections: Readonly<Record<string, () => string>> = {
  example: () => {
    const { demand } = column({ '--rate': '10k', '--redis': true });
    return `\`\`\`console\n$ work-item-gateway capacity --rate 10k --redis\n${describeCapacity(demand, false)}\`\`\``;
  },
  plain: () => tableOfRates({}),
  guarded: () => tableOfRates({ '--tls': true, '--tokens': true, '--redis': true }),
  bodies: () => {
    const columns = ['432', '2k', '42k', '417k', '10M'].map((body) =>
      column({ '--rate': '1k', '--body': body }),
    );
    return table(
      ['Bytes of a body', ...columns.map(({ demand }) => describeCount(demand.bodyBytes))],
      columns,
      [
        ['µs a call, flat out', ({ plan }) => describeAbout(plan.flatOutUs)],
        ['calls a second of a process', ({ plan }) => describeAbout(plan.processRate)],
        ['pods', ({ plan }) => describeCount(plan.pods.count)],
        ['memory limit of a pod', ({ plan }) => `${plan.pods.memoryLimitMib}Mi`],
        ['network, each way', ({ plan }) => describeBits(plan.bitsPerSecond)],
      ],
    );
  },
};

/** The text of docs/capacity.md with its tables as they are to be. */
export async function createCapacityDoc(): Promise<string> {
  const names: string[] = [];
  const text = readFileSync(path, 'utf8').replace(
    /(<!-- (\w+), by `npm run docs` -->\n).*?(<!-- end -->)/gs,
    (_, start: string, name: string, end: string) => {
      const section = sections[name];
      if (section === undefined)
        throw new Error(`docs/capacity.md has a mark for ${name}, which is not known`);
      names.push(name);
      return `${start}\n${section()}\n\n${end}`;
    },
  );
  const missing = Object.keys(sections).filter((name) => !names.includes(name));
  if (missing.length > 0) throw new Error(`docs/capacity.md has no mark for ${missing.join(', ')}`);
  return await format(text, { ...(await resolveConfig(path)), parser: 'markdown' });
}

if (import.meta.main) {
  writeFileSync(path, await createCapacityDoc());
}
