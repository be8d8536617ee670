// What the check finds in a backend beyond calls that fail: for each thing whether it breaks an operation, and what to do about
// it. Why a call fails is packages/backend-probe/failures.ts.

import type { Call } from '../backend-probe/calls.ts';
import { describeCame, describeReply } from '../backend-probe/describe.ts';
import type { explainFailure } from '../backend-probe/failures.ts';
import type { OperationName } from '../core/operations.ts';

export interface Finding {
  /** For programs; stays what it is. */
  readonly code: string;
  /** `breaks`: clients cannot use an operation as the specification has it. A warning fails nothing. */
  readonly severity: 'breaks' | 'warning';
  readonly operations: readonly OperationName[];
  readonly title: string;
  readonly asked: string;
  readonly came: string;
  readonly clients: string;
  readonly advice: string;
}

type FailureWords = ReturnType<typeof explainFailure>;

interface Row {
  readonly severity: Finding['severity'];
  /** In each text, `{0}` stands for the first value that the call site gives. */
  readonly title: string;
  readonly advice: string;
  /** Default: the reply of the call that showed it. */
  readonly clients?: string;
  /** Default: the name of the row. */
  readonly code?: string;
}

const rows = {
  'list-not-array': {
    severity: 'warning',
    title: 'the list is no JSON array',
    advice:
      'The gateway passes on any JSON. Clients that want an array of items must be told, or the backend must answer with one. Errors must not have a status of success.',
  },
  'items-without-id': {
    severity: 'warning',
    title: 'items of the list have no id that could be found',
    advice:
      'Clients read, change and delete an item by its id: each item should have one, as the integer `id`.',
  },
  'id-negative': {
    severity: 'warning',
    title: 'an id is negative: {0}',
    advice: 'It works here; make sure that clients do not take it for "none".',
  },
  'id-long': {
    severity: 'warning',
    title: 'an id is beyond 2^53: {0}',
    advice:
      'The gateway keeps every digit. Clients in JavaScript round it, and then ask for another item: use smaller ids.',
  },
  'id-text': {
    severity: 'warning',
    title: 'ids are texts: {0}',
    advice: 'It works here, as they hold integers. Clients that compare them with numbers must be told.',
  },
  'id-unusable': {
    severity: 'breaks',
    title: 'an id is no integer: {0}',
    clients: '400 {"error":"Invalid ID format"} for every read, update and delete of it',
    advice: 'The gateway takes integers only. The backend needs integer ids.',
  },
  'id-cut': {
    code: 'id-unusable',
    severity: 'breaks',
    title: 'an id is no integer: {0}',
    clients: 'the item {1} instead, for every read, update and delete of it',
    advice:
      'The backend needs integer ids, written without zeros in front. ITEM_ID_PARSING=whole has such ids refused instead of cut.',
  },
  'read-of-another': {
    severity: 'breaks',
    title: 'a read answers with something else than the item of that id',
    advice: 'The backend must answer /api/WorkItem/<id> with the one item of that id, as a JSON object.',
  },
  'missing-is-200': {
    severity: 'warning',
    title: 'a read of an item that does not exist is a success',
    advice:
      'Clients cannot tell that it is not there. The backend should answer 404; an error must not have a status of success.',
  },
  'missing-is-no-404': {
    severity: 'breaks',
    title: 'a read of an item that does not exist is not answered with 404',
    clients: '{0}, which is no "not found", and counts as a failure of the backend',
    advice: 'The backend must answer 404 for an id that no item has.',
  },
  'write-not-safe': {
    severity: 'breaks',
    title: 'nothing was written: what would be made could not be found again',
    clients: 'not known: create, update and delete were not tried',
    advice: '{0}',
  },
  'create-without-id': {
    severity: 'warning',
    title: 'the answer to a create has no id',
    advice:
      'Clients do not learn which item they have made: the backend should answer with the item, its id in it.',
  },
  'create-names-another': {
    severity: 'breaks',
    title: 'a create does not answer with the item that it made',
    advice:
      'It made the item {0}. A client that goes by the answer would read, change or delete another item.',
  },
  'create-names-known': {
    code: 'create-names-another',
    severity: 'breaks',
    title: 'a create answers with an id that was there before: {0}',
    advice:
      'Either a create overwrites, or its answer names another item. It was not touched; look at it. A client that goes by the answer would change or delete it.',
  },
  'not-proven': {
    severity: 'breaks',
    title: 'what was created could not be found again',
    clients:
      'not known: update and delete were not tried, since that could have hit an item of somebody else',
    advice:
      'No read showed the marker {0} in a text of the item, where {1} had it. Does the backend drop or change that field, or show it later? Name with --body an item with a text that it keeps.',
  },
  'read-ignores-id': {
    severity: 'breaks',
    title: 'a read answers with the item that was made last, whatever id is asked for',
    advice:
      'The backend must answer with the item of that id. Update and delete were not tried: they could have hit any item.',
  },
  'update-of-what-was-read': {
    severity: 'warning',
    title: 'an update with the item as it was read is refused',
    advice:
      'One with the fields of the create alone is taken. Either the backend takes what it has answered with, or clients are told what to leave out.',
  },
  'update-not-seen': {
    severity: 'breaks',
    title: 'an update succeeds, but a read behind it shows the item as it was',
    advice: 'Does the backend keep updates, and does it answer reads from a cache or a copy that is behind?',
  },
  'deleted-is-no-404': {
    severity: 'breaks',
    title: 'a read of an item that was deleted is not answered with 404',
    advice: 'The backend must answer 404 for an id that no item has any more.',
  },
  'delete-not-seen': {
    severity: 'breaks',
    title: 'a delete succeeds, but a read behind it still shows the item',
    advice:
      'Does the backend only mark items as deleted, or answer reads from a cache? Clients must see 404.',
  },
  slow: {
    severity: 'warning',
    title: 'the backend is slow',
    clients: 'the right reply, after {0} ms; behind BACKEND_TIMEOUT_MS ({1}) it is a 500',
    advice: 'Look why it takes so long. Under load it takes longer.',
  },
  'near-limit': {
    severity: 'warning',
    title: 'an answer has {0} bytes, of {1} that it may have',
    advice: 'Raise RESPONSE_BYTES_MAX before it grows further: behind that clients get a 500.',
  },
  'byte-order-mark': {
    severity: 'warning',
    title: 'the JSON begins with a byte-order mark',
    advice:
      'The gateway passes it on [D13, D14]. Many parsers of clients fail on it: have the backend leave it out.',
  },
  'content-type': {
    severity: 'warning',
    title: 'the JSON is called {0}',
    advice:
      'The gateway looks at the bytes and tells clients application/json. Others that ask this backend may not: it should say application/json.',
  },
  'connection-closes': {
    severity: 'warning',
    title: '{0}',
    clients: 'the right replies, each later by the time that a new connection takes',
    advice:
      'Turn keep-alive on in the backend, or in the proxy before it, for some seconds at least: every call opens a connection of its own now.',
  },
  'idle-too-long': {
    severity: 'warning',
    title: 'the backend closes an idle connection after {0} ms',
    clients: 'now and then a 500 for a write that met a connection as it was closed',
    advice: "Set BACKEND_IDLE_TIMEOUT_MS to at most {1} (it is {2}), or raise the backend's idle time.",
  },
} as const satisfies Readonly<Record<string, Row>>;

export type FindingName = keyof typeof rows;

/** The finding of that row, as `call` showed it; `values` stand in its texts. */
export function findingOf(call: Call, name: FindingName, values: readonly (string | number)[]): Finding {
  const row: Row = rows[name];
  const fill = (text: string): string =>
    text.replace(/\{(\d)\}/g, (_, index: string) => String(values[Number(index)]));
  const { code = name, severity, title, advice, clients } = row;
  const words = { code, title: fill(title), advice: fill(advice) };
  return describeFinding(call, severity, words, clients === undefined ? describeReply(call) : fill(clients));
}

/** The finding that `call` failed, for the reason that `words` give. */
export function failureOf(call: Call, words: FailureWords): Finding {
  return describeFinding(call, 'breaks', words, describeReply(call));
}

function describeFinding(
  call: Call,
  severity: Finding['severity'],
  { code, title, advice }: FailureWords,
  clients: string,
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
