// The memory of a process after reloads [D65]. test/process/reload.test.ts tests the command.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { createLog } from '../../packages/command/log/log.ts';
import { parts } from '../../packages/command/parts.ts';
import { startClientService } from '../../packages/command/service/client-service.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import type { Settings } from '../../packages/command/settings/settings.ts';
import { poll } from '../helpers/changes.ts';

test('when the calls of the old settings have ended, nothing keeps the old settings', async (t) => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const log = createLog({ logLevel: 'silent', logFormat: 'json', isShared: false });
  const read = (requestBytesMax: number): Settings =>
    resolveSettings('serve', { host: '127.0.0.1', port: '0', requestBytesMax: String(requestBytesMax) }, {}).settings;
  const service = await startClientService(read(1), log, { tls: {}, parts });
  t.after(async () => {
    await service.stop();
    await log.end();
  });
  const old: WeakRef<Settings>[] = [];
  for (let limit = 2; limit <= 5; limit += 1) {
    const next = read(limit);
    old.push(new WeakRef(next));
    await (
      await service.reload(next, {})
    ).finished;
  }
  // The last settings are in force.
  await poll(() => {
    collectGarbage();
    return old.slice(0, -1).every((each) => each.deref() === undefined);
  }, 'the old settings are collected');
  assert.notEqual(old.at(-1)?.deref(), undefined);
});
