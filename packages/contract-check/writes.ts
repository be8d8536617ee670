// The writing part of the check [D61]: creates one item, then reads, changes and deletes it. Changes or deletes an item
// only if that item was not in the list before, and a read has just shown the marker in it.

import { randomBytes } from 'node:crypto';

import type { Call } from '../backend-probe/calls.ts';
import { show } from '../backend-probe/failures.ts';
import { findingOf } from './findings.ts';
import { carries, idsOf, isItem, itemsOf, readJson, writeItem, type Item, type Template } from './items.ts';
import { Stopped, type Session } from './session.ts';

/** The items in the backend's list before the check writes. */
export interface Found {
  readonly call: Call;
  /** Undefined if the list has no array of items. */
  readonly items: readonly Item[] | undefined;
  readonly ids: ReadonlySet<string>;
  /** An id that no item of the list has, and the call that read it. */
  readonly missingId: string;
  readonly missingRead: Call;
}

// At most this many listed items with the marker are examined. A backend that lists more of them misbehaves.
const itemsMax = 5;

const ownItem = 'a read proved that the check created it';
const unproven = 'its delete succeeded, but nothing proves that the item is gone';
const anotherItem =
  'after its delete, a read of its id shows something else, and the list does not prove that the item is gone';

/** Creates, reads, changes and deletes an item, and reports what is left behind. Throws `Stopped` to end the check. */
export async function tryWrites(session: Session, template: Template, found: Found): Promise<void> {
  // Every listed item needs a usable id: if a create's answer is wrong, only the list can identify the created item.
  const isUsable = (item: Item): boolean => ![undefined, 'unusable'].includes(session.idOf(item)?.kind);
  if (found.items?.every(isUsable) !== true) {
    const why =
      found.items === undefined
        ? 'Before the check writes anything, the list must work and have all items in one array.'
        : 'Before the check writes anything, every item of the list must have an integer id.';
    const finding = findingOf(found.call, 'write-not-safe', [why]);
    session.add({ ...finding, operations: ['create', 'update', 'delete'] });
    return;
  }
  // The last check for a stop before an item may exist. A stop here needs no clean-up.
  session.stopIf();
  const item = new OwnItem(session, template, found);
  try {
    await item.try();
  } finally {
    await item.cleanUp();
  }
}

class OwnItem {
  // Short enough for a title.
  readonly #marker = `gateway-check-${randomBytes(8).toString('hex')}`;
  readonly #session: Session;
  readonly #template: Template;
  readonly #found: Found;
  // Ids in the create's answer. The check uses an id only after a read has proved that the item is ours.
  readonly #named = new Set<string>();
  // The id in the create's answer, if the gateway cannot request items by this id.
  #unusableId: string | undefined;
  // Ids of items that a read has proved to be ours. Each value: why the item still exists; undefined if it is gone.
  readonly #own = new Map<string, string | undefined>();
  // Ids of items that still exist after their delete, although the backend's answer to the delete is final.
  readonly #undeletable = new Set<string>();
  // Other ids for which a read finds no item.
  readonly #absent = new Set<string>();
  // True if reads ignore the id, and so prove nothing: a read of an unused id has shown our item.
  #isBlind = false;

  constructor(session: Session, template: Template, found: Found) {
    this.#session = session;
    this.#template = template;
    this.#found = found;
  }

  /** Creates, reads, changes and deletes the item. `cleanUp` must follow, even after an error. */
  async try(): Promise<void> {
    const session = this.#session;
    const id = await this.#create();
    if (id === undefined) return;
    session.stopIf();
    const call = await session.look('read', this.#found.missingId);
    this.#isBlind = call.outcome === 'ok' && call.reply.body.includes(this.#marker);
    if (this.#isBlind) {
      session.tell(call, 'read-ignores-id');
    } else {
      await this.#update(id);
      await this.#delete(id);
    }
  }

  async #create(): Promise<string | undefined> {
    const session = this.#session;
    const call = await session.call('create', undefined, writeItem(this.#template, this.#marker));
    const isOk = session.judge(call);
    const hasId = isOk && this.#nameByAnswer(call);
    const location = /\/(\d+)\/?$/.exec(call.answer?.fields.get('location') ?? '');
    if (location?.[1] !== undefined) this.#named.add(location[1]);
    const named = await this.#findOwn(this.#named);
    const listed = named === undefined ? await this.#search() : undefined;
    let id = named ?? (await this.#findOwn(listed ?? []));
    if (isOk && !hasId) {
      const alone = await this.#findAlone(call);
      if (alone === undefined) {
        session.tell(call, 'create-without-id');
      } else {
        id ??= alone;
        this.#named.add(alone);
        session.tell(call, 'create-without-id:alone', show(alone));
      }
    }
    if (isOk && listed !== undefined) {
      if (id === undefined) {
        session.tell(call, 'not-proven', this.#marker, JSON.stringify(this.#template.property));
      } else if (hasId) {
        session.tell(call, 'create-names-another', id);
      }
    }
    return id;
  }

  // Returns the id of our item if the create's answer is this id alone.
  async #findAlone(create: Call): Promise<string | undefined> {
    const id = readJson(create.reply.body);
    if (id === undefined) return undefined;
    const [alone] = idsOf({ id }, this.#session.options.settings.itemIdParsing);
    const isOwn = alone?.kind !== 'unusable' && (await this.#proof(alone?.text ?? '')).item !== undefined;
    return isOwn ? alone?.text : undefined;
  }

  // Returns the first of `ids` that a read proves to be ours.
  async #findOwn(ids: Iterable<string>): Promise<string | undefined> {
    for (const id of ids) {
      if ((await this.#prove(id)) !== undefined) return id;
    }
    return undefined;
  }

  // Returns the item `id` if a read proves that it is ours. Judges the read, unless it shows another item.
  async #prove(id: string): Promise<Item | undefined> {
    this.#session.stopIf();
    const { call, item } = await this.#proof(id);
    if (call.outcome !== 'ok' || item !== undefined) this.#session.judge(call);
    return item;
  }

  // Returns false if the answer to the create is not an item with an id.
  #nameByAnswer(call: Call): boolean {
    const session = this.#session;
    const item = readJson(call.reply.body);
    const id = isItem(item) ? session.idOf(item) : undefined;
    if (id === undefined) return false;
    session.tellOfId(call, id);
    if (id.kind === 'unusable') {
      this.#unusableId = id.text;
    } else {
      this.#named.add(id.text);
    }
    if (this.#found.ids.has(id.text)) session.tell(call, 'create-names-another:known', show(id.text));
    return true;
  }

  // Reads the item `id`. Returns the call, and the item if it is ours. The item is ours if it was not in the list before,
  // and has our marker and no other id.
  async #proof(id: string): Promise<{ readonly call: Call; readonly item: Item | undefined }> {
    const call = await this.#session.look('read', id);
    const item = call.outcome === 'ok' ? readJson(call.reply.body) : undefined;
    const isOwn = !this.#found.ids.has(id) && carries(item, this.#marker) && this.#session.hasNoOtherId(item, id);
    return { call, item: isOwn ? item : undefined };
  }

  // Reads the list again. Returns the ids of the items that have the marker and were not in the list before. Returns
  // undefined if the list is unusable.
  async #search(): Promise<string[] | undefined> {
    const call = await this.#session.look('list');
    const items = call.outcome === 'ok' ? itemsOf(readJson(call.reply.body)) : undefined;
    return items
      ?.filter((item) => carries(item, this.#marker))
      .flatMap((item) => this.#session.idOf(item) ?? [])
      .filter(({ kind, text }) => kind !== 'unusable' && !this.#found.ids.has(text))
      .map(({ text }) => text)
      .slice(0, itemsMax);
  }

  async #update(id: string): Promise<void> {
    const session = this.#session;
    const item = await this.#prove(id);
    if (item === undefined) return;
    // Clients send an item as they read it, with changes. So does this update.
    const changed = `${this.#marker}-2`;
    let call = await session.call('update', id, this.#rewrite(item, changed));
    const { status } = call.answer ?? {};
    if ((status === 400 || status === 422) && (await this.#proof(id)).item !== undefined) {
      const again = await session.call('update', id, writeItem(this.#template, changed));
      if (again.outcome === 'ok') {
        session.tell(call, 'update-of-what-was-read');
        call = again;
      }
    }
    if (!session.judge(call)) return;
    const after = await session.call('read', id);
    if (session.judge(after) && !after.reply.body.includes(changed)) session.tell(call, 'update-not-seen');
  }

  // Writes the item as JSON again, so that no property occurs twice and every parser finds the same id.
  #rewrite(item: Item, changed: string): Buffer {
    const entries = Object.entries(item).map(([name, value]) => [
      name,
      typeof value === 'string' ? value.replaceAll(this.#marker, changed) : value,
    ]);
    return Buffer.from(JSON.stringify(Object.fromEntries(entries)));
  }

  async #delete(id: string): Promise<void> {
    const session = this.#session;
    if ((await this.#prove(id)) === undefined) return;
    this.#own.set(id, ownItem);
    const call = await session.call('delete', id);
    if (!session.judge(call)) {
      const { status } = call.answer ?? {};
      this.#own.set(id, status === undefined ? 'its delete had no answer' : `its delete was answered with ${status}`);
      return;
    }
    this.#own.set(id, unproven);
    const after = await session.call('read', id);
    await this.#settle(id, after, call);
    if (after.outcome !== 'ok' && after.outcome !== 'not-found' && !this.#isAsMissing(after)) {
      session.tell(after, 'deleted-is-no-404');
    } else if (after.outcome === 'ok' && carries(readJson(after.reply.body), this.#marker)) {
      session.tell(call, 'delete-not-seen');
      this.#own.set(id, 'its delete succeeded, but the item still exists');
    }
  }

  /** Deletes the created item if that is safe, and reports what is left behind. */
  async cleanUp(): Promise<void> {
    let listed: string[] | undefined;
    try {
      listed = await this.#search();
      if (!this.#isBlind) {
        for (const id of new Set([...this.#own.keys(), ...(listed ?? []), ...this.#named])) {
          await this.#remove(id, listed);
        }
      }
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
    } finally {
      this.#tellLeft(listed);
    }
  }

  async #remove(id: string, listed: readonly string[] | undefined): Promise<void> {
    const isKnown = this.#own.has(id);
    const why = this.#own.get(id);
    if (isKnown && why === undefined) return;
    const { call, item } = await this.#proof(id);
    if (item !== undefined) {
      // If a delete failed, the item is deleted again, because the failure may have been temporary.
      this.#own.set(id, why ?? ownItem);
      const deletion = await this.#session.look('delete', id);
      await this.#settle(id, (await this.#proof(id)).call, deletion);
    } else if (isKnown) {
      await this.#settle(id, call);
    } else if (isGone(call) || (this.#isAsMissing(call) && listed?.length === 0)) {
      this.#absent.add(id);
    }
  }

  // Returns true if the backend answered as to the read of an item that never existed.
  #isAsMissing({ outcome, answer }: Call): boolean {
    const { missingRead } = this.#found;
    return outcome === missingRead.outcome && answer?.status === missingRead.answer?.status;
  }

  // Decides from `after`, a read after the delete, whether our item still exists. If `after` lacks the marker, it can
  // show another item, or be the backend's answer for a deleted item. In this case, our item is gone if the list no
  // longer shows its marker. If `after` is a success, the report must not advise a delete by id.
  async #settle(id: string, after: Call, deletion?: Call): Promise<void> {
    const isSuccess = after.outcome === 'ok';
    if (isSuccess && after.reply.body.includes(this.#marker)) {
      const isFinal = deletion?.outcome === 'ok' || [404, 405, 410, 501].includes(deletion?.answer?.status ?? 0);
      if (isFinal) this.#undeletable.add(id);
      return;
    }
    if (isSuccess) this.#own.set(id, anotherItem);
    const isAfterDelete = deletion?.outcome === 'ok' && after.answer !== undefined;
    const mayBeGone = isSuccess || isAfterDelete || this.#isAsMissing(after);
    if (isGone(after) || (mayBeGone && (await this.#search())?.length === 0)) this.#own.set(id, undefined);
  }

  #tellLeft(listed: readonly string[] | undefined): void {
    const session = this.#session;
    const tell = (id: string | undefined, why: string, remove: string): void => {
      session.leftovers.push({ id: id === undefined ? id : show(id), marker: this.#marker, why, remove });
    };
    const list = session.options.settings.backendUrl.origin + this.#found.call.path;
    const look = `find the item with ${this.#marker} in ${list}, and remove only that item`;
    for (const [id, why] of this.#own) {
      if (why === undefined) continue;
      const remove = this.#undeletable.has(id)
        ? `remove item ${id} with the backend's own tools, for example in its database: DELETE does not remove it`
        : `curl -X DELETE ${list}/${id}`;
      tell(id, why, why === anotherItem || why === unproven ? look : remove);
    }
    // If the id of our item is known, any other id in the create's answer belongs to another item.
    const isKnown = this.#own.size > 0;
    const settled = [this.#own, this.#absent, this.#found.ids];
    for (const id of new Set([...(listed ?? []), ...(isKnown ? [] : this.#named)])) {
      if (settled.every((ids) => !ids.has(id))) tell(id, 'no read proved that the check created it', look);
    }
    const create = session.calls.made.find(({ operation }) => operation.name === 'create');
    const { outcome, answer } = create ?? {};
    const isToldAlready = session.findings.some(
      ({ code, operations }) => code === 'empty-success' && operations.includes('create'),
    );
    if (create !== undefined && outcome !== 'ok' && isKnown && !isToldAlready) session.tell(create, 'created-anyway');
    // If the backend refused the create, and the list does not show the item, then no item was created.
    const wasRefused = listed !== undefined && (outcome === 'rejected' || outcome === 'refused');
    const mayBeMade = !wasRefused && outcome !== 'body-too-large' && outcome !== 'overload';
    if (this.#unusableId !== undefined) {
      tell(this.#unusableId, 'the gateway cannot request an item with this id', look);
    } else if (!isKnown && session.leftovers.length === 0 && mayBeMade) {
      tell(
        undefined,
        answer === undefined || outcome === 'timed-out'
          ? 'the create had no complete answer: the item may exist, or appear later'
          : 'the item may exist, but was not found again',
        look,
      );
    }
  }
}

function isGone({ outcome, answer }: Call): boolean {
  return outcome === 'not-found' || answer?.status === 410;
}
