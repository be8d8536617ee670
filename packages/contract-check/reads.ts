// The part of the check that only reads: the list, one item of it, and an item that does not exist.

import { isItem, itemsOf, readJson, type Item, type ItemId } from './items.ts';
import type { Call } from '../backend-probe/calls.ts';
import { isStalled, Stopped, type Session } from './session.ts';
import { describeReply, show } from '../backend-probe/describe.ts';

/** What the backend holds, as far as its list says it. */
export interface Found {
  /** That of the list. */
  readonly call: Call;
  /** Undefined where items could not be found in the list. */
  readonly items: readonly Item[] | undefined;
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
  const call = await session.call('list');
  const isListed = session.judge(call);
  if (call.outcome === 'unreachable' && !call.hasBytes) {
    throw new Stopped();
  }
  const list = isListed ? readJson(call.reply.body) : undefined;
  if (isListed && !Array.isArray(list)) {
    session.tell(call, 'list-not-array');
  }
  const items = itemsOf(list);
  const found = (items ?? []).map((item) => session.idOf(item));
  if (found.includes(undefined)) {
    session.tell(call, 'items-without-id');
  }
  const ids = found.filter((id) => id !== undefined);
  for (const id of ids) {
    tellOfId(session, call, id);
  }
  const texts = new Set(ids.map(({ text }) => text));
  await readListed(session, ids);
  let missing = largestId;
  while (texts.has(String(missing))) {
    missing -= 1;
  }
  await readMissing(session, call, String(missing));
  return { call, items, ids: texts, missingId: String(missing) };
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
      if (!isItem(item) || !session.hasNoOtherId(item, text)) {
        session.tell(call, 'read-of-another');
      }
    }
    return;
  }
}

async function readMissing(session: Session, list: Call, id: string): Promise<void> {
  const call = await session.call('read', id);
  // The list has shown the same: the backend answers everything so.
  const isSaid = list.outcome !== 'ok' && list.answer?.status === call.answer?.status;
  if (call.outcome === 'ok') {
    session.tell(call, 'missing-is-200');
  } else if (call.outcome === 'not-found') {
    return;
  } else if (isStalled(call) || call.outcome === 'unreachable' || isSaid) {
    session.judge(call);
  } else {
    session.tell(call, 'missing-is-no-404', describeReply(call));
  }
}
