// Which `Host` headers a listener answers [D57].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import {
  isAllowedHost,
  normalizeHostName,
  parseHostNames,
} from '../../packages/core/admission/host-names.ts';

const allowed = ['gateway.example.com', 'gateway', 'work_items'].map(normalizeHostName);

describe('every listener answers to addresses and to names of its own machine [D57]', () => {
  for (const host of [
    '127.0.0.1',
    '127.0.0.1:9464',
    '10.1.2.3:80',
    '0.0.0.0',
    '127.0.0.1.',
    '[::1]',
    '[::1]:9464',
    '[2001:DB8::1]:1',
    '[::ffff:127.0.0.1]',
    '[fe80::1%eth0]:9464',
    'localhost',
    'localhost:9464',
    'localhost:',
    'LocalHost',
    'localhost.',
    'localhost.:9464',
    'a.localhost',
    'A-1.b.LOCALHOST.:1',
  ]) {
    test(host, () => {
      assert.equal(isAllowedHost(host, []), true);
    });
  }
});

test('every listener answers where there is no name, or an empty one [D57]', () => {
  assert.equal(isAllowedHost(undefined, []), true);
  assert.equal(isAllowedHost('', []), true);
});

describe('names that are allowed are, in any case, with a dot at the end and with any port [D57]', () => {
  for (const host of [
    'gateway.example.com',
    'Gateway.Example.COM:9464',
    'gateway.example.com.',
    'gateway.example.com.:1',
    'GATEWAY',
    'work_items:80',
  ]) {
    test(host, () => {
      assert.equal(isAllowedHost(host, allowed), true);
      assert.equal(isAllowedHost(host, []), false);
    });
  }
  test('they may be given in any case, and with a dot at the end', () => {
    assert.equal(isAllowedHost('gateway.example', [normalizeHostName('GateWay.Example.')]), true);
  });
});

describe('anything else is not [D57]', () => {
  for (const host of [
    ' ',
    '.',
    ':',
    ':9464',
    'example.com',
    'example.com:9464',
    'evil.gateway.example.com',
    'gateway.example.com.evil.com',
    'example.com..',
    'gateway.example.com..',
    'localhost..',
    'localhost.evil.com',
    'evillocalhost',
    '.localhost',
    'a..localhost',
    'a b.localhost',
    '127.0.0.1.evil.com',
    '127.0.0.1.nip.io',
    '127.0.0.1, localhost',
    'localhost, evil.com',
    'localhost,localhost',
    '127.1',
    '2130706433',
    '0x7f000001',
    '0177.0.0.1',
    '256.0.0.1',
    '::1',
    '[::1',
    '::1]',
    '[]',
    '[localhost]',
    '[127.0.0.1]',
    '[::1]evil.com',
    '[::1].evil.com',
    'evil.com[::1]',
    '[::1]:80:80',
    'localhost:80:80',
    'localhost:a',
    'localhost:-1',
    'user@localhost',
    'localhost/',
    'localhost\\',
    'localhost#',
    'localhost%00',
    'localhost\0',
    'localhost\n',
    'http://localhost',
    'l\u00f6calhost',
    '*',
  ]) {
    test(JSON.stringify(host), () => {
      assert.equal(isAllowedHost(host, allowed), false);
    });
  }

  test('a header as long as a head may be, in no time', () => {
    for (const text of ['a', 'a.', '.', '-', '[', ':', '1.', '[::', ':1']) {
      const startedAt = performance.now();
      assert.equal(isAllowedHost(text.repeat(100_000), allowed), false);
      assert.ok(performance.now() - startedAt < 1_000, text);
    }
  });
});

test('a list of names has commas between them; a port, an address with a scheme or a pattern is no name [D57]', () => {
  assert.deepEqual(parseHostNames(''), []);
  assert.deepEqual(parseHostNames(' , '), []);
  assert.deepEqual(parseHostNames('Gateway.Example., work_items ,10.0.0.1'), [
    'gateway.example',
    'work_items',
    '10.0.0.1',
  ]);
  for (const text of ['a:80', 'http://a', '*.example.com', 'a b', 'a,.b', '[::1]', 'a..', '.', 'l\u00f6']) {
    assert.equal(parseHostNames(text), undefined, text);
  }
});
