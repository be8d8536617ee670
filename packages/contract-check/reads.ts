// The reading part of the check: reads the list, one of its items, and an item that does not exist.

import type { Call } from '../backend-probe/calls.ts';
import { describeReply, show } from '../backend-probe/failures.ts';
import { isItem, itemsOf, readJson, type Item, type ItemId } from './items.ts';
import { isStalled, Stopped, type Session } from './session.ts';

/** The items in the backend's list. */
export interface Found {
  /** The call that read the list. */
  readonly call: Call;
  /** Undefined if the list has no array of items. */
  readonly items: readonly Item[] | undefined;
  readonly ids: ReadonlySet<string>;
  /** An id that no item of the list has. */
  readonly missingId: string;
}

// At most this many listed items are read. The second is read only if the first was deleted after the list was read.
const triesMax = 2;
// The largest 32-bit integer. A backend with 32-bit ids may refuse larger ids.
const largestId = 2_147_483_647;

/** Reads the list and items. Throws `Stopped` to end the check, for example if the backend is unreachable. */
export async function tryReads(session: Session): Promise<Found> {
  const call = await session.call('list');
  const isListed = session.judge(call);
  if (call.outcome === 'unreachable' && !call.hasBytes) throw new Stopped();
  const list = isListed ? readJson(call.reply.body) : undefined;
  if (isListed && !Array.isArray(list)) session.tell(call, 'list-not-array');
  const items = itemsOf(list);
  const found = (items ?? []).map((item) => session.idOf(item));
  if (found.includes(undefined)) session.tell(call, 'items-without-id');
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

/** Records a finding about an odd id, but only one finding for each oddity. */
export function tellOfId(session: Session, call: Call, { text, kind, asked }: ItemId): void {
  if (kind === 'whole' && !text.startsWith('-')) return;
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
    if (call.outcome === 'not-found' && index < usable.length - 1) continue;
    if (session.judge(call)) {
      const item = readJson(call.reply.body);
      if (!isItem(item) || !session.hasNoOtherId(item, text)) session.tell(call, 'read-of-another');
    }
    return;
  }
}

async function readMissing(session: Session, list: Call, id: string): Promise<void> {
  const call = await session.call('read', id);
  // If the list failed with the same status, this failure says nothing about missing items.
  const isSameAsList = list.outcome !== 'ok' && list.answer?.status === call.answer?.status;
  if (call.outcome === 'ok') {
    session.tell(call, 'missing-is-200');
  } else if (call.outcome === 'not-found') {
    return;
  } else if (isStalled(call) || call.outcome === 'unreachable' || isSameAsList) {
    session.judge(call);
  } else {
    session.tell(call, 'missing-is-no-404', describeReply(call));
  }
}
