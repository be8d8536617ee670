// Rates and their headers, counting of many keys in bounded memory, and the key of a request [D46].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { GuardedRequest } from '../../packages/core/call/guard.ts';
import {
  createJoinedCount,
  createOwnCount,
  WindowTable,
  WindowTables,
  type Count,
} from '../../packages/core/guards/rate-limit/count.ts';
import { createRateLimit, networkOf } from '../../packages/core/guards/rate-limit/rate-limit.ts';
import { parseRate, rateHeaders } from '../../packages/core/options/rate.ts';

const rate = { limit: 3, windowMs: 1_000 };

/** Counts a request of `key`. Returns the milliseconds that the client has to wait: 0 if the request is admitted. */
function wait(count: ReturnType<typeof createOwnCount>, key: string): number {
  const { left, msLeft } = count.take(key);
  return left < 0 ? msLeft : 0;
}

describe('counting in this process', () => {
  test('a window begins with its first request and admits requests up to the limit; the first request after its end begins a new window', () => {
    let now = 5_000;
    const count = createOwnCount(rate, () => now);
    assert.deepEqual([wait(count, 'a'), wait(count, 'a'), wait(count, 'a')], [0, 0, 0]);
    assert.equal(wait(count, 'a'), 1_000);
    now = 5_999.5;
    assert.equal(wait(count, 'a'), 0.5);
    assert.equal(wait(count, 'b'), 0, 'other keys are counted separately');
    now = 6_000;
    assert.deepEqual([wait(count, 'a'), wait(count, 'a'), wait(count, 'a'), wait(count, 'a')], [0, 0, 0, 1_000]);
    now = 6_998;
    assert.equal(wait(count, 'b'), 0);
    assert.equal(wait(count, 'b'), 0);
    now = 6_999.5;
    assert.equal(wait(count, 'b'), 0, 'the first window of b is over');
    assert.equal(wait(count, 'a'), 0.5);
  });

  test('refused requests are not counted, so a persistent client is admitted when the window ends', () => {
    let now = 0;
    const count = createOwnCount(rate, () => now);
    for (; now < 1_000; now += 1) {
      wait(count, 'a');
    }
    assert.equal(wait(count, 'a'), 0);
  });

  test('keys may be any text', () => {
    const count = createOwnCount({ limit: 1, windowMs: 1 }, () => 0);
    for (const key of ['__proto__', 'constructor', '', 'toString', '\0', '\ud800', 'x'.repeat(100_000)]) {
      assert.equal(wait(count, key), 0, JSON.stringify(key.slice(0, 20)));
      assert.equal(wait(count, key), 1);
    }
  });

  test('100,000 keys fill the table to its limit; the youngest keys are kept', () => {
    const table = new WindowTables(1_000);
    const count = createOwnCount({ limit: 1, windowMs: 60_000 }, () => 0, table);
    for (let key = 0; key < 100_000; key += 1) {
      assert.equal(wait(count, `2001:db8:0:${key}::/64`), 0);
    }
    assert.equal(table.size, 1_000);
    assert.equal(wait(count, '2001:db8:0:99999::/64'), 60_000);
    assert.equal(wait(count, '2001:db8:0:99000::/64'), 60_000);
    assert.equal(wait(count, '2001:db8:0:98999::/64'), 0, 'the oldest keys are forgotten');
  });

  test('when new windows open, expired windows are removed, even if old keys return', () => {
    let now = 0;
    const table = new WindowTables(1_000_000);
    const count = createOwnCount({ limit: 1, windowMs: 1_000 }, () => now, table);
    for (let key = 0; key < 10_000; key += 1) {
      wait(count, String(key));
    }
    now = 2_000;
    // Half of the keys return, mixed with new keys.
    for (let key = 0; key < 10_000; key += 2) {
      wait(count, String(key));
      wait(count, `other ${key}`);
    }
    assert.equal(table.size, 10_000);
    assert.equal(wait(count, '4'), 1_000);
    assert.equal(wait(count, '5'), 0);
  });
});

describe('the table of windows', () => {
  test('a key keeps its newer window when its older window is removed', () => {
    const table = new WindowTable(100);
    for (const key of ['x', 'y', 'a']) table.open(key, 10, 0);
    const younger = table.open('a', 20, 10);
    table.open('z', 20, 10);
    assert.equal(table.find('a', 10), younger);
    assert.equal(table.size, 2, 'a window that ends at `now` has ended');
  });

  test('when a window is opened, the expired window before it is removed', () => {
    const table = new WindowTable(100);
    for (const now of [0, 10, 20, 30]) {
      table.open(String(now), now + 10, now);
      assert.equal(table.size, 1);
    }
  });

  test('when a window is opened, at most two expired windows are removed, or more if the table is full', () => {
    const table = new WindowTable(100);
    for (const key of ['a', 'b', 'c', 'd', 'e']) table.open(key, 10, 0);
    table.open('f', 20, 10);
    assert.equal(table.size, 4);
    const full = new WindowTable(2);
    for (const key of ['a', 'a', 'a', 'b', 'c']) full.open(key, 10, 0);
    assert.equal(full.size, 2);
    assert.equal(full.find('a', 0), undefined);
  });
});

describe('windows of several lengths', () => {
  const long = { limit: 1, windowMs: 86_400_000 };
  const short = { limit: 1, windowMs: 1_000 };

  test('after a reload from a long to a short window, short windows are removed when they have ended', () => {
    const tables = new WindowTables();
    for (const key of ['a', 'b']) tables.take(key, long, 0);
    for (let now = 0; now < 3_000_000; now += 100) tables.take(`short ${now}`, short, now);
    assert.ok(tables.size <= 13, `${tables.size} windows`);
    assert.equal(tables.take('a', long, 3_000_000).left, -1, 'the long window still counts');
  });

  test('after a reload from a short to a long window, the short windows are removed when they have ended', () => {
    const tables = new WindowTables();
    for (let key = 0; key < 1_000; key += 1) tables.take(String(key), short, 0);
    for (let key = 0; key < 10; key += 1) tables.take(`long ${key}`, long, 999);
    assert.equal(tables.size, 1_010);
    for (let key = 10; key < 510; key += 1) tables.take(`long ${key}`, long, 1_000);
    assert.equal(tables.size, 510);
  });

  test('windows of many lengths together are limited; the windows of other lengths make room first', () => {
    const tables = new WindowTables(100);
    for (let seconds = 1; seconds <= 1_000; seconds += 1) {
      const rate = { limit: 1, windowMs: seconds * 1_000 };
      for (let key = 0; key < 30; key += 1) assert.equal(tables.take(String(key), rate, 0).left, 0);
      for (let key = 0; key < 30; key += 1) assert.equal(tables.take(String(key), rate, 0).left, -1);
      assert.ok(tables.size <= 100);
    }
    for (let key = 0; key < 300; key += 1) tables.take(String(key), long, 0);
    assert.equal(tables.size, 100);
    assert.equal(tables.take('299', long, 0).left, -1);
  });

  test('the count for all workers has separate windows for each length', () => {
    const count = createJoinedCount();
    assert.deepEqual(count.answer({ rate: long, keys: ['a', 'a'] }, 0), [0, 86_400_000, -1, 86_400_000]);
    assert.deepEqual(count.answer({ rate: short, keys: ['a', 'a'] }, 0), [0, 1_000, -1, 1_000]);
    assert.deepEqual(count.answer({ rate: short, keys: ['a'] }, 1_000), [0, 1_000]);
    assert.deepEqual(count.answer({ rate: long, keys: ['a'] }, 1_000), [-1, 86_399_000]);
  });
});

describe('the key of a request', () => {
  const keyOf = (by: 'address' | 'identity', client: string | undefined, identity?: string) => {
    let taken = '';
    const count: Count = {
      take: (key) => {
        taken = key;
        return undefined;
      },
    };
    const head = { method: 'GET', target: '/', bodyLength: 0, expectation: 'none', persists: true, version: '1.1', fields: [] } as const; // prettier-ignore
    const request: GuardedRequest = { head, operation: 'list', client, identity };
    assert.deepEqual(createRateLimit(rate, by, count).admit(request), { isAdmitted: true, identity });
    return taken;
  };

  test('the key of an IPv4 address is the address, the key of an IPv6 address is its /64', () => {
    const networks = [
      ['192.0.2.7', '192.0.2.7'], ['2001:db8::1', '2001:db8:0:0'],
      ['2001:db8::ffff:ffff:ffff:ffff', '2001:db8:0:0'], ['2001:db8:0:1::1', '2001:db8:0:1'],
      ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'], ['::1', '0:0:0:0'], ['::', '0:0:0:0'], ['1::', '1:0:0:0'],
      ['1:2:3:4:5:6:7::', '1:2:3:4'], ['::2:3:4:5:6:7:8', '0:2:3:4'], ['1:2:3::6:7:8', '1:2:3:0'],
      ['1::4:5:6:7:8', '1:0:0:4'], ['64:ff9b::192.0.2.7', '64:ff9b:0:0'],
      ['1:2:3:4:5:6:192.0.2.7', '1:2:3:4'], ['::4:5:6:192.0.2.7', '0:0:0:4'],
    ] as const; // prettier-ignore
    for (const [address, key] of networks) {
      assert.equal(networkOf(address), key, address);
    }
    assert.equal(keyOf('address', '2001:db8::1', 'Ada'), '2001:db8:0:0');
  });

  test('requests without an address are counted together', () => {
    assert.equal(keyOf('address', undefined), 'unknown');
    assert.equal(keyOf('identity', undefined), 'unknown');
  });

  test('the key of an identity has a prefix, so that it never equals an address; a long identity is hashed', () => {
    assert.equal(keyOf('identity', '192.0.2.7', 'Ada Lovelace\r\n*'), 'sub:Ada Lovelace\r\n*');
    assert.equal(keyOf('identity', '192.0.2.7', '192.0.2.8'), 'sub:192.0.2.8');
    assert.equal(keyOf('identity', '192.0.2.7', ''), 'sub:');
    assert.equal(keyOf('identity', '192.0.2.7', undefined), '192.0.2.7');
    assert.equal(keyOf('identity', '192.0.2.7', 'x'.repeat(64)), `sub:${'x'.repeat(64)}`);
    const hashed = keyOf('identity', '192.0.2.7', 'x'.repeat(65));
    assert.match(hashed, /^sub-sha256:[\w-]{43}$/);
    assert.notEqual(hashed, keyOf('identity', '192.0.2.7', 'x'.repeat(66)));
  });
});

test('a rate is a number of requests in a window of seconds, minutes or hours', () => {
  const rates = [
    ['100/60s', 100, 60_000], ['1/1s', 1, 1_000], ['10/1m', 10, 60_000], ['250/5m', 250, 300_000],
    ['1000/1h', 1_000, 3_600_000], ['1000000/24h', 1_000_000, 86_400_000],
    ['007/086400s', undefined, undefined], ['0100/01h', 100, 3_600_000],
  ] as const; // prettier-ignore
  for (const [text, limit, windowMs] of rates) {
    assert.deepEqual(parseRate(text), limit === undefined ? undefined : { limit, windowMs }, text);
  }
});

test('all other texts are invalid rates', () => {
  for (const text of [
    '', '100', '100/', '/60s', '100/s', '100/60', '100/60S', '100/60ms', '100/1d', '0/60s', '00/1s', '1/0s', '1/0h',
    '1000001/1s', '10000000/1s', '1/86401s', '1/1441m', '1/25h', '-1/1s', '+1/1s', '1.5/1s', '1/1.5s', '1e3/1s',
    ' 1/1s', '1/1s ', '1 / 1s', '1/1s,2/1m', '1/1s\n', '٣/1s', '0x1/1s', '1//1s',
  ]) {
    assert.equal(parseRate(text), undefined, JSON.stringify(text));
  } // prettier-ignore
});

test('the headers of a rate are exactly the structured fields of the IETF draft', () => {
  assert.deepEqual(rateHeaders({ limit: 100, windowMs: 60_000 }, 7, 12), [
    'ratelimit-policy', '"default";q=100;w=60',
    'ratelimit', '"default";r=7;t=12',
  ]); // prettier-ignore
});
