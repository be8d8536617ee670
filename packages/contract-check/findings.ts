// The findings of the check, except failed calls. packages/backend-probe/failures.ts explains failed calls.

import type { Call } from '../backend-probe/calls.ts';
import { createFinding, type Finding } from '../backend-probe/failures.ts';

/**
 * The texts of a finding. A row is named by its code; a suffix after a colon distinguishes rows with the same code.
 * `{0}`, `{1}` and `{2}` stand for the caller's values. `clients` describes the reply that clients get. By default this
 * is the reply of the call that showed the finding.
 */
type Row = readonly [title: string, advice: string, clients?: string];

// prettier-ignore
const breaking = {
  'id-unusable': ['an id is not an integer: {0}',
    'The gateway accepts integers only. The backend needs integer ids.',
    '400 {"error":"Invalid ID format"} for every read, update and delete of this item'],
  'id-unusable:cut': ['an id is not an integer: {0}',
    'The backend needs integer ids without leading zeros. With ITEM_ID_PARSING=whole the gateway refuses such ids instead of cutting them.',
    'item {1} instead of this item, for every read, update and delete'],
  'read-of-another': ['a read answers with another item, or with something that is not an item',
    'The backend must answer /api/WorkItem/<id> with the item of that id, as a JSON object.'],
  'missing-is-no-404': ['a read of an item that does not exist is not answered with 404',
    'The backend must answer 404 for an id that no item has.',
    '{0} instead of "not found", counted as a failure of the backend'],
  'write-not-safe': ['nothing was written, because the list does not suffice to find a created item',
    '{0}',
    'unknown: create, update and delete were not tried'],
  'create-without-id': ['the answer to a create has no id',
    'Clients do not learn which item they created. The backend must answer with the item, including its id.'],
  'create-without-id:alone': ['a create answers with the id alone, not with the item: {0}',
    'Clients expect the created item. The backend must answer with the item, as JSON, including its id.'],
  'created-anyway': ['the item was created, although its create failed',
    'Clients see a failure and may create the item twice. The backend must answer a create with the new item as JSON, or create nothing. In ASP.NET Core, CreatedAtAction fails after the work is done if no route matches its action name, which must not end in Async.'],
  'create-names-another': ['a create does not answer with the item that it created',
    'The created item is {0}. A client that trusts the answer would read, change or delete another item.'],
  'create-names-another:known': ['a create answers with the id of an existing item: {0}',
    'Either the create overwrote that item, or its answer names the wrong item. Inspect the existing item; the check did nothing further with it. A client that trusts the answer would change or delete the existing item.'],
  'not-proven': ['the created item could not be found again',
    'No read showed the marker {0}, which the create sent in {1}. Does the backend drop or change that field, or show it only later? Use --body to give an item with a text that the backend keeps.',
    'unknown: update and delete were not tried, because they could have changed another item'],
  'read-ignores-id': ['a read answers with the last created item, whatever the id',
    'The backend must answer with the item of that id. Update and delete were not tried, because they could have changed any item.'],
  'update-not-seen': ['an update succeeds, but a read after it shows the old item',
    'Does the backend store updates? Does it answer reads from a cache or a lagging replica?'],
  'deleted-is-no-404': ['a read of a deleted item is not answered with 404',
    'The backend must answer 404 for the id of a deleted item.'],
  'delete-not-seen': ['a delete succeeds, but a read after it still shows the item',
    'Does the backend only mark items as deleted, or answer reads from a cache? Clients must get 404.'],
} satisfies Readonly<Record<string, Row>>;

// prettier-ignore
const warnings = {
  'list-not-array': ['the list is not a JSON array',
    'The gateway passes on any JSON. Either clients must expect this form, or the backend must answer with an array of items. If the answer is an error, it must not have a success status.'],
  'items-without-id': ['items of the list have no recognizable id',
    'Clients read, change and delete an item by its id. Each item should have an integer property `id`.'],
  'id-negative': ['an id is negative: {0}',
    'Negative ids work here. Make sure that clients do not take a negative id for "no id".'],
  'id-long': ['an id is beyond 2^53: {0}',
    'The gateway keeps every digit. Clients in JavaScript round the id and then request another item. Use smaller ids.'],
  'id-text': ['ids are strings: {0}',
    'These ids work here, because the strings hold integers. Clients must not compare them with numbers.'],
  'missing-is-200': ['a read of an item that does not exist is a success',
    'Clients cannot tell that the item does not exist. The backend should answer 404; an error must not have a success status.'],
  'update-of-what-was-read': ['the backend refuses an update with the item exactly as it was read',
    'An update with only the fields of the create is accepted. Either the backend must accept its own answers, or clients must know which fields to leave out.'],
  slow: ['the backend is slow',
    'Find out why the backend takes this long. Under load, it takes longer.',
    'the right reply, but only after {0} ms; a 500 if the backend takes longer than BACKEND_TIMEOUT_MS ({1})'],
  'near-limit': ['an answer has {0} bytes, more than half of the limit of {1}',
    'Raise RESPONSE_BYTES_MAX before the answer grows. Above the limit clients get a 500.'],
  'byte-order-mark': ['the JSON begins with a byte-order mark',
    'The gateway passes the mark on [D13, D14]. Many JSON parsers of clients fail on it. Make the backend leave it out.'],
  'content-type': ['the content type of the JSON is {0}',
    'The gateway ignores it and sends application/json to clients. Other callers of the backend may use it, so the backend should send application/json.'],
  'connection-closes': ['{0}',
    'Every call now opens its own connection. Turn on keep-alive, for some seconds at least, in the backend or in the proxy in front of it.',
    'the right replies, each delayed by the time for a new connection'],
  'closes-silently': ['the backend closes the connection after each answer without `connection: close`',
    'Let the backend keep idle connections open longer than BACKEND_IDLE_TIMEOUT_MS (now {0}), or answer with `connection: close`. A shorter BACKEND_IDLE_TIMEOUT_MS does not help.',
    'a 500 for each write on a used connection, unless the gateway opens a new connection for it'],
  'idle-too-long': ['the backend closes an idle connection after {0} ms',
    "Set BACKEND_IDLE_TIMEOUT_MS to at most {1} (now {2}), or raise the backend's idle timeout.",
    'occasionally a 500 for a write sent just as the backend closes the connection'],
} satisfies Readonly<Record<string, Row>>;

export type FindingName = keyof typeof breaking | keyof typeof warnings;

/** Makes the finding `name` that `call` showed, with `values` in its texts. */
export function findingOf(call: Call, name: FindingName, values: readonly (string | number)[]): Finding {
  const row: Row = { ...breaking, ...warnings }[name];
  const fill = (text: string): string => text.replace(/\{(\d)\}/g, (_, index: string) => String(values[Number(index)]));
  const [title, advice, clients] = row;
  const severity = name in breaking ? 'breaks' : 'warning';
  return createFinding(call, name.replace(/:.*/, ''), fill(title), fill(advice), severity, clients && fill(clients));
}
