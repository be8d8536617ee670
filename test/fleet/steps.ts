// The faults of the fleet, in their order, and the sabotages that the verdict must notice.

import { poll } from '../helpers/changes.ts';
import { cutDoneWrites, recoveryMs, withhold } from './done-writes.ts';
import { rateLimit, type Fleet, type Sabotage } from './fleet-parts.ts';
import { cutOff, forgetSharedAddress, heal, type Direction, type HostName } from './network.ts';
import { startRedis, stepLimitMs } from './processes.ts';

interface Step {
  readonly name: string;
  /** The step cuts off a host, which needs namespaces. */
  readonly isCut?: boolean;
  readonly run: (fleet: Fleet) => Promise<void>;
}

/** How long a frozen gateway may lose calls: HAProxy stops using it after three checks without an answer. */
const frozenMs = 5_000;
const rest = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

function at<T>(list: readonly T[], index: number): T {
  const value = list[index];
  if (value === undefined) throw new Error(`there is no number ${index}`);
  return value;
}

/** Resolves when the HAProxy of every balancer considers the gateway up again. */
async function isUp(fleet: Fleet, host: HostName): Promise<void> {
  const gateway = fleet.gateways.find((each) => each.host === host);
  await gateway?.shows(() => true, 'answers');
  // Longer than `inter` of deploy/haproxy.cfg, which is the time between two checks.
  await rest(1_000);
}

async function cutGateway(fleet: Fleet, host: HostName, direction: Direction): Promise<void> {
  const what = { both: 'is cut off', in: 'sends but cannot receive', out: 'receives but cannot send' }[direction];
  cutOff(host, direction);
  fleet.fault('gateway', `${host} ${what}`, recoveryMs);
  await rest(5_000);
  heal(host);
  fleet.mark(`${host} is reachable again`);
  await isUp(fleet, host);
}

const writesPerKill = 8;

export const steps: readonly Step[] = [
  { name: 'limit', run: (fleet) => fleet.probe('without faults') },
  {
    name: 'backend killed',
    run: async (fleet) => {
      const backend = at(fleet.backends, 0);
      fleet.fault('backend', 'backend-1 is killed', recoveryMs);
      await backend.end('SIGKILL');
      await rest(1_500);
      await backend.start();
    },
  },
  {
    name: 'backend slow',
    run: async (fleet) => {
      fleet.mark('for 3 s, backends answer after 0.5 s');
      for (const backend of fleet.backends) backend.answerWith('slow');
      await rest(3_000);
      for (const backend of fleet.backends) backend.answerWith('given');
    },
  },
  {
    name: 'backend cut off while it answers',
    isCut: true,
    run: async (fleet) => {
      const before = fleet.backends.map(({ withheld }) => withheld);
      fleet.fault('backend', 'a backend is cut off while it answers', recoveryMs);
      for (const backend of fleet.backends) backend.answerWith('half');
      // The gateways may have connections to only one backend, so the backend that has sent half answers is cut off.
      const findBusy = (): number =>
        fleet.backends.findIndex(({ withheld }, index) => withheld >= at(before, index) + 4);
      await poll(() => findBusy() >= 0, 'a backend has sent half answers', stepLimitMs);
      const busy = findBusy();
      const host = busy === 0 ? 'backend-1' : 'backend-2';
      cutOff(host, 'both');
      for (const backend of fleet.backends) backend.answerWith('given');
      await rest(4_000);
      heal(host);
    },
  },
  {
    name: 'gateway frozen',
    run: async (fleet) => {
      const gateway = at(fleet.gateways, 0);
      gateway.signal('SIGSTOP');
      fleet.fault('gateway', `${gateway.host} freezes`, frozenMs);
      await rest(frozenMs + 2_000);
      gateway.signal('SIGCONT');
      fleet.mark(`${gateway.host} continues`);
      await isUp(fleet, gateway.host);
    },
  },
  { name: 'gateway cut off', isCut: true, run: (fleet) => cutGateway(fleet, 'gateway-2', 'both') },
  { name: 'gateway cannot send', isCut: true, run: (fleet) => cutGateway(fleet, 'gateway-3', 'out') },
  { name: 'gateway cannot receive', isCut: true, run: (fleet) => cutGateway(fleet, 'gateway-1', 'in') },
  {
    name: 'balancer lost',
    isCut: true,
    run: async (fleet) => {
      const lost = fleet.balancers.find(({ isActive }) => isActive);
      const other = fleet.balancers.find((each) => each !== lost);
      if (lost === undefined || other === undefined) throw new Error('no balancer is active');
      cutOff(lost.host, 'both');
      fleet.fault('balancer', `${lost.host} is lost`, recoveryMs);
      await lost.kill();
      await poll(() => other.isActive, 'the other balancer has the address', stepLimitMs);
      await rest(3_000);
      forgetSharedAddress(lost.host);
      heal(lost.host);
      await lost.start(fleet.configuration(fleet.gateways.length));
      fleet.mark(`${lost.host} is back`);
      await rest(1_000);
    },
  },
  {
    name: 'Redis primary killed',
    run: async (fleet) => {
      fleet.mark('the primary of Redis is killed');
      await fleet.redis.get('redis-1')?.[Symbol.asyncDispose]();
      await poll(() => fleet.haveRedis('none'), 'no gateway counts in Redis', stepLimitMs);
      await poll(() => fleet.haveRedis('every'), 'every gateway counts in the replica', stepLimitMs);
      fleet.mark('the replica is the primary');
      fleet.redis.set('redis-1', await startRedis('redis-1', 'redis-2'));
      await fleet.probe('with the replica');
    },
  },
  {
    name: 'Redis cut off',
    isCut: true,
    run: async (fleet) => {
      fleet.mark('Redis is cut off');
      for (const host of ['redis-1', 'redis-2'] as const) cutOff(host, 'both');
      await poll(() => fleet.haveRedis('none'), 'no gateway counts in Redis', stepLimitMs);
      await fleet.probe('without Redis', fleet.gateways.length * rateLimit.count);
      for (const host of ['redis-1', 'redis-2'] as const) heal(host);
      await poll(() => fleet.haveRedis('every'), 'every gateway counts in Redis', stepLimitMs);
      fleet.mark('Redis is reachable again');
    },
  },
  {
    name: 'Redis far away',
    run: async (fleet) => {
      fleet.mark('Redis is 30 ms away');
      await fleet.useRelay(30);
      await fleet.probe('with Redis 30 ms away');
      await fleet.endRelay();
    },
  },
  {
    name: 'issuer down',
    run: async (fleet) => {
      fleet.mark('the issuer of tokens is down for 3 s');
      await fleet.issuer[Symbol.asyncDispose]();
      await rest(3_000);
      await fleet.startIssuer();
    },
  },
  {
    name: 'keys and certificates',
    run: async (fleet) => {
      fleet.mark('signing keys are rotated');
      await fleet.rotateKeys();
      fleet.mark('certificates are replaced');
      await fleet.replaceCertificate();
    },
  },
  {
    name: 'collector down',
    run: async (fleet) => {
      fleet.mark('the collector of traces is down for 3 s');
      await fleet.collector[Symbol.asyncDispose]();
      await rest(3_000);
      await fleet.startCollector();
      await poll(() => fleet.collector.count(/traces/g) > 0, 'traces arrive again', stepLimitMs);
    },
  },
  {
    name: 'upgrade',
    run: async (fleet) => {
      for (const gateway of fleet.gateways) {
        fleet.mark(`${gateway.host} is upgraded`);
        await gateway.stop(fleet.sabotage.upgradeSignal);
        await gateway.start();
        await gateway.serves();
        await isUp(fleet, gateway.host);
      }
    },
  },
  {
    name: 'scale',
    run: async (fleet) => {
      fleet.mark('from three gateways to five');
      await fleet.addGateway('gateway-4');
      await fleet.addGateway('gateway-5');
      for (const balancer of fleet.balancers) balancer.reload(fleet.configuration(5));
      for (const gateway of fleet.gateways) await gateway.serves();
      fleet.mark('back to three');
      await fleet.removeGateway();
      await fleet.removeGateway();
      for (const balancer of fleet.balancers) balancer.reload(fleet.configuration(3));
    },
  },
  {
    name: 'writes done',
    run: async (fleet) => {
      const gateway = at(fleet.gateways, 1);
      await withhold(fleet.backends, 'held', writesPerKill, async () => {
        fleet.fault('gateway', `${gateway.host} is killed after writes, before the replies`, recoveryMs);
        await gateway.stop('SIGKILL');
      });
      await rest(2_000);
      await gateway.start();
      await isUp(fleet, gateway.host);
      fleet.mark('backends close connections after writes, before the answers');
      fleet.faults.push(await cutDoneWrites(fleet.backends, writesPerKill));
    },
  },
  { name: 'limit', run: (fleet) => fleet.probe('at the end') },
];

/** Changes that the verdict must notice, with the steps that reveal them. */
export const sabotages: readonly (Sabotage & {
  readonly name: string;
  readonly wanted: readonly string[];
  readonly expected: RegExp;
})[] = [
  {
    name: 'an upgrade without a drain',
    wanted: ['upgrade'],
    upgradeSignal: 'SIGKILL',
    expected: /lost without a fault/,
  },
  {
    name: 'a balancer that sends writes again',
    wanted: ['writes done'],
    balancer: { 'retry-on conn-failure\n': 'retry-on all-retryable-errors\n' },
    expected: /more than once/,
  },
  {
    name: 'a gateway that counts no requests',
    wanted: ['limit'],
    environment: { RATE_LIMIT: `${10 * rateLimit.count}/${rateLimit.windowMs / 1_000}s` },
    expected: /the rate limit/,
  },
  {
    name: 'a balancer that does not notice a frozen gateway',
    wanted: ['gateway frozen'],
    balancer: { 'fall 3 ': 'fall 100 ' },
    expected: /served only after/,
  },
];
