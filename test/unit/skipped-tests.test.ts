// The allowed reasons for skipped tests. In CI, a tool that CI installs must not be missing.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { isAllowed } from '../../scripts/skipped-tests.ts';

const root = resolve(import.meta.dirname, '../..');
const read = (path: string): string => readFileSync(resolve(root, path), 'utf8');

const reasons = {
  curl: 'curl is not installed; on Debian: apt-get install curl',
  'fonts-dejavu': 'fonts-dejavu is not installed; on Debian: scripts/install-test-tools.sh',
  'fonts-liberation': 'fonts-liberation is not installed; on Debian: scripts/install-test-tools.sh',
  'fonts-urw-base35': 'fonts-urw-base35 is not installed; on Debian: scripts/install-test-tools.sh',
  haproxy: 'haproxy is not installed, so nothing was tested here; on Debian: apt-get install haproxy',
  openssl: 'there is no openssl on this machine',
  prometheus: 'promtool is missing; on Debian: apt-get install prometheus',
  'python3-h2': 'there is no python3-h2 on this machine',
  'redis-server': 'no redis-server and no valkey-server is installed (apt-get install redis-server)',
  sslscan: 'sslscan is not installed',
};

test('a missing tool is a reason to skip a test, unless TEST_TOOLS=required', () => {
  for (const reason of Object.values(reasons)) {
    assert.ok(isAllowed(reason, false), reason);
    assert.ok(!isAllowed(reason, true), reason);
  }
  const [, packages = ''] = /^packages='(.*)'$/m.exec(read('scripts/install-test-tools.sh')) ?? [];
  assert.deepEqual(packages.split(' '), Object.keys(reasons));
});

test('a program that CI does not install, or another system, is always a reason', () => {
  for (const reason of [
    'kubectl is not installed, so nothing was rendered here',
    'systemd-analyze is not installed, so nothing was tested here; on Debian: apt-get install systemd',
    '`script` of util-linux is not installed; on Debian: apt-get install bsdutils',
    'prlimit (util-linux) is not installed or not permitted',
    'only Linux has systemd',
  ]) {
    assert.ok(isAllowed(reason, true), reason);
  }
  assert.ok(!isAllowed('(no reason given)', false));
});

test('CI installs the tools and requires them', () => {
  assert.match(read('.ci/run'), /^ {2}scripts\/install-test-tools\.sh\n {2}export TEST_TOOLS=required$/m);
  const jobs = read('.github/workflows/ci.yml').split(/\n(?= {2}\w+:\n)/);
  const installing = jobs.filter((job) => job.includes('install-test-tools.sh'));
  assert.equal(installing.length, 2);
  for (const job of installing) assert.match(job, /^ {4}env:\n {6}TEST_TOOLS: required$/m);
});
