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
    session.warn(call, {
      code: 'list-not-array',
      title: 'the list is no JSON array',
      advice:
        'The gateway passes on any JSON. Clients that want an array of items must be told, or the backend must answer with one. Errors must not have a status of success.',
    });
  }
  const isWithoutIds = list?.items.some(
    (item) => idOf(item, session.options.settings.itemIdParsing) === undefined,
  );
  if (isWithoutIds === true) {
    session.warn(call, {
      code: 'items-without-id',
      title: 'items of the list have no id that could be found',
      advice:
        'Clients read, change and delete an item by its id: each item should have one, as the integer `id`.',
    });
  }
  for (const item of list?.items ?? []) {
    const id = idOf(item, session.options.settings.itemIdParsing);
    if (id !== undefined) {
      warnOfId(session, call, id);
    }
  }
  return list;
}

/** Says what is odd about an id, once for each kind. */
export function warnOfId(session: Session, call: Call, { text, kind, asked }: ItemId): void {
  if (kind === 'whole') {
    if (text.startsWith('-') && !has(session, 'id-negative')) {
      session.warn(call, {
        code: 'id-negative',
        title: `an id is negative: ${show(text)}`,
        advice: 'It works here; make sure that clients do not take it for "none".',
      });
    }
    return;
  }
  if (has(session, `id-${kind}`)) {
    return;
  }
  if (kind === 'unusable') {
    session.breaks(call, {
      code: 'id-unusable',
      title: `an id is no integer: ${show(text)}`,
      clients:
        asked === undefined
          ? '400 {"error":"Invalid ID format"} for every read, update and delete of it'
          : `the item ${show(asked)} instead, for every read, update and delete of it`,
      advice:
        asked === undefined
          ? 'The gateway takes integers only. The backend needs integer ids.'
          : 'The backend needs integer ids, written without zeros in front. ITEM_ID_PARSING=whole has such ids refused instead of cut.',
    });
    return;
  }
  session.warn(call, {
    code: `id-${kind}`,
    title:
      kind === 'long'
        ? `an id is beyond 2^53: ${show(text)}`
        : `ids are texts: ${show(JSON.stringify(text))}`,
    advice:
      kind === 'long'
        ? 'The gateway keeps every digit. Clients in JavaScript round it, and then ask for another item: use smaller ids.'
        : 'It works here, as they hold integers. Clients that compare them with numbers must be told.',
  });
}

function has({ findings }: Session, code: string): boolean {
  return findings.some((finding) => finding.code === code);
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
        session.breaks(call, {
          code: 'read-of-another',
          title: 'a read answers with something else than the item of that id',
          advice:
            'The backend must answer /api/WorkItem/<id> with the one item of that id, as a JSON object.',
        });
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
    session.warn(call, {
      code: 'missing-is-200',
      title: 'a read of an item that does not exist is a success',
      advice:
        'Clients cannot tell that it is not there. The backend should answer 404; an error must not have a status of success.',
    });
    return;
  }
  if (isStalled(call) || call.outcome === 'unreachable' || isSaidOf(session, call)) {
    session.judge(call);
    return;
  }
  session.breaks(call, {
    code: 'missing-is-no-404',
    title: 'a read of an item that does not exist is not answered with 404',
    clients: `${describeReply(call)}, which is no "not found", and counts as a failure of the backend`,
    advice: 'The backend must answer 404 for an id that no item has.',
  });
}

// The list has shown the same: the backend answers everything so.
function isSaidOf({ calls }: Session, { answer }: Call): boolean {
  const [list] = calls.made;
  return list?.outcome !== 'ok' && list?.answer?.status === answer?.status;
}
