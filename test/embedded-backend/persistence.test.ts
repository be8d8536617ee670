// The database of the embedded backend: restarts, kills, and the content of a new database.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { startEmbeddedBackend } from '../../packages/stand-in-backend/stand-in-server.ts';
import { databaseFile, startBackend } from './backend.ts';

const no = undefined;

test('a restart keeps every item and does not reuse an id', async (t) => {
  const database = databaseFile(t);
  const first = await startBackend(t, { database });
  await first.expect('POST', '{"n":1.0,"text":"日本語 \\ud800"}', 201, '{"id":1,"n":1.0,"text":"日本語 \\ud800"}');
  await first.expect('POST', '{}', 201, '{"id":2}');
  await first.expect('DELETE /2', no, 204);
  await first.stop();
  assert.ok(!existsSync(`${database}-wal`));

  const second = await startBackend(t, { database });
  await second.expect('GET', no, 200, '[{"id":1,"n":1.0,"text":"日本語 \\ud800"}]');
  await second.expect('POST', '{}', 201, '{"id":3}');
});

test('a kill during writes loses no acknowledged item', async (t) => {
  const database = databaseFile(t);
  const url = new URL('../../packages/stand-in-backend/stand-in-server.ts', import.meta.url).href;
  const program = `
    import { startEmbeddedBackend } from ${JSON.stringify(url)};
    const backend = await startEmbeddedBackend({ host: '127.0.0.1', port: 0, database: ${JSON.stringify(database)} });
    process.send(backend.url);`;
  const stdio = ['ignore', 'inherit', 'inherit', 'ipc'] as const;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: [...stdio] });
  t.after(() => child.kill('SIGKILL'));
  const exited = once(child, 'exit');
  const [childUrl] = (await once(child, 'message')) as [string];

  const acknowledged = new Map<string, string>();
  const write = async (): Promise<void> => {
    for (let n = 0; ; n++) {
      const headers = { 'content-type': 'application/json' };
      const reply = await fetch(`${childUrl}/api/WorkItem`, { method: 'POST', body: `{"n":${n}.0}`, headers });
      const text = await reply.text();
      acknowledged.set(/\d+/.exec(text)?.[0] ?? '', text);
      if (acknowledged.size === 100) child.kill('SIGKILL');
    }
  };
  await Promise.allSettled(Array.from({ length: 4 }, write));
  assert.deepEqual(await exited, [null, 'SIGKILL']);
  assert.ok(acknowledged.size >= 100);

  const second = await startBackend(t, { database });
  for (const [id, text] of acknowledged) await second.expect(`GET /${id}`, no, 200, text);
});

test('only a new database gets the sample items, and only on request', async (t) => {
  const database = databaseFile(t);
  const first = await startBackend(t, { database, sampleItems: true });
  const items = await (await fetch(`${first.url}/api/WorkItem`)).text();
  for (const field of ['title', 'state', 'assignedTo', 'tags', 'effort']) {
    assert.equal(items.split(`"${field}":`).length, 4, field);
  }
  assert.match(items, /^\[\{"id":1,.*\{"id":2,.*\{"id":3,.*[^\0-\x7f]/);
  for (const id of [1, 2, 3]) await first.expect(`DELETE /${id}`, no, 204);
  await first.stop();
  await (await startBackend(t, { database, sampleItems: true })).expect('GET', no, 200, '[]');
  await (await startBackend(t)).expect('GET', no, 200, '[]');
});

test('with an unusable database the start fails with advice; the file is unchanged', async (t) => {
  const folder = dirname(databaseFile(t));
  const [missing, text, foreign] = [join(folder, 'missing', 'a'), join(folder, 'text'), join(folder, 'foreign')];
  writeFileSync(text, 'not a database, but long enough to be taken for the header of one\n'.repeat(20));
  const connection = new DatabaseSync(foreign);
  connection.exec('CREATE TABLE customer (name TEXT)');
  connection.close();
  for (const [database, reason] of [
    [missing, 'unable to open database file'],
    [text, 'file is not a database'],
    [foreign, 'it is the database of another program'],
  ] as const) {
    await assert.rejects(startEmbeddedBackend({ host: '127.0.0.1', port: 0, database }), (error: Error) => {
      for (const part of [database, reason, 'Name a file in an existing, writable folder']) {
        assert.ok(error.message.includes(part), error.message);
      }
      return error.cause instanceof Error;
    });
  }
  const after = new DatabaseSync(foreign);
  assert.equal(after.prepare('SELECT count(*) AS n FROM sqlite_schema').get()?.['n'], 1);
  assert.equal(after.prepare('PRAGMA journal_mode').get()?.['journal_mode'], 'delete');
  after.close();
});
