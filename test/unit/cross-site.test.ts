// Which requests are writes of a page of another site [D56].

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { isCrossSiteWrite } from '../../packages/core/admission/cross-site.ts';

test('a POST, PUT or DELETE that any value calls cross-site is one [D56]', () => {
  for (const method of ['POST', 'PUT', 'DELETE']) {
    for (const value of [
      'cross-site',
      'Cross-Site',
      'CROSS-SITE',
      ' cross-site\t',
      'same-origin,cross-site',
      'cross-site, same-origin',
      'none,\t cross-site ,none',
      'cross-site;a=1',
      ',cross-site,',
    ]) {
      assert.equal(isCrossSiteWrite(method, value), true, `${method} ${value}`);
    }
  }
});

test('what another value, or none, stands in is not, and a read never is [D56]', () => {
  for (const value of [
    undefined,
    '',
    ',',
    'none',
    'same-site',
    'same-origin',
    'cross-sites',
    'not-cross-site',
    'cross site',
    'a;cross-site',
  ]) {
    assert.equal(isCrossSiteWrite('POST', value), false, String(value));
  }
  for (const method of ['GET', 'HEAD', 'OPTIONS', 'PATCH', 'post', '']) {
    assert.equal(isCrossSiteWrite(method, 'cross-site'), false, method);
  }
});

test('a header as long as a head may be, in no time', () => {
  for (const text of [',', ' ', ', ', 'cross-site ', ',cross-site', 'c', ',cross-site  ']) {
    const startedAt = performance.now();
    isCrossSiteWrite('POST', text.repeat(100_000));
    assert.ok(performance.now() - startedAt < 1_000, text);
  }
});
