// What the check finds in a backend beyond calls that fail: for each thing whether it breaks an operation, and what to do about
// it. Why a call fails is packages/backend-probe/failures.ts.

import type { Call } from '../backend-probe/calls.ts';
import { describeCame, describeReply } from '../backend-probe/describe.ts';
import type { FailureWords } from '../backend-probe/failures.ts';
import type { OperationName } from '../core/operations.ts';

export interface Finding extends FailureWords {
  /** `breaks`: clients cannot use an operation as the specification has it. A warning fails nothing. */
  readonly severity: 'breaks' | 'warning';
  readonly operations: readonly OperationName[];
  readonly asked: string;
  readonly came: string;
  readonly clients: string;
}

/**
 * Of a table by code; what follows a colon tells rows of one code apart. In each text `{0}` stands for the first value that the call site
 * gives. `clients` is by default the reply of the call that showed it.
 */
type Row = readonly [title: string, advice: string, clients?: string];

const breaking = {
  'id-unusable': [
    'an id is no integer: {0}',
    'The gateway takes integers only. The backend needs integer ids.',
    '400 {"error":"Invalid ID format"} for every read, update and delete of it',
  ],
  'id-unusable:cut': [
    'an id is no integer: {0}',
    'The backend needs integer ids, written without zeros in front. ITEM_ID_PARSING=whole has such ids refused instead of cut.',
    'the item {1} instead, for every read, update and delete of it',
  ],
  'read-of-another': [
    'a read answers with something else than the item of that id',
    'The backend must answer /api/WorkItem/<id> with the one item of that id, as a JSON object.',
  ],
  'missing-is-no-404': [
    'a read of an item that does not exist is not answered with 404',
    'The backend must answer 404 for an id that no item has.',
    '{0}, which is no "not found", and counts as a failure of the backend',
  ],
  'write-not-safe': [
    'nothing was written: what would be made could not be found again',
    '{0}',
    'not known: create, update and delete were not tried',
  ],
  'create-names-another': [
    'a create does not answer with the item that it made',
    'It made the item {0}. A client that goes by the answer would read, change or delete another item.',
  ],
  'create-names-another:known': [
    'a create answers with an id that was there before: {0}',
    'Either a create overwrites, or its answer names another item. It was not touched; look at it. A client that goes by the answer would change or delete it.',
  ],
  'not-proven': [
    'what was created could not be found again',
    'No read showed the marker {0} in a text of the item, where {1} had it. Does the backend drop or change that field, or show it later? Name with --body an item with a text that it keeps.',
    'not known: update and delete were not tried, since that could have hit an item of somebody else',
  ],
  'read-ignores-id': [
    'a read answers with the item that was made last, whatever id is asked for',
    'The backend must answer with the item of that id. Update and delete were not tried: they could have hit any item.',
  ],
  'update-not-seen': [
    'an update succeeds, but a read behind it shows the item as it was',
    'Does the backend keep updates, and does it answer reads from a cache or a copy that is behind?',
  ],
  'deleted-is-no-404': [
    'a read of an item that was deleted is not answered with 404',
    'The backend must answer 404 for an id that no item has any more.',
  ],
  'delete-not-seen': [
    'a delete succeeds, but a read behind it still shows the item',
    'Does the backend only mark items as deleted, or answer reads from a cache? Clients must see 404.',
  ],
} satisfies Readonly<Record<string, Row>>;

const warnings = {
  'list-not-array': [
    'the list is no JSON array',
    'The gateway passes on any JSON. Clients that want an array of items must be told, or the backend must answer with one. Errors must not have a status of success.',
  ],
  'items-without-id': [
    'items of the list have no id that could be found',
    'Clients read, change and delete an item by its id: each item should have one, as the integer `id`.',
  ],
  'id-negative': [
    'an id is negative: {0}',
    'It works here; make sure that clients do not take it for "none".',
  ],
  'id-long': [
    'an id is beyond 2^53: {0}',
    'The gateway keeps every digit. Clients in JavaScript round it, and then ask for another item: use smaller ids.',
  ],
  'id-text': [
    'ids are texts: {0}',
    'It works here, as they hold integers. Clients that compare them with numbers must be told.',
  ],
  'missing-is-200': [
    'a read of an item that does not exist is a success',
    'Clients cannot tell that it is not there. The backend should answer 404; an error must not have a status of success.',
  ],
  'create-without-id': [
    'the answer to a create has no id',
    'Clients do not learn which item they have made: the backend should answer with the item, its id in it.',
  ],
  'update-of-what-was-read': [
    'an update with the item as it was read is refused',
    'One with the fields of the create alone is taken. Either the backend takes what it has answered with, or clients are told what to leave out.',
  ],
  slow: [
    'the backend is slow',
    'Look why it takes so long. Under load it takes longer.',
    'the right reply, after {0} ms; behind BACKEND_TIMEOUT_MS ({1}) it is a 500',
  ],
  'near-limit': [
    'an answer has {0} bytes, of {1} that it may have',
    'Raise RESPONSE_BYTES_MAX before it grows further: behind that clients get a 500.',
  ],
  'byte-order-mark': [
    'the JSON begins with a byte-order mark',
    'The gateway passes it on [D13, D14]. Many parsers of clients fail on it: have the backend leave it out.',
  ],
  'content-type': [
    'the JSON is called {0}',
    'The gateway looks at the bytes and tells clients application/json. Others that ask this backend may not: it should say application/json.',
  ],
  'connection-closes': [
    '{0}',
    'Turn keep-alive on in the backend, or in the proxy before it, for some seconds at least: every call opens a connection of its own now.',
    'the right replies, each later by the time that a new connection takes',
  ],
  'idle-too-long': [
    'the backend closes an idle connection after {0} ms',
    "Set BACKEND_IDLE_TIMEOUT_MS to at most {1} (it is {2}), or raise the backend's idle time.",
    'now and then a 500 for a write that met a connection as it was closed',
  ],
} satisfies Readonly<Record<string, Row>>;

export type FindingName = keyof typeof breaking | keyof typeof warnings;

/** The finding of that row, as `call` showed it; `values` stand in its texts. */
export function findingOf(call: Call, name: FindingName, values: readonly (string | number)[]): Finding {
  const [title, advice, clients]: Row = { ...breaking, ...warnings }[name];
  const [code = name] = name.split(':');
  const fill = (text: string): string =>
    text.replace(/\{(\d)\}/g, (_, index: string) => String(values[Number(index)]));
  return createFinding(
    call,
    { code, title: fill(title), advice: fill(advice) },
    name in breaking ? 'breaks' : 'warning',
    clients === undefined ? clients : fill(clients),
  );
}

/** What `call` showed. By default it failed, for the reason that the words give. */
export function createFinding(
  call: Call,
  { code, title, advice }: FailureWords,
  severity: Finding['severity'] = 'breaks',
  clients = describeReply(call),
): Finding {
  const { operation, path } = call;
  return {
    code,
    severity,
    operations: [operation.name],
    title,
    asked: `${operation.method} ${path}`,
    came: describeCame(call),
    clients,
    advice,
  };
}
