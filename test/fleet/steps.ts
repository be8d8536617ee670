// The faults of the fleet, in their order, and the sabotages that the verdict must notice.

import { poll } from '../helpers/changes.ts';
import { rateLimit, type Fleet, type Sabotage } from './fleet-parts.ts';
import { cutOff, forgetSharedAddress, heal, type Direction, type HostName } from './network.ts';
import { startRedis, stepLimitMs, type Gateway } from './processes.ts';
import { cutDoneWrites, withhold } from './restarting-backend.ts';
import { recoveryMs } from './verdict.ts';

interface Step {
  readonly name: string;
  /** The step cuts off a host, which needs namespaces. */
  readonly isCut?: boolean;
  readonly run: (fleet: Fleet) => Promise<void>;
}

/** How long a frozen gateway may lose calls: HAProxy stops using it after three checks without an answer. */
const frozenMs = 5_000;
const writesPerKill = 8;
const rest = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

function at<T>(list: readonly T[], index: number): T {
  const value = list[index];
  if (value === undefined) throw new Error(`there is no number ${index}`);
  return value;
}

/** Resolves when the HAProxy of every balancer considers the gateway up again. */
async function isUp(gateway: Gateway): Promise<void> {
  await gateway.shows(() => true, 'answers');
  // Longer than `inter` of deploy/haproxy.cfg, which is the time between two checks.
  await rest(1_000);
}

/** Cuts a gateway off for five seconds. */
function cutGateway(name: string, index: number, direction: Direction, what: string): Step {
  const run = async (fleet: Fleet): Promise<void> => {
    const gateway = at(fleet.gateways, index);
    cutOff(gateway.host, direction);
    fleet.fault('gateway', `${gateway.host} ${what}`, recoveryMs);
    await rest(5_000);
    heal(gateway.host);
    fleet.mark(`${gateway.host} is reachable again`);
    await isUp(gateway);
  };
  return { name, isCut: true, run };
}

/** Ends a peer of the gateways for three seconds. */
function peerDown(peer: 'issuer' | 'collector', what: string): Step {
  const run = async (fleet: Fleet): Promise<void> => {
    fleet.mark(`the ${what} is down for 3 s`);
    await fleet.peers[peer]?.[Symbol.asyncDispose]();
    await rest(3_000);
    await fleet.startPeer(peer);
    await poll(() => fleet.requests(peer) > 0, `the ${peer} gets requests again`, stepLimitMs);
  };
  return { name: `${peer} down`, run };
}

const redisHosts = ['redis-1', 'redis-2'] as const;

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
      const findBusy = () => fleet.backends.findIndex(({ withheld }, index) => withheld >= at(before, index) + 4);
      await poll(() => findBusy() >= 0, 'a backend has sent half answers', stepLimitMs);
      const host = findBusy() === 0 ? 'backend-1' : 'backend-2';
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
      await isUp(gateway);
    },
  },
  cutGateway('gateway cut off', 1, 'both', 'is cut off'),
  cutGateway('gateway cannot send', 2, 'out', 'receives but cannot send'),
  cutGateway('gateway cannot receive', 0, 'in', 'sends but cannot receive'),
  {
    name: 'balancer lost',
    isCut: true,
    run: async (fleet) => {
      const lost = at(
        fleet.balancers.filter(({ isActive }) => isActive),
        0,
      );
      const other = at(
        fleet.balancers.filter((each) => each !== lost),
        0,
      );
      cutOff(lost.host, 'both');
      fleet.fault('balancer', `${lost.host} is lost`, recoveryMs);
      await lost.kill();
      await poll(() => other.isActive, 'the other balancer has the address', stepLimitMs);
      await rest(3_000);
      forgetSharedAddress(lost.host);
      heal(lost.host);
      await lost.start(fleet.configuration());
      fleet.mark(`${lost.host} is back`);
      await rest(1_000);
    },
  },
  {
    name: 'Redis primary killed',
    run: async (fleet) => {
      fleet.mark('the primary of Redis is killed');
      await fleet.redis.get('redis-1')?.[Symbol.asyncDispose]();
      await fleet.haveRedis('none');
      await fleet.haveRedis('every');
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
      for (const host of redisHosts) cutOff(host, 'both');
      await fleet.haveRedis('none');
      await fleet.probe('without Redis', fleet.gateways.length * rateLimit.count);
      for (const host of redisHosts) heal(host);
      await fleet.haveRedis('every');
      fleet.mark('Redis is reachable again');
    },
  },
  peerDown('issuer', 'issuer of tokens'),
  {
    name: 'keys and certificates',
    run: async (fleet) => {
      fleet.mark('signing keys are rotated');
      await fleet.rotateKeys();
      fleet.mark('certificates are replaced');
      await fleet.replaceCertificate();
    },
  },
  peerDown('collector', 'collector of traces'),
  {
    name: 'upgrade',
    run: async (fleet) => {
      for (const gateway of fleet.gateways) {
        fleet.mark(`${gateway.host} is upgraded`);
        await gateway.stop(fleet.sabotage.upgradeSignal);
        await gateway.start();
        await gateway.serves();
        await isUp(gateway);
      }
    },
  },
  {
    name: 'scale',
    run: async (fleet) => {
      fleet.mark('from three gateways to five');
      for (const host of ['gateway-4', 'gateway-5'] satisfies HostName[]) await fleet.addGateway(host);
      for (const balancer of fleet.balancers) balancer.reload(fleet.configuration());
      for (const gateway of fleet.gateways) await gateway.serves();
      fleet.mark('back to three');
      for (const gateway of fleet.gateways.splice(3).reverse()) await gateway.stop();
      for (const balancer of fleet.balancers) balancer.reload(fleet.configuration());
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
      await isUp(gateway);
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
