// File descriptors run out while somebody asks the admin listener for the first time: what could not be loaded or
// read then is there when descriptors are.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { countDescriptors } from '../helpers/process-figures.ts';
import { RawClient, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand } from '../helpers/targets.ts';
import { Viewer } from '../helpers/viewer.ts';

const paths = ['/', '/dashboard/main.js', '/dashboard/uPlot.min.css', '/livez', '/readyz', '/metrics'];

let backend: ScriptedBackend;
before(async () => {
  backend = await ScriptedBackend.start();
  backend.answers(answer('[]'));
});
after(() => backend.stop());

/** The reply, or undefined when the connection was closed instead. */
async function replyOf(client: RawClient): Promise<Reply | undefined> {
  try {
    return await client.reply();
  } catch (error) {
    if (client.isOpen) throw error;
    return undefined;
  }
}

for (const WORKERS of ['1', '2']) {
  test(`the first look and the first scrape without descriptors spoil none that come later, WORKERS=${WORKERS}`, async () => {
    await using command = await startCommand({ BACKEND_URL: backend.url, WORKERS }, { descriptors: 64 });
    const askers = await Promise.all(paths.map(() => RawClient.open(command.adminPort)));
    // One byte, so that it is known to have been accepted.
    for (const asker of askers) await asker.sendPieces(['G']);
    const clients = await Promise.all(
      Array.from({ length: 200 }, () =>
        WORKERS === '1' ? command.connect() : RawClient.open(command.adminPort),
      ),
    );
    await poll(() => (countDescriptors(command.process.pid) ?? 64) >= 60, 'no descriptor is left');
    const replies: (Reply | undefined)[] = [];
    for (const [index, asker] of askers.entries()) {
      asker.send(requestBytes('GET', paths[index] ?? '').subarray(1));
      replies.push(await replyOf(asker));
    }
    for (const client of clients) client.destroy();
    for (const path of paths) {
      await poll(async () => {
        try {
          return (await command.admin(path)).status === 200;
        } catch {
          return false;
        }
      }, `${path} is there again`);
    }
    await using another = await Viewer.open(command.adminPort);
    await another.message(({ facts }) => facts !== undefined, 'a dashboard is served');
    assert.ok(
      replies.every((reply) => reply === undefined || [200, 500, 503].includes(reply.status)),
      'what was asked meanwhile was answered or not',
    );
    assert.ok(
      replies.some((reply) => reply?.status !== 200),
      'some of it was not there',
    );
  });
}
