// The database of the embedded backend: restarts, kills, and the content of a new database.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';
import { startEmbeddedBackend } from '../../packages/stand-in-backend/stand-in-server.ts';
import { assertJson, databaseFile, send, startBackend } from './backend.ts';

describe('the database of the embedded backend', () => {
  test('a restart keeps every item and does not reuse an id', async (t) => {
    const database = databaseFile(t);
    const first = await startBackend(t, { database });
    await send(first.url, 'POST', '/api/WorkItem', '{"n":1.0,"text":"日本語 \\ud800"}');
    await send(first.url, 'POST', '/api/WorkItem', '{}');
    await send(first.url, 'DELETE', '/api/WorkItem/2');
    await first.stop();
    assert.ok(!existsSync(`${database}-wal`));

    const second = await startBackend(t, { database });
    assertJson(await send(second.url, 'GET', '/api/WorkItem'), 200, '[{"id":1,"n":1.0,"text":"日本語 \\ud800"}]');
    assertJson(await send(second.url, 'POST', '/api/WorkItem', '{}'), 201, '{"id":3}');
  });

  test('a kill during writes loses no acknowledged item', async (t) => {
    const database = databaseFile(t);
    const url = new URL('../../packages/stand-in-backend/stand-in-server.ts', import.meta.url).href;
    const program = `
      import { startEmbeddedBackend } from ${JSON.stringify(url)};
      const backend = await startEmbeddedBackend({ host: '127.0.0.1', port: 0, database: ${JSON.stringify(database)} });
      process.send(backend.url);`;
    const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    t.after(() => child.kill('SIGKILL'));
    const exited = once(child, 'exit');
    const [childUrl] = (await once(child, 'message')) as [string];

    const acknowledged = new Map<number, string>();
    const write = async (): Promise<void> => {
      for (let n = 0; ; n++) {
        const reply = await send(childUrl, 'POST', '/api/WorkItem', `{"n":${n}.0}`);
        assert.equal(reply.status, 201);
        const text = reply.body.toString();
        acknowledged.set((JSON.parse(text) as { id: number }).id, text);
        if (acknowledged.size === 100) child.kill('SIGKILL');
      }
    };
    await Promise.allSettled(Array.from({ length: 4 }, write));
    assert.deepEqual(await exited, [null, 'SIGKILL']);
    assert.ok(acknowledged.size >= 100);

    const second = await startBackend(t, { database });
    for (const [id, text] of acknowledged) assertJson(await send(second.url, 'GET', `/api/WorkItem/${id}`), 200, text);
  });

  test('only a new database gets the sample items, and only on request', async (t) => {
    const database = databaseFile(t);
    const first = await startBackend(t, { database, sampleItems: true });
    const items = (await send(first.url, 'GET', '/api/WorkItem')).body.toString();
    for (const field of ['title', 'state', 'assignedTo', 'tags', 'effort']) {
      assert.equal(items.split(`"${field}":`).length, 4, field);
    }
    assert.match(items, /^\[\{"id":1,.*\{"id":2,.*\{"id":3,.*[^\0-\x7f]/);
    for (const id of [1, 2, 3]) await send(first.url, 'DELETE', `/api/WorkItem/${id}`);
    await first.stop();

    const second = await startBackend(t, { database, sampleItems: true });
    assertJson(await send(second.url, 'GET', '/api/WorkItem'), 200, '[]');
    const plain = await startBackend(t);
    assertJson(await send(plain.url, 'GET', '/api/WorkItem'), 200, '[]');
  });

  test('with an unusable database the start fails with advice; the file is unchanged', async (t) => {
    const file = databaseFile(t);
    const missing = join(dirname(file), 'missing', 'work-items.sqlite');
    const text = join(dirname(file), 'text.sqlite');
    writeFileSync(text, 'not a database, but long enough to be taken for the header of one\n'.repeat(20));
    const foreign = join(dirname(file), 'foreign.sqlite');
    const connection = new DatabaseSync(foreign);
    connection.exec('CREATE TABLE customer (name TEXT)');
    connection.close();
    for (const [database, reason] of [
      [missing, /unable to open database file/],
      [text, /file is not a database/],
      [foreign, /it is the database of another program/],
    ] as const) {
      await assert.rejects(startEmbeddedBackend({ host: '127.0.0.1', port: 0, database }), (error: Error) => {
        assert.ok(error.message.includes(database));
        assert.match(error.message, reason);
        assert.match(error.message, /Name a file in an existing, writable folder/);
        assert.ok(error.cause instanceof Error);
        return true;
      });
    }
    const after = new DatabaseSync(foreign);
    assert.equal(after.prepare('SELECT count(*) AS n FROM sqlite_schema').get()?.['n'], 1);
    assert.equal(after.prepare('PRAGMA journal_mode').get()?.['journal_mode'], 'delete');
    after.close();
  });
});
