// The client's address, and the proxies that are trusted to name it: D46, D52.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { clientAddress, normalizeAddress } from '../../packages/core/admission/client-address.ts';
import { createTrustedProxies, parseAddressRanges } from '../../packages/core/options/address-ranges.ts';
import { addressRanges } from '../../packages/core/options/kinds.ts';
import { Problem } from '../../packages/core/options/problem.ts';

const problemOf = (value: unknown) => (value instanceof Problem ? value.text : assert.fail('the value is accepted'));
const trusted = createTrustedProxies(['10.0.0.0/8', '192.168.1.7', '2001:db8:ffff::/48', '::1']);

describe('without trusted proxies', () => {
  test("the client's address is the connection's address; forwarded addresses are ignored [D52]", () => {
    assert.equal(clientAddress('203.0.113.5', ['1.2.3.4'], undefined), '203.0.113.5');
    assert.equal(createTrustedProxies([]), undefined);
  });
});

describe('x-forwarded-for', () => {
  const cases: [title: string, peer: string, values: string[], client: string][] = [
    ['the header of an untrusted peer is ignored', '203.0.113.5', ['1.2.3.4'], '203.0.113.5'],
    ['the header of a trusted peer is used', '10.0.0.1', ['203.0.113.5'], '203.0.113.5'],
    ['a trusted peer without the header is the client', '10.0.0.1', [], '10.0.0.1'],
    ['an empty value is ignored', '10.0.0.1', [''], '10.0.0.1'],
    ['the last entry is used, because the client can forge the others', '10.0.0.1', ['6.6.6.6, 203.0.113.5'], '203.0.113.5'],
    ['trusted entries are skipped', '10.0.0.1', ['6.6.6.6, 203.0.113.5, 10.9.9.9, 192.168.1.7'], '203.0.113.5'],
    ['if all entries are trusted, the first is used', '10.0.0.1', ['10.3.3.3, 10.2.2.2'], '10.3.3.3'],
    ['several headers are read as one list', '10.0.0.1', ['6.6.6.6', '203.0.113.5', '10.2.2.2'], '203.0.113.5'],
    ['spaces and tabs are ignored', '10.0.0.1', ['6.6.6.6 ,\t 203.0.113.5 \t, 10.2.2.2  '], '203.0.113.5'],
    ['no space is needed after a comma', '10.0.0.1', ['6.6.6.6,203.0.113.5,10.2.2.2'], '203.0.113.5'],
    ['a port is dropped', '10.0.0.1', ['203.0.113.5:51234'], '203.0.113.5'],
    ['a port is dropped after brackets', '10.0.0.1', ['[2001:db8::5]:51234'], '2001:db8::5'],
    ['brackets are dropped', '10.0.0.1', ['[2001:db8::5]'], '2001:db8::5'],
    ['IPv6 without brackets has no port', '10.0.0.1', ['2001:db8::5:443'], '2001:db8::5:443'],
    ['an IPv6 address is written in canonical form', '10.0.0.1', ['2001:0DB8:0:0::5'], '2001:db8::5'],
    ['an IPv4-mapped IPv6 address becomes the IPv4 address', '10.0.0.1', ['::ffff:203.0.113.5'], '203.0.113.5'],
    ['an IPv4-mapped address in hexadecimal becomes the IPv4 address', '10.0.0.1', ['6.6.6.6, ::ffff:0a01:0203'], '6.6.6.6'],
    ['a trusted proxy may have an IPv6 address', '2001:db8:ffff::1', ['203.0.113.5, ::1'], '203.0.113.5'],
    ['a malformed entry ends the search; the entry to its right is the client', '10.0.0.1', ['6.6.6.6, unknown, 10.2.2.2'], '10.2.2.2'],
    ['if the last entry is malformed, the peer is the client', '10.0.0.1', ['203.0.113.5, nonsense'], '10.0.0.1'],
    ['an empty entry counts as malformed', '10.0.0.1', ['6.6.6.6, , 10.2.2.2'], '10.2.2.2'],
    ['a comma at the end means that the last entry is empty', '10.0.0.1', ['203.0.113.5,'], '10.0.0.1'],
    ['an empty first entry is never reached', '10.0.0.1', [',203.0.113.5'], '203.0.113.5'],
    ['a comma alone means two empty entries', '10.0.0.1', [','], '10.0.0.1'],
  ]; // prettier-ignore
  test('the client is the last entry that is not a trusted proxy; a malformed entry ends the search [D46]', () => {
    for (const [title, peer, values, client] of cases)
      assert.equal(clientAddress(peer, values, trusted), client, title);
  });

  const malformedEntries = [
    '203.0.113', '203.0.113.256', '::1::', '2001:db8:::5', '0203.0.113.5', '203.0.113.5:', '203.0.113.5:port', '203.0.113.5:123456',
    '203.0.113.5:1:2', '"203.0.113.5"', 'for=203.0.113.5', '203.0.113.5 10.1.1.1', '[203.0.113.5]',
    '[2001:db8::5', '2001:db8::5]:80', '[2001:db8::5]80', '[]', 'fe80::1%eth0', '::ffff:203.0.113.256',
    '1', 'localhost', '10.0.0.0/8', '\u000b203.0.113.5', '203.0.113.5\u0000', '\u00a0203.0.113.5',
  ]; // prettier-ignore
  test('an entry that is not an address is malformed [D46]', () => {
    for (const entry of malformedEntries) {
      assert.equal(clientAddress('10.0.0.1', [`6.6.6.6, ${entry}`], trusted), '10.0.0.1', JSON.stringify(entry));
    }
  });

  test('40 long lists (5,000 trusted entries, or 16 KB without an address) are read in less than 2 s', () => {
    const from = performance.now();
    for (let round = 0; round < 10; round += 1) {
      assert.equal(clientAddress('10.0.0.1', [`6.6.6.6${',10.1.1.1'.repeat(5_000)}`], trusted), '6.6.6.6');
      assert.equal(clientAddress('10.0.0.1', [' '.repeat(16_000)], trusted), '10.0.0.1');
      assert.equal(clientAddress('10.0.0.1', ['1'.repeat(16_000)], trusted), '10.0.0.1');
      assert.equal(clientAddress('10.0.0.1', [','.repeat(16_000)], trusted), '10.0.0.1');
    }
    assert.ok(performance.now() - from < 2_000);
  });
});

test('an address is written in one form [D46]', () => {
  for (const [address, normal] of [
    ['203.0.113.5', '203.0.113.5'], ['::ffff:203.0.113.5', '203.0.113.5'],
    ['::FFFF:203.0.113.5', '203.0.113.5'], ['::ffff:cb00:7105', '203.0.113.5'],
    ['0:0:0:0:0:ffff:203.0.113.5', '203.0.113.5'], ['2001:DB8:0:0:0:0:0:1', '2001:db8::1'], ['::1', '::1'],
    ['fe80::1%eth0', 'fe80::1'],
  ] as const) {
    assert.equal(normalizeAddress(address), normal);
  }
}); // prettier-ignore

describe('ranges', () => {
  test('a list has ranges and addresses, separated by commas and optional spaces [D46]', () => {
    assert.deepEqual(parseAddressRanges(' 10.0.0.0/8, 192.168.1.7,2001:db8::/32 ,::1 '), [
      '10.0.0.0/8',
      '192.168.1.7',
      '2001:db8::/32',
      '::1',
    ]);
    assert.deepEqual(parseAddressRanges(''), []);
    assert.deepEqual(parseAddressRanges(' , '), []);
  });

  const invalidRanges = [
    '10.0.0.0/33', '::/129', '10.0.0/8', '10.0.0.0/', '10.0.0.0/-1', '10.0.0.0/8/8', '/8', 'localhost',
    'fe80::1%eth0', '[::1]', 'x/10.0.0.0/8', '10.0.0.1:80', '10.0.0.1 10.0.0.2', '*',
  ]; // prettier-ignore
  test('any other text, a value that is not a string, and several ranges in one item are not a range [D46]', () => {
    for (const wrong of invalidRanges) {
      assert.match(problemOf(parseAddressRanges(`10.0.0.1, ${wrong}`)), /^must be IP addresses and ranges separated/);
      assert.match(
        problemOf(addressRanges.accept(['10.0.0.1', wrong])),
        /^must be an array of IP addresses and ranges/,
      );
      const message = `${JSON.stringify(wrong)} must be an IP address or a CIDR range`;
      assert.throws(() => createTrustedProxies([wrong]), { name: 'TypeError', message });
    }
    for (const value of [['10.0.0.1'], 1, null, undefined, '', '10.0.0.1,10.0.0.2']) {
      assert.match(problemOf(addressRanges.accept([value] as never)), /^must be an array/, String(value));
    }
  });

  for (const [range, instead] of [
    ['::ffff:10.0.0.0/8', '10.0.0.0/8'], ['::FFFF:a00:0/8', '10.0.0.0/8'], ['0:0:0:0:0:ffff:10.0.0.0/24', '10.0.0.0/24'],
    ['::ffff:10.0.0.7/32', '10.0.0.7/32'], ['::ffff:10.0.0.0/95', '10.0.0.0, or 0.0.0.0/0 for all IPv4 addresses'],
    ['::ffff:10.0.0.0/96', '10.0.0.0, or 0.0.0.0/0 for all IPv4 addresses'],
    ['::ffff:0.0.0.0/64', '0.0.0.0, or 0.0.0.0/0 for all IPv4 addresses'],
    ['10.0.0.0/0', '10.0.0.0, or 0.0.0.0/0 for all IPv4 addresses'],
    ['::1/64', '::1 for IPv6, and 0.0.0.0/0 for all IPv4 addresses'],
    ['::1/80', '::1 for IPv6, and 0.0.0.0/0 for all IPv4 addresses'],
    ['2001:db8::/1', '2001:db8:: for IPv6, and 0.0.0.0/0 for all IPv4 addresses'],
    ['::/0', '2000::/3 for IPv6, and 0.0.0.0/0 for all IPv4 addresses'],
    ['::/8', '2000::/3 for IPv6, and 0.0.0.0/0 for all IPv4 addresses'],
  ] as const) {
    test(`${range} is refused, because it contains all IPv4 addresses; the message says what to write [D46]`, () => {
      const problem = `must not have ${range}, because this range contains all IPv4 addresses: write ${instead}`;
      assert.equal(problemOf(parseAddressRanges(`192.0.2.1,${range}`)), problem);
      assert.equal(problemOf(addressRanges.accept([range])), problem);
      assert.throws(() => createTrustedProxies([range]), { name: 'TypeError' });
    });
  } // prettier-ignore

  const members: [range: string, inside: string[], outside: string[]][] = [
    ['10.1.2.3/8', ['10.0.0.0', '10.255.255.255'], ['11.0.0.0', '9.255.255.255', '::a01:203']],
    ['0.0.0.0/0', ['1.2.3.4'], ['2001:db8::1']],
    ['2000::/3', ['2001:db8::1'], ['10.0.0.1', '::1']],
    ['::ffff:10.0.0.0/104', ['10.1.1.1'], ['11.1.1.1']],
    ['::ffff:10.0.0.7', ['10.0.0.7'], ['10.0.0.8']],
    ['::ffff:a00:0/127', ['10.0.0.1'], ['10.0.0.2']],
    ['::ffff:0:0/96', ['1.2.3.4'], ['2001:db8::1', '::1']],
    ['::ffff:0:0/97', ['1.2.3.4'], ['128.0.0.1']],
    ['::1/81', ['::1'], ['10.0.0.1']],
    ['192.168.1.7', ['192.168.1.7'], ['192.168.1.8']],
    ['2001:db8::/33', ['2001:db8:7fff::1'], ['2001:db8:8000::1']],
  ];
  test('a range contains its addresses and no others [D46]', () => {
    for (const [range, inside, outside] of members) {
      const proxies = createTrustedProxies([range]);
      for (const address of inside) assert.ok(proxies?.has(address), `${address} in ${range}`);
      for (const address of outside) assert.ok(!proxies?.has(address), `${address} in ${range}`);
    }
  });
});
