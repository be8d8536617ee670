// The calculator of `capacity`: what it counts, and what it says to bad flags.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { assumptions, figures } from '../../src/capacity/figures.ts';
import { readDemand, type GivenFlags } from '../../src/capacity/flags.ts';
import {
  busyAt,
  flatOutCost,
  planCapacity,
  rateAt,
  type Demand,
  type Plan,
} from '../../src/capacity/plan.ts';
import { describeCapacity, describeFirstLimit } from '../../src/capacity/report.ts';
import { limits } from '../../src/gateway/limits.ts';
import { neededMemory } from '../../src/process/memory.ts';

function demandOf(flags: GivenFlags): Demand {
  const { demand, problems } = readDemand(flags);
  assert.deepEqual(problems, []);
  return demand;
}

const planOf = (flags: GivenFlags): Plan => planCapacity(demandOf(flags));

describe('the cost of a call', () => {
  const reads: GivenFlags = { '--rate': '1k', '--write-share': '0' };

  test('is what was measured, where it was measured: small reads, lists, and a steady rate', () => {
    assert.equal(flatOutCost(demandOf(reads)), figures.readUs);
    for (const [bytes, us] of [
      [figures.listBytes, figures.listUs],
      [figures.longListBytes, figures.longListUs],
    ] as const) {
      const cost = flatOutCost(demandOf({ ...reads, '--body': String(bytes) }));
      assert.ok(Math.abs(cost - us) < 1e-9, `${bytes} bytes: ${cost}`);
    }
    const busy = busyAt(figures.steadyRate, figures.steadyFlatOutUs);
    assert.ok(Math.abs(busy - (figures.steadyRate * figures.steadyUs) / 1e6) < 1e-9);
    assert.ok(Math.abs(rateAt(1, figures.readUs) - 1e6 / figures.readUs) < 1e-9);
  });

  test('never falls as bodies grow, nor as anything is turned on', () => {
    let before = 0;
    for (const body of ['0', '432', '433', '2k', '42k', '43k', '417k', '1M', '67108864']) {
      const cost = flatOutCost(demandOf({ ...reads, '--body': body }));
      assert.ok(cost >= before && Number.isFinite(cost), body);
      before = cost;
    }
    const plain = flatOutCost(demandOf(reads));
    for (const flag of ['--tls', '--tokens', '--rate-limit', '--redis', '--request-log'] as const) {
      assert.ok(flatOutCost(demandOf({ ...reads, [flag]: true })) > plain, flag);
    }
    assert.ok(flatOutCost(demandOf({ '--rate': '1k', '--write-share': '100%' })) > plain);
  });

  test('and the rate of a process are each the other way round', () => {
    for (const cost of [10, figures.readUs, 500, 30_000]) {
      for (const busy of [0.1, 0.5, 0.7, 0.99]) {
        assert.ok(Math.abs(busyAt(rateAt(busy, cost), cost) - busy) < 1e-9);
      }
    }
  });
});

describe('a plan', () => {
  const sizes: GivenFlags[] = ['1', '100', '1k', '10k', '33333', '100k', '1M', '100M'].flatMap((rate) =>
    ['0', '432', '42k', '10M', '67108864'].map((body) => ({
      '--rate': rate,
      '--body': body,
      '--redis': true,
    })),
  );

  test('has no process busier than it may be with one of all missing, and none too many', () => {
    for (const flags of sizes) {
      const demand = demandOf(flags);
      const { processes, pods, machines } = planCapacity(demand);
      const cost = flatOutCost(demand);
      assert.ok(busyAt(demand.rate / processes, cost) <= figures.busyShare + 1e-9, JSON.stringify(flags));
      if (processes > 1) assert.ok(busyAt(demand.rate / (processes - 1), cost) > figures.busyShare);
      assert.equal(pods.count, processes + 1);
      assert.ok(machines.count >= 2 && machines.workers >= 1);
    }
  });

  test('has memory for its limits as the gateway itself counts it, and limits that can be set', () => {
    for (const flags of sizes) {
      const demand = demandOf(flags);
      const { pods, machines } = planCapacity(demand);
      for (const { settings, memoryMib, workers } of [
        { ...pods, memoryMib: pods.memoryLimitMib, workers: 1 },
        machines,
      ]) {
        const { IN_FLIGHT_MAX, CONNECTIONS_MAX, BUFFERED_BYTES_MAX, REQUEST_BYTES_MAX } = settings;
        assert.ok(memoryMib * 2 ** 20 >= neededMemory({ bufferedBytesMax: BUFFERED_BYTES_MAX, workers }));
        assert.ok(BUFFERED_BYTES_MAX >= demand.bodyBytes);
        for (const [value, limit] of [
          [IN_FLIGHT_MAX, limits.inFlightMax],
          [CONNECTIONS_MAX, limits.connectionsMax],
          [BUFFERED_BYTES_MAX, limits.bufferedBytesMax],
          [REQUEST_BYTES_MAX ?? limits.requestBytesMax.standard, limits.requestBytesMax],
        ] as const) {
          assert.ok(
            Number.isInteger(value) && value >= limit.min && value <= limit.max,
            JSON.stringify(flags),
          );
        }
        assert.equal(
          REQUEST_BYTES_MAX,
          demand.bodyBytes > limits.requestBytesMax.standard ? demand.bodyBytes : undefined,
        );
      }
      assert.ok(pods.memoryRequestMib <= pods.memoryLimitMib);
    }
  });

  test('has processes for the connections too, where these are what there is much of', () => {
    const { processes, pods, machines } = planOf({ '--rate': '1k', '--connections': '10M' });
    assert.equal(processes, 10_000_000 / assumptions.connectionsOfProcess);
    assert.ok(pods.settings.CONNECTIONS_MAX * processes >= 10_000_000);
    assert.ok(machines.settings.CONNECTIONS_MAX * (machines.count - 1) >= 10_000_000);
    // As deploy/systemd has it.
    assert.ok(pods.descriptors <= 65_536 && machines.descriptors <= 65_536);
  });

  test('leaves room for a backend that is so much slower, and says when calls are turned away', () => {
    for (const rate of ['1k', '10k', '100k', '1M']) {
      const { backend } = planOf({ '--rate': rate, '--backend-ms': '20' });
      assert.ok(backend.msMax >= 20 * assumptions.slowerBackend, rate);
      assert.equal(backend.connections, (demandOf({ '--rate': rate }).rate * 20) / 1_000);
    }
  });
});

describe('what breaks first', () => {
  const firstOf = (flags: GivenFlags): string => describeFirstLimit(demandOf(flags), planOf(flags));

  test('the backend of a small service, Redis of a large one with it, a link without', () => {
    assert.match(firstOf({ '--rate': '1k', '--redis': true }), /^the backend: /);
    assert.match(firstOf({ '--rate': '100k', '--redis': true }), /^Redis, at about [\d,]+ calls a second: /);
    assert.match(firstOf({ '--rate': '1M', '--redis': true }), /^Redis, .*, before this rate: /);
    assert.match(firstOf({ '--rate': '1M' }), /^the balancer, .*, before this rate: /);
    assert.match(firstOf({ '--rate': '5k', '--body': '1M' }), /^the balancer, .*, before this rate: /);
  });

  test('Redis ends where its thread is as busy as it may be', () => {
    const [redis] = planOf({ '--rate': '100k', '--redis': true }).ceilings.filter(
      ({ name }) => name === 'Redis',
    );
    assert.ok(redis);
    for (const [factor, isAbove] of [
      [0.95, false],
      [1.05, true],
    ] as const) {
      const { redis: asked } = planOf({ '--rate': String(Math.round(redis.rate * factor)), '--redis': true });
      // The plan has one process more, which asks as well.
      assert.equal((asked?.cores ?? 0) > figures.busyShare + 0.02, isAbove, String(factor));
    }
  });
});

describe('its flags', () => {
  test('take amounts in the usual ways', () => {
    for (const [text, rate] of [
      ['1000', 1_000],
      ['10k', 10_000],
      ['1.5M', 1_500_000],
      ['1,000,000', 1_000_000],
      ['1_000', 1_000],
      ['0.1G', 100_000_000],
    ] as const) {
      assert.equal(demandOf({ '--rate': text }).rate, rate, text);
    }
    assert.equal(demandOf({ '--rate': '1', '--body': '2kB' }).bodyBytes, 2_000);
    assert.equal(demandOf({ '--rate': '1', '--write-share': '5%' }).writeShare, 0.05);
    assert.ok(demandOf({ '--rate': '1', '--redis': true }).rateLimit);
  });

  test('all that is wrong is told at once, each in its place', () => {
    const { problems } = readDemand({
      '--rate': '0',
      '--body': '64G',
      '--write-share': '20',
      '--backend-ms': true,
      '--connections': '1.5',
      '--cores': '-4',
      '--tls': 'yes',
    });
    const flags = ['--tls', '--rate', '--body', '--write-share', '--backend-ms', '--connections', '--cores'];
    assert.deepEqual(
      problems.map((problem) => problem.split(' ')[0]),
      flags,
    );
    assert.match(problems[1] ?? '', /^--rate is "0", but must be a number of calls a second/);
    assert.match(readDemand({}).problems[0] ?? '', /^--rate is missing/);
  });

  test('nothing that is no number is taken for one, and no secret is shown', () => {
    for (const text of [
      '',
      ' ',
      '1,0000',
      '1,,000',
      '0_1,00',
      '1kb',
      '1b',
      '1e9',
      '0x10',
      'NaN',
      'Infinity',
      '1.2.3',
      '1k2',
      '-1',
      '9'.repeat(400),
      '1'.repeat(14),
    ]) {
      const { problems } = readDemand({ '--rate': text });
      assert.equal(problems.length, 1, text);
    }
    const { problems } = readDemand({ '--rate': 'https://user:hunter2@host/?a=b' });
    assert.doesNotMatch(problems.join(), /hunter2/);
  });
});

describe('what it prints', () => {
  test('as JSON is the plan, and no figure of it is broken', () => {
    for (const rate of ['1', '100M']) {
      const text = describeCapacity(demandOf({ '--rate': rate, '--redis': true }), true);
      assert.doesNotMatch(text, /null/);
      const { demand, plan, breaksFirst } = JSON.parse(text) as Record<string, Record<string, unknown>>;
      assert.equal(demand?.['rate'], demandOf({ '--rate': rate }).rate);
      assert.ok(plan?.['pods']);
      assert.equal(typeof breaksFirst, 'string');
    }
  });

  test('in words has one line that says what breaks first', () => {
    const text = describeCapacity(demandOf({ '--rate': '1M', '--redis': true, '--tls': true }), false);
    assert.equal(text.match(/^Breaks first /gm)?.length, 1);
    assert.doesNotMatch(text, /NaN|Infinity|undefined/);
  });
});
