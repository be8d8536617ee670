// The checks at the door: host names, origins of pages, cross-site writes, and the client's address behind proxies
// [D45, D46, D52, D56, D57].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { clientAddress, normalizeAddress } from '../../packages/core/admission/client-address.ts';
import { isCrossSiteWrite } from '../../packages/core/admission/cross-site.ts';
import { isAllowedHost, normalizeHostName, parseHostNames } from '../../packages/core/admission/host-names.ts';
import { createTrustedProxies } from '../../packages/core/options/address-ranges.ts';
import { createCors, isOrigin, parseOrigins } from '../../packages/core/options/cors-options.ts';
import { addressRanges } from '../../packages/core/options/kinds.ts';
import { Problem } from '../../packages/core/options/problem.ts';
import { describeOrigins } from '../../packages/command/commands/check-origins.ts';

/** Asserts that `act`, for texts of up to a megabyte, takes no longer than a linear search. */
function assertFast(act: () => void): void {
  const startedAt = performance.now();
  act();
  assert.ok(performance.now() - startedAt < 2_000);
}

describe('host names [D57]', () => {
  const allowed = ['gateway.example.com', 'gateway', 'work_items'].map(normalizeHostName);

  test('all IP addresses, names of the local machine, and a missing or empty name are always allowed', () => {
    const hosts = [
      undefined, '',
      '127.0.0.1', '127.0.0.1:9464', '10.1.2.3:80', '0.0.0.0', '127.0.0.1.', '[::1]', '[::1]:9464',
      '[2001:DB8::1]:1', '[::ffff:127.0.0.1]', '[fe80::1%eth0]:9464', 'localhost', 'localhost:9464',
      'localhost:', 'LocalHost', 'localhost.', 'localhost.:9464', 'a.localhost', 'A-1.b.LOCALHOST.:1',
    ]; // prettier-ignore
    for (const host of hosts) assert.equal(isAllowedHost(host, []), true, String(host));
  });

  test('an allowed name may have any case, a final dot and any port', () => {
    const spellings = [
      'gateway.example.com', 'Gateway.Example.COM:9464', 'gateway.example.com.', 'gateway.example.com.:1',
      'GATEWAY', 'work_items:80',
    ]; // prettier-ignore
    for (const host of spellings) {
      assert.deepEqual([isAllowedHost(host, allowed), isAllowedHost(host, [])], [true, false], host);
    }
    assert.equal(isAllowedHost('gateway.example', [normalizeHostName('GateWay.Example.')]), true);
  });

  test('all other names are refused, and a very long one quickly', () => {
    const others = [
      ' ', '.', ':', ':9464', 'example.com', 'example.com:9464', 'evil.gateway.example.com',
      'gateway.example.com.evil.com', 'example.com..', 'gateway.example.com..', 'localhost..',
      'localhost.evil.com', 'evillocalhost', '.localhost', 'a..localhost', 'a b.localhost',
      '127.0.0.1.evil.com', '127.0.0.1.nip.io', '127.0.0.1, localhost', 'localhost, evil.com',
      'localhost,localhost', '127.1', '2130706433', '0x7f000001', '0177.0.0.1', '256.0.0.1', '::1', '[::1',
      '::1]', '[]', '[localhost]', '[127.0.0.1]', '[::1]evil.com', '[::1].evil.com', 'evil.com[::1]',
      '[::1]:80:80', 'localhost:80:80', 'localhost:a', 'localhost:-1', 'user@localhost', 'localhost/',
      'localhost\\', 'localhost#', 'localhost%00', 'localhost\0', 'localhost\n', 'http://localhost',
      'l\u00f6calhost', '*',
    ]; // prettier-ignore
    for (const host of others) assert.equal(isAllowedHost(host, allowed), false, host);
    assertFast(() => {
      for (const text of ['a', 'a.', '.', '-', '[', ':', '1.', '[::', ':1']) {
        assert.equal(isAllowedHost(text.repeat(100_000), allowed), false);
      }
    });
  });

  test('a list has names separated by commas; a name with a port, a scheme or a pattern is invalid', () => {
    for (const [text, names] of [
      ['', []],
      [' , ', []],
      ['Gateway.Example., work_items ,10.0.0.1', ['gateway.example', 'work_items', '10.0.0.1']],
      ...['a:80', 'http://a', '*.example.com', 'a b', 'a,.b', '[::1]', 'a..', '.', 'l\u00f6'].map(
        (each) => [each, undefined] as const,
      ),
    ] as const) {
      assert.deepEqual(parseHostNames(text), names, text);
    }
  });
});

describe('origins of pages [D45]', () => {
  const app = 'https://app.example.com';

  test('an origin is valid only in the exact form that browsers send', () => {
    const origins = [
      app, 'http://app.example.com', 'https://app.example.com:8443', 'http://localhost:5173',
      'http://127.0.0.1', 'http://[::1]:3000', 'https://xn--bcher-kva.example', 'capacitor://localhost',
      'chrome-extension://abcdefghijklmnopabcdefghijklmnop', 'tauri://localhost',
    ]; // prettier-ignore
    for (const origin of origins) assert.equal(isOrigin(origin), true, origin);
    const otherTexts = [
      '', 'null', '*', 'app.example.com', 'https://', 'https://*.example.com', 'https://app.example.com/',
      'https://app.example.com/path', 'https://app.example.com?a', 'https://app.example.com#a',
      'https://App.example.com', 'HTTPS://app.example.com', 'https://app.example.com:443',
      'http://app.example.com:80', 'https://app.example.com:', 'https://app.example.com:99999',
      'https://user@app.example.com', 'https://user:secret@app.example.com', 'https://bücher.example',
      ' https://app.example.com', 'https://app.example.com ', 'https://a\r\nset-cookie: b',
      'capacitor://a\r\nset-cookie: b', 'https:app.example.com', 'file://', 'file:///a', 'file://a',
      'data:text/html,a', 'about:blank', 'javascript://a/b', 5, undefined,
    ]; // prettier-ignore
    for (const origin of otherTexts) assert.equal(isOrigin(origin), false, String(origin));
  });

  test('a list contains origins, or only a star', () => {
    for (const [text, origins] of [
      ['', []],
      [' * ', ['*']],
      [` ${app} ,, http://localhost:1 `, [app, 'http://localhost:1']],
      ...[`*,${app}`, '*,*', `${app} http://b`, `${app};http://b`, 'null', `${app},null`].map(
        (each) => [each, undefined] as const,
      ),
    ] as const) {
      assert.deepEqual(parseOrigins(text), origins, text);
    }
  });

  test('replies to an allowed origin share a list of headers, all other replies another; a preflight gets its methods', () => {
    const cors = createCors({ corsOrigins: [app, 'http://b'] }, 600) ?? assert.fail();
    const [own, options] = [
      ['a', 'b'],
      ['allow', 'GET'],
    ];
    const get = (origin: string) => ({ method: 'GET', fields: ['origin', origin] });
    const fields = (origin: string) => ['origin', origin, 'access-control-request-method', 'GET'];
    const ask = (origin: string) => ({ method: 'OPTIONS', fields: fields(origin) });
    const first = cors.fieldsFor(own, get(app));
    const [second, other] = ['http://b', 'http://c'].map((origin) => cors.fieldsFor(own, get(origin)));
    assert.equal(new Set([first, second, other]).size, 3);
    assert.equal(cors.fieldsFor([...own, 'c', 'd'], get(app)), first);
    for (const request of [get('http://d'), undefined]) assert.equal(cors.fieldsFor(own, request), other);
    const preflight = cors.fieldsFor(options, ask(app));
    assert.deepEqual(cors.fieldsFor(options, ask(app)), preflight);
    assert.notDeepEqual(cors.fieldsFor(options, get(app)), preflight);
    assert.equal(preflight[preflight.indexOf('access-control-allow-methods') + 1], 'GET');
    assert.deepEqual(cors.fieldsFor(own, ask(app)), first);
    assert.equal(cors.fieldsFor(options, ask('http://d')), cors.fieldsFor(options, get('http://d')));
    // The reply's own headers are not changed.
    assert.deepEqual(
      [own, other],
      [
        ['a', 'b'],
        ['vary', 'origin'],
      ],
    );
    assert.equal(createCors({}, 600), undefined);
    assert.equal(createCors({ corsOrigins: [], corsCredentials: true }, 600), undefined);
  });

  test('`check` advises about a star, about http, and about localhost next to other origins', () => {
    const http = 'http://app.example.com';
    for (const [origins, advice] of [
      [[app], /^$/],
      [['http://localhost:5173', 'http://127.0.0.1:1'], /^$/],
      [[app, 'capacitor://localhost'], /^$/],
      [['*'], /List the origins/],
      [[http], /is not https(?!.*Leave this origin out)/],
      [[http, app], /is not https.*Leave this origin out/],
      [['http://localhost:5173', app], /for development only/],
    ] as const) {
      assert.match(describeOrigins({ corsOrigins: origins }).slice(1).join(' '), advice);
    }
    assert.deepEqual(describeOrigins({}), []);
    assert.deepEqual(describeOrigins({ corsOrigins: [app, 'https://b'], corsCredentials: true }), [
      `cors: pages of ${app}, https://b may call and read replies, with cookies and client certificates`,
    ]);
  });
});

describe('cross-site writes [D56]', () => {
  interface Write {
    readonly method?: string;
    readonly target?: string;
    readonly site?: string | undefined;
    readonly origin?: string;
    readonly host?: string | undefined;
    readonly forwarded?: readonly string[];
  }

  function isCrossSite({ method = 'POST', target = '/', site, origin, host, forwarded }: Write): boolean {
    const values = { host, origin, 'sec-fetch-site': site, 'x-forwarded-host': forwarded?.join() };
    const fields = Object.entries(values).flatMap(([name, value]) => (value === undefined ? [] : [name, value]));
    return isCrossSiteWrite({ method, target, fields }, () => forwarded !== undefined);
  }

  test('Sec-Fetch-Site: a write with cross-site among its values is cross-site, whatever the origin', () => {
    const values = [
      'cross-site', 'Cross-Site', ' cross-site\t', 'same-origin,cross-site', 'cross-site, same-origin',
      'none,\t cross-site ,none', 'cross-site;a=1', ',cross-site,',
    ]; // prettier-ignore
    for (const method of ['POST', 'PUT', 'DELETE']) {
      for (const site of values) {
        assert.equal(isCrossSite({ method, site }), true, `${method} ${site}`);
        assert.equal(isCrossSite({ method, site, origin: 'http://a', host: 'a' }), true, `${method} ${site}`);
      }
    }
    for (const site of ['none', 'same-site', 'same-origin', 'cross-sites', 'not-cross-site', 'cross site']) {
      assert.equal(isCrossSite({ site, origin: 'http://elsewhere', host: 'a' }), false, site);
    }
    for (const method of ['GET', 'HEAD', 'OPTIONS', 'PATCH', 'post', '']) {
      assert.equal(isCrossSite({ method, site: 'cross-site' }), false, method);
      assert.equal(isCrossSite({ method, origin: 'null', host: 'a' }), false, method);
    }
    assertFast(() => {
      for (const text of [',', ' ', ', ', 'cross-site ', ',cross-site', 'c', ',cross-site  ']) {
        isCrossSite({ site: text.repeat(100_000) });
      }
    });
  });

  const own: readonly (readonly [origin: string, host: string])[] = [
    ['http://items.example', 'items.example'], ['https://items.example', 'items.example'],
    ['https://items.example:8443', 'items.example:8443'], ['http://items.example', 'items.example:80'],
    ['https://items.example', 'items.example:443'], ['https://items.example:443', 'items.example'],
    ['http://items.example', 'ITEMS.Example'], ['HTTPS://Items.example', 'items.example'],
    ['http://127.0.0.1:3000', '127.0.0.1:3000'], ['http://[::1]:3000', '[::1]:3000'],
    ['http://[2001:db8::5]', '[2001:DB8:0:0::5]'], ['http://localhost:3000', 'localhost:3000'],
    ['http://items.example', 'items.example:'], ['http://items_a.example', 'items_a.example'],
  ]; // prettier-ignore
  const others: readonly (readonly [origin: string, host: string | undefined])[] = [
    ['null', 'items.example'], ['', 'items.example'], ['', ''], ['null', 'null'], ['http://', ''],
    ['http://elsewhere.example', 'items.example'], ['http://items.example.evil.example', 'items.example'],
    ['http://evil.example', 'evil.example.items.example'], ['http://items.example:8080', 'items.example'],
    ['http://items.example', 'items.example:8080'], ['http://items.example', 'items.example:443'],
    ['https://items.example', 'items.example:80'], ['http://localhost:5173', 'localhost:3000'],
    ['http://127.0.0.1:3000', 'localhost:3000'], ['http://[::1]:3000', '[::2]:3000'],
    ['http://a@items.example', 'items.example'], ['http://items.example/', 'items.example'],
    ['http://items.example, http://items.example', 'items.example'], ['http://items.example http://b', 'items.example'],
    ['chrome-extension://items.example', 'items.example'], ['capacitor://localhost', 'localhost'], ['items.example', 'items.example'],
    ['http://items.example', undefined], ['http://items.example', 'evil.example\\@items.example'],
  ]; // prettier-ignore
  test('Origin: without Sec-Fetch-Site, a write is cross-site unless Origin is the origin of the host', () => {
    for (const [pairs, expected] of [[own, false], [others, true]] as const) {
      for (const [origin, host] of pairs) {
        // An empty Sec-Fetch-Site does not count.
        for (const site of [undefined, '', ' , ']) {
          assert.equal(isCrossSite({ origin, host, site }), expected, `${origin} ${host}`);
        }
      }
    } // prettier-ignore
    const twice = { method: 'PUT', target: '/', fields: ['host', 'a', 'origin', 'http://a', 'origin', 'http://a'] };
    assert.ok(isCrossSiteWrite(twice, () => false));
    // Without both headers, the client is not a browser.
    assert.equal(isCrossSite({ host: 'a' }), false);
    assert.equal(isCrossSite({}), false);
  });

  test('the host of a target in absolute-form and Host must both be the origin; forwarded hosts replace Host', () => {
    const origin = 'https://items.example';
    const host = 'gateway:3000';
    const target = 'https://items.example/api/work-items';
    for (const [write, expected] of [
      [{ target, origin, host: 'items.example' }, false],
      [{ target, origin, host: 'elsewhere.example' }, true],
      [{ target, origin: 'https://elsewhere.example', host: 'elsewhere.example' }, true],
      [{ origin, host, forwarded: ['items.example'] }, false],
      [{ origin, host, forwarded: ['ITEMS.example:443'] }, false],
      [{ origin, host, forwarded: ['items.example', host] }, false],
      [{ origin, host, forwarded: [host, 'items.example'] }, false],
      [{ origin, host, forwarded: ['elsewhere.example', host] }, true],
      [{ origin: 'http://gateway:3000', host, forwarded: ['items.example'] }, true],
      [{ origin: 'null', host, forwarded: ['null'] }, true],
    ] as const) {
      assert.equal(isCrossSite(write), expected, JSON.stringify(write));
    }
  });
});

describe("the client's address [D46, D52]", () => {
  const trusted = createTrustedProxies(['10.0.0.0/8', '192.168.1.7', '2001:db8:ffff::/48', '::1']);

  test("without trusted proxies, it is the connection's address", () => {
    assert.equal(clientAddress('203.0.113.5', ['1.2.3.4'], undefined), '203.0.113.5');
    assert.equal(createTrustedProxies([]), undefined);
  });

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
  const malformedEntries = [
    '203.0.113', '203.0.113.256', '::1::', '2001:db8:::5', '0203.0.113.5', '203.0.113.5:', '203.0.113.5:port', '203.0.113.5:123456',
    '203.0.113.5:1:2', '"203.0.113.5"', 'for=203.0.113.5', '203.0.113.5 10.1.1.1', '[203.0.113.5]',
    '[2001:db8::5', '2001:db8::5]:80', '[2001:db8::5]80', '[]', 'fe80::1%eth0', '::ffff:203.0.113.256',
    '1', 'localhost', '10.0.0.0/8', '\u000b203.0.113.5', '203.0.113.5\u0000', '\u00a0203.0.113.5',
  ]; // prettier-ignore
  test('it is the last entry that is not a trusted proxy; a malformed entry ends the search; long lists are read quickly', () => {
    for (const [title, peer, values, client] of cases)
      assert.equal(clientAddress(peer, values, trusted), client, title);
    for (const entry of malformedEntries) {
      assert.equal(clientAddress('10.0.0.1', [`6.6.6.6, ${entry}`], trusted), '10.0.0.1', JSON.stringify(entry));
    }
    assertFast(() => {
      for (let round = 0; round < 10; round += 1) {
        assert.equal(clientAddress('10.0.0.1', [`6.6.6.6${',10.1.1.1'.repeat(5_000)}`], trusted), '6.6.6.6');
        for (const text of [' ', '1', ',']) {
          assert.equal(clientAddress('10.0.0.1', [text.repeat(16_000)], trusted), '10.0.0.1');
        }
      }
    });
  });

  test('it is written in one form', () => {
    for (const [address, normal] of [
      ['203.0.113.5', '203.0.113.5'], ['::ffff:203.0.113.5', '203.0.113.5'],
      ['::FFFF:203.0.113.5', '203.0.113.5'], ['::ffff:cb00:7105', '203.0.113.5'],
      ['0:0:0:0:0:ffff:203.0.113.5', '203.0.113.5'], ['2001:DB8:0:0:0:0:0:1', '2001:db8::1'], ['::1', '::1'],
      ['fe80::1%eth0', 'fe80::1'],
    ] as const) {
      assert.equal(normalizeAddress(address), normal);
    }
  }); // prettier-ignore

  const problemOf = (value: unknown) => (value instanceof Problem ? value.text : assert.fail('the value is accepted'));
  const invalidRanges = [
    '10.0.0.0/33', '::/129', '10.0.0/8', '10.0.0.0/', '10.0.0.0/-1', '10.0.0.0/8/8', '/8', 'localhost',
    'fe80::1%eth0', '[::1]', 'x/10.0.0.0/8', '10.0.0.1:80', '10.0.0.1 10.0.0.2', '*',
  ]; // prettier-ignore
  test('a list of proxies has ranges and addresses, separated by commas and optional spaces', () => {
    const ranges = ['10.0.0.0/8', '192.168.1.7', '2001:db8::/32', '::1'];
    assert.deepEqual(addressRanges.parse(' 10.0.0.0/8, 192.168.1.7,2001:db8::/32 ,::1 '), ranges);
    for (const empty of ['', ' ']) assert.deepEqual(addressRanges.parse(empty), []);
    for (const wrong of invalidRanges) {
      assert.match(problemOf(addressRanges.parse(`10.0.0.1, ${wrong}`)), /^must be IP addresses and ranges separated/);
      const problem = problemOf(addressRanges.accept(['10.0.0.1', wrong]));
      assert.match(problem, /^must be an array of IP addresses and ranges/);
      const message = `${JSON.stringify(wrong)} must be an IP address or a CIDR range`;
      assert.throws(() => createTrustedProxies([wrong]), { name: 'TypeError', message });
    }
    for (const value of [['10.0.0.1'], 1, null, undefined, '', '10.0.0.1,10.0.0.2']) {
      assert.match(problemOf(addressRanges.accept([value] as never)), /^must be an array/, String(value));
    }
  });

  const tooWide = [
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
  ] as const; // prettier-ignore
  test('a range that contains all IPv4 addresses is refused; the message says what to write', () => {
    for (const [range, instead] of tooWide) {
      const problem = `must not have ${range}, because this range contains all IPv4 addresses: write ${instead}`;
      assert.equal(problemOf(addressRanges.parse(`192.0.2.1,${range}`)), problem);
      assert.equal(problemOf(addressRanges.accept([range])), problem);
      assert.throws(() => createTrustedProxies([range]), { name: 'TypeError' });
    }
  });

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
  test('a range contains its addresses and no others', () => {
    for (const [range, inside, outside] of members) {
      const proxies = createTrustedProxies([range]);
      for (const address of inside) assert.ok(proxies?.has(address), `${address} in ${range}`);
      for (const address of outside) assert.ok(!proxies?.has(address), `${address} in ${range}`);
    }
  });
});
