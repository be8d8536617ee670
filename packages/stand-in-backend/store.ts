// Keeps the work items in SQLite: the schema, the five statements and the sample items. Reads no field except the id.

import { DatabaseSync } from 'node:sqlite';

import { quoteIfPlain } from '../core/options/accepted-values.ts';
import { StartError } from '../core/hosts/common/start-error.ts';
import { readItemText, type ItemText } from './item-text.ts';

/** The largest id, because an id is an `int` in the .NET controllers that this backend replaces. */
export const itemIdMax = 2_147_483_647;

// With AUTOINCREMENT the id of a deleted item is never reused.
const schema = `
  CREATE TABLE work_item (
    id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id <= ${itemIdMax}),
    before_id TEXT NOT NULL,
    after_id TEXT NOT NULL
  ) STRICT`;

/** The work items. Each write is on disk when its function returns. Writes of an unknown item return false. */
export type Store = ReturnType<typeof storeOn>;

/**
 * Opens the store in the file `database`, or in memory for `:memory:`. With `sampleItems` a new store gets the sample
 * items. Throws a `StartError` with advice if the file cannot be used.
 */
export function openStore(database: string, sampleItems: boolean): Store {
  let connection: DatabaseSync | undefined;
  try {
    connection = new DatabaseSync(database, { timeout: 1_000 });
    prepareDatabase(connection, sampleItems);
    return storeOn(connection);
  } catch (cause) {
    connection?.close();
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new StartError(
      `Cannot use ${quoteIfPlain(database) ?? 'EMBEDDED_BACKEND_DATABASE'} as the database of the embedded backend: ${reason}. ` +
        'Name a file in an existing, writable folder, or :memory:.',
      cause,
    );
  }
}

function prepareDatabase(connection: DatabaseSync, sampleItems: boolean): void {
  // One transaction, so that a start that is killed half-way leaves the database empty.
  connection.exec('BEGIN IMMEDIATE');
  const tables = connection.prepare('SELECT name FROM sqlite_schema').all();
  if (tables.length === 0) {
    connection.exec(schema);
    if (sampleItems) {
      const store = storeOn(connection);
      for (const sample of samples) {
        const item = readItemText(Buffer.from(JSON.stringify(sample)));
        if (item) store.create(item);
      }
    }
  } else if (!tables.some((table) => table['name'] === 'work_item')) {
    throw new Error('it is the database of another program');
  }
  connection.exec('COMMIT');
  // A write is acknowledged only after it is on disk, so neither a kill nor a power cut loses it. An insert takes
  // 0.15 ms on ext4; with SQLite's default journal and the same durability it takes 1.9 ms.
  connection.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL');
}

function storeOn(connection: DatabaseSync) {
  // Selected as BLOB, so that the bytes go from the database to the socket without becoming a string.
  const list = connection.prepare(`
    SELECT CAST('[' || ifnull(group_concat(before_id || id || after_id, ',' ORDER BY id), '') || ']' AS BLOB) AS json
    FROM work_item`);
  const read = connection.prepare(
    'SELECT CAST(before_id || id || after_id AS BLOB) AS json FROM work_item WHERE id = ?',
  );
  const create = connection.prepare('INSERT INTO work_item (before_id, after_id) VALUES (?, ?)');
  const update = connection.prepare('UPDATE work_item SET before_id = ?, after_id = ? WHERE id = ?');
  const remove = connection.prepare('DELETE FROM work_item WHERE id = ?');
  return {
    list: () => list.get()?.['json'] as Uint8Array,
    /** Throws if no id is left. */
    create: (item: ItemText) => Number(create.run(item.beforeId, item.afterId).lastInsertRowid),
    read: (id: number) => read.get(id)?.['json'] as Uint8Array | undefined,
    update: (id: number, item: ItemText) => update.run(item.beforeId, item.afterId, id).changes === 1,
    delete: (id: number) => remove.run(id).changes === 1,
    close: () => connection.close(),
  };
}

// prettier-ignore
const samples = [
  { title: 'Sign-in fails for names with an apostrophe', type: 'Bug', state: 'Active', assignedTo: "Aoife O'Neill", priority: 1,
    effort: 3, remainingHours: 5.5, tags: ['sign-in', 'regression'], createdAt: '2026-01-12T09:30:00Z' },
  { title: 'Export the board as CSV', type: 'User Story', state: 'New', assignedTo: null, priority: 2,
    effort: 8, remainingHours: 20, tags: ['export'], createdAt: '2026-01-14T14:05:00Z' },
  { title: 'Übersetzung der Startseite prüfen – 日本語 folgt', type: 'Task', state: 'Resolved', assignedTo: 'Jürgen Weiß', priority: 3,
    effort: 1, remainingHours: 0, tags: ['Übersetzung', '日本語'], createdAt: '2026-01-19T07:45:00Z' },
];
