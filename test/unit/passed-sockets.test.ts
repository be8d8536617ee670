// Sockets passed by a service manager (sd_listen_fds(3)), for clients or for operators.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findPassedSockets, settingsOfSockets } from '../../packages/command/service/systemd.ts';

const pid = 4711;

function find(count: string, names?: string, receiver = String(pid)) {
  return findPassedSockets(
    { LISTEN_FDS: count, LISTEN_PID: receiver, ...(names !== undefined && { LISTEN_FDNAMES: names }) },
    pid,
  );
}

test('if the variables are not set, or are for another process, no socket is passed', () => {
  const none = { clients: [], admin: [] };
  assert.deepEqual(findPassedSockets({}, pid), none);
  assert.deepEqual(findPassedSockets({ LISTEN_FDS: '2' }, pid), none);
  assert.deepEqual(find('2', undefined, '4712'), none);
  assert.deepEqual(find('nonsense', undefined, '4712'), none);
  assert.deepEqual(find('0'), none);
});

test('without names the first socket is for clients and the second for operators', () => {
  assert.deepEqual(find('1'), { clients: [3], admin: [] });
  assert.deepEqual(find('2'), { clients: [3], admin: [4] });
  // systemd's default names are treated like no names.
  assert.deepEqual(find('2', 'a.socket:b.socket'), { clients: [3], admin: [4] });
});

test('named sockets may have any order and number', () => {
  assert.deepEqual(find('2', 'admin:clients'), { clients: [4], admin: [3] });
  assert.deepEqual(find('4', 'clients:admin:clients:admin'), { clients: [3, 5], admin: [4, 6] });
  assert.deepEqual(find('1', 'admin'), { clients: [], admin: [3] });
});

test('ambiguous names and invalid numbers fail the start', () => {
  for (const [count, names] of [
    ['3', undefined],
    ['2', 'clients:client'],
    ['2', 'clients'],
    ['3', 'x:y:z'],
  ] as const) {
    assert.throws(() => find(count, names), /^StartError: LISTEN_FDS passes \d sockets, .*FileDescriptorName/);
  }
  for (const count of ['-1', '1e1', '2 ', '065', '65', 'two', '999999999']) {
    assert.throws(() => find(count), /LISTEN_FDS must be the number of passed sockets, 0 to 64/, count);
  }
});

test('shown addresses and ports are those of the sockets', () => {
  const [url, adminUrl] = ['https://localhost', 'http://[::1]:9464'];
  assert.deepEqual(settingsOfSockets({ clients: [], admin: [] }, url, adminUrl), {});
  assert.deepEqual(settingsOfSockets({ clients: [3], admin: [] }, url, adminUrl), { host: 'localhost', port: '443' });
  assert.deepEqual(settingsOfSockets({ clients: [], admin: [3, 4, 5] }, url, adminUrl), {
    adminHost: '[::1] and 2 more',
    adminPort: '9464 and 2 more',
  });
});
