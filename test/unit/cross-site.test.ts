// Detection of cross-site writes [D56].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isCrossSiteWrite } from '../../packages/core/admission/cross-site.ts';

interface Write {
  readonly method?: string;
  readonly target?: string;
  readonly site?: string;
  readonly origin?: string;
  readonly host?: string;
  readonly forwarded?: readonly string[];
}

function isCrossSite({ method = 'POST', target = '/', site, origin, host, forwarded }: Write): boolean {
  const fields = Object.entries({
    host,
    origin,
    'sec-fetch-site': site,
    'x-forwarded-host': forwarded?.join(),
  }).flatMap(([name, value]) => (value === undefined ? [] : [name, value]));
  return isCrossSiteWrite({ method, target, fields }, () => forwarded !== undefined);
}

describe('Sec-Fetch-Site', () => {
  test('a POST, PUT or DELETE with cross-site among its values is a cross-site write, whatever the origin [D56]', () => {
    for (const method of ['POST', 'PUT', 'DELETE']) {
      const values = [
        'cross-site', 'Cross-Site', 'CROSS-SITE', ' cross-site\t', 'same-origin,cross-site',
        'cross-site, same-origin', 'none,\t cross-site ,none', 'cross-site;a=1', ',cross-site,',
      ]; // prettier-ignore
      for (const site of values) {
        assert.equal(isCrossSite({ method, site }), true, `${method} ${site}`);
        assert.equal(isCrossSite({ method, site, origin: 'http://a', host: 'a' }), true, `${method} ${site}`);
      }
    }
  });

  test('a write with another value is not cross-site, whatever the origin; a read is never cross-site [D56]', () => {
    for (const site of ['none', 'same-site', 'same-origin', 'cross-sites', 'not-cross-site', 'cross site']) {
      assert.equal(isCrossSite({ site, origin: 'http://elsewhere', host: 'a' }), false, site);
    }
    for (const method of ['GET', 'HEAD', 'OPTIONS', 'PATCH', 'post', '']) {
      assert.equal(isCrossSite({ method, site: 'cross-site' }), false, method);
      assert.equal(isCrossSite({ method, origin: 'null', host: 'a' }), false, method);
    }
  });

  test('a very long header is read in less than a second', () => {
    for (const text of [',', ' ', ', ', 'cross-site ', ',cross-site', 'c', ',cross-site  ']) {
      const startedAt = performance.now();
      isCrossSite({ site: text.repeat(100_000) });
      assert.ok(performance.now() - startedAt < 1_000, text);
    }
  });
});

describe('Origin, without Sec-Fetch-Site', () => {
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
  test('a write is cross-site unless Origin is the origin of the host; an empty Sec-Fetch-Site does not count [D56]', () => {
    for (const [pairs, expected] of [[own, false], [others, true]] as const) {
      for (const [origin, host] of pairs) {
        for (const site of [undefined, '', ' , ']) {
          const write = { origin, ...(host !== undefined && { host }), ...(site !== undefined && { site }) };
          assert.equal(isCrossSite(write), expected, JSON.stringify(write));
        }
      }
    } // prettier-ignore
    const fields = ['host', 'a', 'origin', 'http://a', 'origin', 'http://a'];
    assert.ok(
      isCrossSiteWrite({ method: 'PUT', target: '/', fields }, () => false),
      'two Origin headers',
    );
    assert.equal(isCrossSite({ host: 'a' }), false, 'without both headers, the client is not a browser');
    assert.equal(isCrossSite({}), false);
  });

  test('with a target in absolute-form, its host and Host must both be the origin [D56]', () => {
    const target = 'http://items.example/api/work-items';
    const origin = 'http://items.example';
    assert.equal(isCrossSite({ target, origin, host: 'items.example' }), false);
    assert.equal(isCrossSite({ target, origin, host: 'elsewhere.example' }), true);
    assert.equal(isCrossSite({ target, origin: 'http://elsewhere.example', host: 'elsewhere.example' }), true);
  });

  test('forwarded hosts replace Host; one of them must be the origin [D56]', () => {
    const origin = 'https://items.example';
    const host = 'gateway:3000';
    for (const forwarded of [
      ['items.example'],
      ['ITEMS.example:443'],
      ['items.example', host],
      [host, 'items.example'],
    ]) {
      assert.equal(isCrossSite({ origin, host, forwarded }), false, forwarded.join());
    }
    assert.equal(isCrossSite({ origin, host, forwarded: ['elsewhere.example', host] }), true);
    assert.equal(isCrossSite({ origin: 'http://gateway:3000', host, forwarded: ['items.example'] }), true);
    assert.equal(isCrossSite({ origin: 'null', host, forwarded: ['null'] }), true);
  });
});
