// Reloads of one process, before a drain and in the long run [D65], and its connections to the backend [D68].
// test/process/reload.test.ts tests the command.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import dns from 'node:dns';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { createLog } from '../../packages/command/log/log.ts';
import { parts } from '../../packages/command/command-parts.ts';
import { startLocalService } from '../../packages/command/service/local-service.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import type { SettingName, Settings } from '../../packages/command/settings/settings.ts';
import { poll } from '../helpers/changes.ts';
import { createPair, keySetOf } from '../helpers/issuer.ts';
import { request } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';
import { assertNoToken } from '../helpers/tokens.ts';

const backend = await useBackend();
const folder = useFolder();

function read(changes: Partial<Record<SettingName, string>>): Settings {
  const flags = { host: '127.0.0.1', port: '0', backendUrl: backend.url };
  return resolveSettings('serve', { ...flags, ...changes }, {}).settings;
}

async function start(t: TestContext, settings: Settings) {
  const log = createLog({ logLevel: 'silent', logFormat: 'json', isShared: false });
  const service = await startLocalService(settings, log, { tls: {}, parts });
  t.after(async () => {
    await service.stop();
    await log.end();
  });
  return service;
}

test('when the calls of the old settings have ended, nothing keeps the old settings', async (t) => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const service = await start(t, read({ requestBytesMax: '1' }));
  const old: WeakRef<Settings>[] = [];
  for (let limit = 2; limit <= 5; limit += 1) {
    const next = read({ requestBytesMax: String(limit) });
    old.push(new WeakRef(next));
    const { finished } = await service.reload(next, {});
    await finished;
  }
  // The last settings are in force.
  await poll(() => {
    collectGarbage();
    return old.slice(0, -1).every((each) => each.deref() === undefined);
  }, 'the old settings are collected');
  assert.notEqual(old.at(-1)?.deref(), undefined);
});

for (const step of ['beginDrain', 'finishDrain', 'stop'] as const) {
  const effect = step === 'beginDrain' ? 'takes effect, and its replies close their connections' : 'has no effect';
  test(`a reload in progress at \`${step}\` ${effect} [D33, D65]`, async (t) => {
    const service = await start(t, read({}));
    const authJwksFile = join(folder, step);
    execFileSync('mkfifo', [authJwksFile]);
    const next = read({ authIssuer: 'https://issuer.example', authAudience: 'a', authJwksFile });
    const reloading = service.reload(next, {});
    const drained = service[step](new AbortController().signal);
    // The reload waits for this text.
    await writeFile(authJwksFile, keySetOf(createPair('one', 'ES256')));
    const { finished } = await reloading;
    await drained;
    assert.equal(finished !== undefined, step === 'beginDrain');
    if (step === 'beginDrain') {
      const reply = await request(Number(new URL(service.url).port), 'GET', '/api/work-items');
      assertNoToken(reply);
      assert.equal(reply.header('connection'), 'close');
      await service.finishDrain(new AbortController().signal);
      await finished;
    }
  });
}

test('after a reload without a change, a call goes to the machine that the name of the backend now has [D68]', async (t) => {
  const old = await ScriptedBackend.start({ host: '127.0.0.2' });
  const moved = await ScriptedBackend.start({ host: '127.0.0.3', port: old.port });
  let address = '127.0.0.2';
  const lookup = dns.lookup;
  type Callback = (...found: unknown[]) => void;
  t.mock.method(dns, 'lookup', (name: string, options: dns.LookupAllOptions, callback: Callback) => {
    if (name === 'backend.test') setImmediate(callback, null, [{ address, family: 4 }]);
    else lookup(name, options, callback);
  });
  const settings = read({ backendUrl: `http://backend.test:${old.port}` });
  const service = await start(t, settings);
  t.after(() => Promise.all([old.stop(), moved.stop()]));
  const call = async (): Promise<string> => (await fetch(`${service.url}/api/work-items`)).text();
  old.answers(answer('["old"]'));
  moved.answers(answer('["moved"]'));
  assert.equal(await call(), '["old"]');
  address = '127.0.0.3';
  assert.equal(await call(), '["old"]');
  await service.reload(settings, {});
  assert.equal(await call(), '["moved"]');
});

test('a reload changes BUFFERED_BYTES_MAX', async (t) => {
  const service = await start(t, read({}));
  const body = JSON.stringify('x'.repeat(100_000));
  for (const [bufferedBytesMax, status] of [
    ['1000000', 200],
    ['1000', 503],
    ['1000000', 200],
  ] as const) {
    await service.reload(read({ bufferedBytesMax }), {});
    const reply = await request(Number(new URL(service.url).port), 'PUT', '/api/work-items/1', { body });
    assert.equal(reply.status, status);
  }
});
