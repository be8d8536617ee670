// A plan in words, for whoever runs `capacity`, and the one line that says what breaks first.

import { figures } from './figures.ts';
import { planCapacity, type Demand, type LimitSettings, type Plan } from './plan.ts';

// Past so many times the rate nobody plans today.
const farFactor = 10;

/** `12,345`; of what is not exact, two digits. */
export function describeCount(value: number): string {
  return value.toLocaleString('en-US', { maximumFractionDigits: 0 });
}

export function describeAbout(value: number): string {
  return value.toLocaleString('en-US', { maximumSignificantDigits: 2 });
}

/** `114 Mbit/s`. */
export function describeBits(bits: number): string {
  return bits >= 1e9 ? `${describeAbout(bits / 1e9)} Gbit/s` : `${describeAbout(bits / 1e6)} Mbit/s`;
}

/** `512 MiB`, or in GiB where it is more than a few. */
export function describeMib(mebibytes: number): string {
  return mebibytes >= 4_096 ? `${describeAbout(mebibytes / 1_024)} GiB` : `${describeCount(mebibytes)} MiB`;
}

/** What ends first as the rate grows, however many processes are added. */
export function describeFirstLimit({ rate }: Demand, { ceilings }: Plan): string {
  const [first] = ceilings;
  if (first === undefined || first.rate > rate * farFactor) {
    return `the backend: nothing around it ends below ${farFactor} times this rate, as long as gateways are added`;
  }
  const at = `${first.name}, at about ${describeAbout(first.rate)} calls a second`;
  const isPast = first.rate < rate;
  return `${at}${isPast ? ', before this rate' : ''}: ${first.why}. ${isPast ? 'It takes' : 'Then it takes'} ${first.remedy}`;
}

function describeSettings(settings: LimitSettings): string {
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ');
}

function describeDemand(demand: Demand): string {
  const extras = [
    ...(demand.tls ? ['TLS'] : []),
    ...(demand.tokens ? ['Tokens'] : []),
    ...(demand.redis ? ['Rate limit in Redis'] : demand.rateLimit ? ['Rate limit'] : []),
    demand.requestLog ? 'LOG_LEVEL=info' : 'LOG_LEVEL=warn',
  ];
  return `${describeCount(demand.rate)} calls a second with bodies of ${describeCount(demand.bodyBytes)} bytes, ${describeAbout(demand.writeShare * 100)} % creates and updates.
The backend takes ${demand.backendMs} ms. ${extras.join(', ')}.`;
}

function describePlan(demand: Demand, plan: Plan): string {
  const { pods, machines, backend, redis } = plan;
  const { cpuRequestMillis, memoryRequestMib, memoryLimitMib } = pods;
  const busy = `${figures.busyShare * 100} %`;
  const rows: [string, ...string[]][] = [
    [
      'A call',
      `${describeAbout(plan.callUs)} µs of processor time in a process that is ${busy} busy; ${describeAbout(plan.flatOutUs)} µs flat out`,
    ],
    [
      'A process',
      `${describeAbout(plan.processRate)} calls a second at ${busy}, ${describeAbout(plan.processRateMax)} at most`,
    ],
    [
      'Kubernetes',
      `${describeCount(pods.count)} pods of one process: ${describeCount(plan.processes)} for the calls and 1 that may fail; ${describeAbout(plan.coresBusy)} cores in use`,
      `requests: cpu ${cpuRequestMillis}m, memory ${memoryRequestMib}Mi; limits: memory ${memoryLimitMib}Mi, none for cpu`,
      `minReplicas ${pods.count}, maxReplicas ${pods.countMax}; ${pods.descriptors} file descriptors in each`,
      describeSettings(pods.settings),
    ],
    [
      'Or machines',
      `${describeCount(machines.count)}, each with ${machines.workers === 1 ? '1 core' : `${machines.workers} cores`} and ${describeMib(machines.memoryMib)} for the gateway: 1 of them may fail`,
      `WORKERS=${machines.workers} ${describeSettings(machines.settings)}`,
      `ulimit -n ${machines.descriptors}`,
    ],
    [
      'Connections',
      `${describeCount(plan.connections)} of clients, ${describeCount(backend.connections)} to the backend`,
    ],
    [
      'Network',
      `${describeBits(plan.bitsPerSecond)} each way, on the side of the clients and again on the backend's`,
    ],
    [
      'Backend',
      `${describeCount(demand.rate)} calls a second, ${describeCount(backend.connections)} at once`,
      `where it takes ${describeCount(backend.msMax)} ms, calls are turned away with 503`,
    ],
    ...(redis === undefined
      ? []
      : [
          [
            'Redis',
            `${describeCount(redis.questionsPerSecond)} questions a second: ${describeAbout(redis.cores * 100)} % of its one thread${redis.cores > 1 ? ', so one Redis is not enough' : ''}`,
            `${redis.clientBytes} bytes for each client in its window`,
          ] satisfies [string, ...string[]],
        ]),
    ['Breaks first', describeFirstLimit(demand, plan)],
  ];
  const width = Math.max(...rows.map(([title]) => title.length)) + 2;
  const lines = rows.flatMap(([title, ...texts]) =>
    texts.map((text, index) => `${(index === 0 ? title : '').padEnd(width)}${text}`),
  );
  return `${describeDemand(demand)}

${lines.join('\n')}

Measured on one small machine: docs/capacity.md says how this is counted and what is not. Measure yours before you buy.
`;
}

/** All that `capacity` prints: in words, or as JSON. */
export function describeCapacity(demand: Demand, isJson: boolean): string {
  const plan = planCapacity(demand);
  return isJson
    ? `${JSON.stringify({ demand, plan, breaksFirst: describeFirstLimit(demand, plan) }, null, 2)}\n`
    : describePlan(demand, plan);
}
