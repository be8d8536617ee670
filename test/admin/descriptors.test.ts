// The first requests to the admin listener arrive while no file descriptor is free. Files and modules that cannot be
// loaded at that moment are loaded for later requests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { countDescriptors } from '../helpers/process-figures.ts';
import { RawClient, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { useBackend } from '../helpers/suites.ts';

const paths = ['/', '/dashboard/main.js', '/dashboard/state', '/livez', '/readyz', '/metrics'];

const backend = await useBackend();

/** The reply, or undefined if the connection was closed. */
async function replyOf(client: RawClient): Promise<Reply | undefined> {
  try {
    return await client.reply();
  } catch (error) {
    if (client.isOpen) throw error;
    return undefined;
  }
}

for (const WORKERS of ['1', '2']) {
  test(`admin pages fail without free descriptors and are served when some are free again, WORKERS=${WORKERS}`, async () => {
    await using command = await startCommand({ BACKEND_URL: backend.url, WORKERS }, { descriptors: 64 });
    const askers = await Promise.all(paths.map(() => RawClient.open(command.adminPort)));
    // Sends only the first byte of each request, so that the gateway accepts the connection while descriptors are free.
    for (const asker of askers) await asker.sendPieces(['G']);
    const clients = await Promise.all(
      Array.from({ length: 200 }, () => (WORKERS === '1' ? command.connect() : RawClient.open(command.adminPort))),
    );
    await poll(() => (countDescriptors(command.process.pid) ?? 64) >= 60, 'no descriptor is left');
    const replies: (Reply | undefined)[] = [];
    for (const [index, asker] of askers.entries()) {
      asker.send(requestBytes('GET', paths[index] ?? '').subarray(1));
      replies.push(await replyOf(asker));
    }
    for (const client of clients) client.destroy();
    for (const path of paths) {
      const isServed = () =>
        command.admin(path).then(
          ({ status }) => status === 200,
          () => false,
        );
      await poll(isServed, `${path} is served`);
    }
    assert.equal((await readState(command.adminPort)).now.workers.length, Number(WORKERS));
    const statuses = replies.map((reply) => reply?.status);
    for (const status of statuses) assert.ok([undefined, 200, 500, 503].includes(status), String(status));
    assert.notDeepEqual(new Set(statuses), new Set([200]), 'some requests failed');
  });
}
