// The part of the check that only reads: the list, one item of it, and an item that does not exist.

import { hasNoOtherId, idOf, isItem, itemsOf, readJson, type ItemId, type ItemList } from './items.ts';
import type { Call } from '../backend-probe/calls.ts';
import { isStalled, Stopped, type Session } from './session.ts';
import { describeReply, show } from '../backend-probe/describe.ts';

/** What the backend holds, as far as its list says it. */
export interface Found {
  /** Undefined where items could not be found in the list. */
  readonly list: ItemList | undefined;
  readonly ids: ReadonlySet<string>;
  /** An id that no item of the list has. */
  readonly missingId: string;
}

// A backend's list may hold one that has been deleted since.
const triesMax = 2;
// The largest that a 32-bit backend takes, so that it is no other flaw which it answers.
const largestId = 2_147_483_647;

/** Tries the reads. */
export async function tryReads(session: Session): Promise<Found> {
  const { itemIdParsing } = session.options.settings;
  const call = await session.call('list');
  const isListed = session.judge(call);
  if (call.outcome === 'unreachable' && !call.hasBytes) {
    throw new Stopped();
  }
  const list = isListed ? lookThrough(session, call) : undefined;
  const found = (list?.items ?? []).map((item) => idOf(item, itemIdParsing));
  const ids = found.filter((id) => id !== undefined);
  const texts = new Set(ids.map(({ text }) => text));
  await readListed(session, ids);
  const missingId = findMissing(texts);
  await readMissing(session, missingId);
  return { list, ids: texts, missingId };
}

function lookThrough(session: Session, call: Call): ItemList | undefined {
  const list = itemsOf(readJson(call.reply.body));
  if (list?.isPlain !== true) {
    session.tell(call, 'list-not-array');
  }
  const isWithoutIds = list?.items.some(
    (item) => idOf(item, session.options.settings.itemIdParsing) === undefined,
  );
  if (isWithoutIds === true) {
    session.tell(call, 'items-without-id');
  }
  for (const item of list?.items ?? []) {
    const id = idOf(item, session.options.settings.itemIdParsing);
    if (id !== undefined) {
      tellOfId(session, call, id);
    }
  }
  return list;
}

/** Says what is odd about an id, once for each kind. */
export function tellOfId(session: Session, call: Call, { text, kind, asked }: ItemId): void {
  if (kind === 'whole' && !text.startsWith('-')) {
    return;
  }
  const code = kind === 'whole' ? 'id-negative' : (`id-${kind}` as const);
  if (session.findings.every((finding) => finding.code !== code)) {
    const name = code === 'id-unusable' && asked !== undefined ? 'id-unusable:cut' : code;
    session.tell(call, name, show(kind === 'text' ? JSON.stringify(text) : text), show(asked ?? ''));
  }
}

async function readListed(session: Session, ids: readonly ItemId[]): Promise<void> {
  const usable = ids.filter(({ kind }) => kind !== 'unusable').slice(0, triesMax);
  for (const [index, { text }] of usable.entries()) {
    const call = await session.call('read', text);
    if (call.outcome === 'not-found' && index < usable.length - 1) {
      continue;
    }
    if (session.judge(call)) {
      const item = readJson(call.reply.body);
      if (!isItem(item) || !hasNoOtherId(item, text, session.options.settings.itemIdParsing)) {
        session.tell(call, 'read-of-another');
      }
    }
    return;
  }
}

function findMissing(ids: ReadonlySet<string>): string {
  let id = largestId;
  while (ids.has(String(id))) {
    id -= 1;
  }
  return String(id);
}

async function readMissing(session: Session, id: string): Promise<void> {
  const call = await session.call('read', id);
  if (call.outcome === 'not-found') {
    return;
  }
  if (call.outcome === 'ok') {
    session.tell(call, 'missing-is-200');
    return;
  }
  if (isStalled(call) || call.outcome === 'unreachable' || isSaidOf(session, call)) {
    session.judge(call);
    return;
  }
  session.tell(call, 'missing-is-no-404', describeReply(call));
}

// The list has shown the same: the backend answers everything so.
function isSaidOf({ calls }: Session, { answer }: Call): boolean {
  const [list] = calls.made;
  return list?.outcome !== 'ok' && list?.answer?.status === answer?.status;
}
