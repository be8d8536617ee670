// The part of the check that writes: creates one item, reads, changes and deletes it, and leaves nothing behind. An item
// is touched only when it was not in the list before and a read has just shown the marker in it [D61].

import { carries, isItem, itemsOf, readJson, type Item } from './items.ts';
import type { Call } from '../backend-probe/calls.ts';
import { show } from '../backend-probe/describe.ts';
import { tellOfId, type Found } from './reads.ts';
import { isStalled, Stopped, type Session } from './session.ts';
import { createMarker, writeItem, type Template } from './template.ts';

// Whoever shows our marker in more items than that is playing with us.
const itemsMax = 5;

const ownItem = 'a read has shown that it is the one that was made';
const anotherItem =
  'since its delete a read of its id shows something else, and the list does not say that it is gone';

export class OwnItem {
  readonly marker = createMarker();
  readonly #session: Session;
  readonly #template: Template;
  readonly #found: Found;
  // Ids that somebody named for the item. None is trusted before a read.
  readonly #named = new Set<string>();
  // The item has an id that the gateway cannot ask for.
  #unusableId: string | undefined;
  // Proven to be ours and still there: why.
  readonly #stuck = new Map<string, string>();
  // Proven to be ours, and then not there any more.
  readonly #removed = new Set<string>();
  // Named, and never there.
  readonly #absent = new Set<string>();
  // Reads ignore the id, so that they prove nothing.
  #isBlind = false;

  constructor(session: Session, template: Template, found: Found) {
    this.#session = session;
    this.#template = template;
    this.#found = found;
  }

  /** Creates, reads, changes and deletes the item. `cleanUp` must follow, whatever comes of it. */
  async try(): Promise<void> {
    const id = await this.#create();
    if (id !== undefined && (await this.#readsOnlyIt())) {
      await this.#update(id);
      await this.#delete(id);
    }
  }

  async #create(): Promise<string | undefined> {
    const session = this.#session;
    const call = await session.call('create', undefined, writeItem(this.#template, this.marker));
    if (session.judge(call)) {
      this.#nameByAnswer(call);
    }
    const location = call.answer?.fields.get('location') ?? '';
    const ofLocation = /\/(\d+)\/?$/.exec(location)?.[1];
    if (ofLocation !== undefined) {
      this.#named.add(ofLocation);
    }
    const named = await this.#findOwn(this.#named);
    const listed = named === undefined ? await this.#search() : undefined;
    const id = named ?? (await this.#findOwn(listed ?? []));
    if (call.outcome === 'ok' && listed !== undefined) {
      if (id !== undefined) {
        session.tell(call, 'create-names-another', id);
      } else {
        session.tell(call, 'not-proven', this.marker, JSON.stringify(this.#template.property));
      }
    }
    return id;
  }

  // The first that is proven to be ours.
  async #findOwn(ids: Iterable<string>): Promise<string | undefined> {
    for (const id of ids) {
      this.#session.stopIf();
      const { call, item } = await this.#proof(id);
      if (call.outcome !== 'ok' || item !== undefined) {
        this.#session.judge(call);
      }
      if (item !== undefined) {
        return id;
      }
    }
    return undefined;
  }

  #nameByAnswer(call: Call): void {
    const session = this.#session;
    const item = readJson(call.reply.body);
    const id = isItem(item) ? session.idOf(item) : undefined;
    if (id === undefined) {
      session.tell(call, 'create-without-id');
      return;
    }
    tellOfId(session, call, id);
    if (id.kind === 'unusable') {
      this.#unusableId = id.text;
    } else {
      this.#named.add(id.text);
    }
    if (this.#found.ids.has(id.text)) {
      session.tell(call, 'create-names-another:known', show(id.text));
    }
  }

  // The item, if it is ours: it was not there before, and a read of it shows our marker and no other id.
  async #proof(id: string): Promise<{ readonly call: Call; readonly item: Item | undefined }> {
    const call = await this.#session.look('read', id);
    const item = call.outcome === 'ok' ? readJson(call.reply.body) : undefined;
    const isOwn =
      !this.#found.ids.has(id) && carries(item, this.marker) && this.#session.hasNoOtherId(item, id);
    return { call, item: isOwn ? item : undefined };
  }

  // Ids of items in the list that show the marker and were not there before; undefined where there is no list.
  async #search(): Promise<string[] | undefined> {
    const call = await this.#session.look('list');
    const items = call.outcome === 'ok' ? itemsOf(readJson(call.reply.body)) : undefined;
    return items
      ?.filter((item) => carries(item, this.marker))
      .flatMap((item) => this.#session.idOf(item) ?? [])
      .filter(({ kind, text }) => kind !== 'unusable' && !this.#found.ids.has(text))
      .map(({ text }) => text)
      .slice(0, itemsMax);
  }

  // A backend whose reads ignore the id would show our item under every id: then a marker proves nothing.
  async #readsOnlyIt(): Promise<boolean> {
    this.#session.stopIf();
    const call = await this.#session.look('read', this.#found.missingId);
    this.#isBlind = call.outcome === 'ok' && call.reply.body.includes(this.marker);
    if (this.#isBlind) {
      this.#session.tell(call, 'read-ignores-id');
    }
    return !this.#isBlind;
  }

  async #update(id: string): Promise<void> {
    const session = this.#session;
    const { call: read, item } = await this.#proof(id);
    if (item === undefined) {
      session.judge(read);
      return;
    }
    // As clients do it: the item as it was read, with its text changed.
    const changed = `${this.marker}-2`;
    let call = await session.call('update', id, this.#rewrite(item, changed));
    const { status } = call.answer ?? {};
    if ((status === 400 || status === 422) && (await this.#proof(id)).item !== undefined) {
      const again = await session.call('update', id, writeItem(this.#template, changed));
      if (again.outcome === 'ok') {
        session.tell(call, 'update-of-what-was-read');
        call = again;
      }
    }
    if (!session.judge(call)) {
      return;
    }
    const after = await session.call('read', id);
    if (session.judge(after) && !after.reply.body.includes(changed)) {
      session.tell(call, 'update-not-seen');
    }
  }

  // Written anew, so that no property is in it twice and each reader finds the same id.
  #rewrite(item: Item, changed: string): Buffer {
    const entries = Object.entries(item).map(([name, value]) => [
      name,
      typeof value === 'string' ? value.replaceAll(this.marker, changed) : value,
    ]);
    return Buffer.from(JSON.stringify(Object.fromEntries(entries)));
  }

  async #delete(id: string): Promise<void> {
    const session = this.#session;
    const { call: read, item } = await this.#proof(id);
    if (item === undefined) {
      session.judge(read);
      return;
    }
    this.#stuck.set(id, ownItem);
    const call = await session.call('delete', id);
    if (!session.judge(call)) {
      this.#stuck.set(id, `its delete was answered with ${call.answer?.status ?? 'nothing'}`);
      return;
    }
    const after = await session.call('read', id);
    await this.#settle(id, after);
    if (after.outcome !== 'ok' && after.outcome !== 'not-found') {
      session.tell(after, 'deleted-is-no-404');
    } else if (after.outcome === 'ok' && carries(readJson(after.reply.body), this.marker)) {
      session.tell(call, 'delete-not-seen');
      this.#stuck.set(id, 'its delete was a success, but it is still there');
    }
  }

  /** Takes away what was made, as far as that is safe, and says what is left. */
  async cleanUp(): Promise<void> {
    let listed: string[] | undefined;
    try {
      listed = await this.#search();
      if (!this.#isBlind) {
        for (const id of new Set([...this.#stuck.keys(), ...(listed ?? []), ...this.#named])) {
          await this.#remove(id);
        }
      }
    } catch (error) {
      if (!(error instanceof Stopped)) {
        throw error;
      }
    } finally {
      this.#tellLeft(listed);
    }
  }

  async #remove(id: string): Promise<void> {
    if (this.#removed.has(id)) {
      return;
    }
    const { call, item } = await this.#proof(id);
    if (isGone(call)) {
      (this.#stuck.delete(id) ? this.#removed : this.#absent).add(id);
    } else if (item !== undefined) {
      // Also where its delete has failed before: that may have been for a moment.
      this.#stuck.set(id, this.#stuck.get(id) ?? ownItem);
      const deletion = await this.#session.callAnyway('delete', id);
      if (isStalled(deletion)) {
        throw new Stopped();
      }
      await this.#settle(id, (await this.#proof(id)).call);
    } else if (this.#stuck.has(id)) {
      await this.#settle(id, call);
    }
  }

  // What a read behind the delete says of the item. One without the marker shows somebody else's, which has got the id, or is
  // how this backend answers for what is gone: the list knows. Nobody is told to delete by that id then.
  async #settle(id: string, after: Call): Promise<void> {
    const isAnother = after.outcome === 'ok' && !after.reply.body.includes(this.marker);
    if (isAnother) {
      this.#stuck.set(id, anotherItem);
    }
    if (isGone(after) || (isAnother && (await this.#search())?.length === 0)) {
      this.#stuck.delete(id);
      this.#removed.add(id);
    }
  }

  #tellLeft(listed: readonly string[] | undefined): void {
    const session = this.#session;
    const tell = (id: string | undefined, why: string, remove: string): void => {
      session.leftovers.push({ id: id === undefined ? id : show(id), marker: this.marker, why, remove });
    };
    const list = session.options.settings.backendUrl.origin + this.#found.call.path;
    const look = `look for ${this.marker} in ${list}, and remove the item that has it and no other`;
    for (const [id, why] of this.#stuck) {
      tell(id, why, why === anotherItem ? look : `curl -X DELETE ${list}/${id}`);
    }
    // Once ours is known, what else the create has named is somebody else's.
    const isKnown = this.#stuck.size + this.#removed.size > 0;
    const settled = [this.#stuck, this.#removed, this.#absent, this.#found.ids];
    for (const id of new Set([...(listed ?? []), ...(isKnown ? [] : this.#named)])) {
      if (settled.every((ids) => !ids.has(id))) {
        tell(id, 'no read has proved that it is the one that was made', look);
      }
    }
    const create = session.calls.made.find(({ operation }) => operation.name === 'create');
    const { outcome, answer } = create ?? {};
    // What was refused with a status has made nothing, as far as the list shows it too.
    const wasRefused = listed !== undefined && (outcome === 'rejected' || outcome === 'refused');
    const mayBeMade = !wasRefused && outcome !== 'body-too-large' && outcome !== 'overload';
    if (this.#unusableId !== undefined) {
      tell(this.#unusableId, 'the gateway cannot ask for an item with this id', look);
    } else if (!isKnown && session.leftovers.length === 0 && mayBeMade) {
      tell(
        undefined,
        answer === undefined || outcome === 'timed-out'
          ? 'the create had no whole answer: the item may be there, or come yet'
          : 'the item may be there, but was not found again',
        look,
      );
    }
  }
}

function isGone({ outcome, answer }: Call): boolean {
  return outcome === 'not-found' || answer?.status === 410;
}
