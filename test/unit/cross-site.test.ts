// Detection of cross-site writes [D56].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isCrossSiteWrite } from '../../packages/core/admission/cross-site.ts';

test('a POST, PUT or DELETE with cross-site among its Sec-Fetch-Site values is a cross-site write [D56]', () => {
  for (const method of ['POST', 'PUT', 'DELETE']) {
    const values = [
      'cross-site', 'Cross-Site', 'CROSS-SITE', ' cross-site\t', 'same-origin,cross-site',
      'cross-site, same-origin', 'none,\t cross-site ,none', 'cross-site;a=1', ',cross-site,',
    ]; // prettier-ignore
    for (const value of values) {
      assert.equal(isCrossSiteWrite(method, value), true, `${method} ${value}`);
    }
  }
});

test('a write with another value of Sec-Fetch-Site, or without the header, is not cross-site; a read is never cross-site [D56]', () => {
  const otherValues = [
    undefined, '', ',', 'none', 'same-site', 'same-origin', 'cross-sites', 'not-cross-site', 'cross site',
    'a;cross-site',
  ]; // prettier-ignore
  for (const value of otherValues) {
    assert.equal(isCrossSiteWrite('POST', value), false, String(value));
  }
  for (const method of ['GET', 'HEAD', 'OPTIONS', 'PATCH', 'post', '']) {
    assert.equal(isCrossSiteWrite(method, 'cross-site'), false, method);
  }
});

test('a very long header is read in less than a second', () => {
  for (const text of [',', ' ', ', ', 'cross-site ', ',cross-site', 'c', ',cross-site  ']) {
    const startedAt = performance.now();
    isCrossSiteWrite('POST', text.repeat(100_000));
    assert.ok(performance.now() - startedAt < 1_000, text);
  }
});
