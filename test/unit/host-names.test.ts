// `Host` headers that a listener accepts [D57].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isAllowedHost, normalizeHostName, parseHostNames } from '../../packages/core/admission/host-names.ts';

const allowed = ['gateway.example.com', 'gateway', 'work_items'].map(normalizeHostName);

describe('all IP addresses, and names of the local machine, are always allowed [D57]', () => {
  const localHosts = [
    '127.0.0.1', '127.0.0.1:9464', '10.1.2.3:80', '0.0.0.0', '127.0.0.1.', '[::1]', '[::1]:9464',
    '[2001:DB8::1]:1', '[::ffff:127.0.0.1]', '[fe80::1%eth0]:9464', 'localhost', 'localhost:9464',
    'localhost:', 'LocalHost', 'localhost.', 'localhost.:9464', 'a.localhost', 'A-1.b.LOCALHOST.:1',
  ]; // prettier-ignore
  for (const host of localHosts) {
    test(host, () => assert.equal(isAllowedHost(host, []), true));
  }
});

test('a missing or empty name is always allowed [D57]', () => {
  assert.equal(isAllowedHost(undefined, []), true);
  assert.equal(isAllowedHost('', []), true);
});

describe('an allowed name may have any case, a final dot and any port [D57]', () => {
  const spellings = [
    'gateway.example.com', 'Gateway.Example.COM:9464', 'gateway.example.com.', 'gateway.example.com.:1',
    'GATEWAY', 'work_items:80',
  ]; // prettier-ignore
  for (const host of spellings) {
    test(host, () => {
      assert.equal(isAllowedHost(host, allowed), true);
      assert.equal(isAllowedHost(host, []), false);
    });
  }
  test('a name in the list may also have any case and a final dot', () =>
    assert.equal(isAllowedHost('gateway.example', [normalizeHostName('GateWay.Example.')]), true));
});

describe('all other names are refused [D57]', () => {
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
  for (const host of others) {
    test(JSON.stringify(host), () => assert.equal(isAllowedHost(host, allowed), false));
  }

  test('a very long header is read in less than a second', () => {
    for (const text of ['a', 'a.', '.', '-', '[', ':', '1.', '[::', ':1']) {
      const startedAt = performance.now();
      assert.equal(isAllowedHost(text.repeat(100_000), allowed), false);
      assert.ok(performance.now() - startedAt < 1_000, text);
    }
  });
});

test('a list has names separated by commas; a name with a port, a scheme or a pattern is invalid [D57]', () => {
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
