// Routes a request to an operation and its path at the backend, or to a fixed reply [D1 to D6, D8, D9].

import { absoluteForm } from '../http1/grammar.ts';
import { parseItemId, type ItemIdParsing } from './item-id.ts';
import { backendPath, operations, type Operation } from '../operations.ts';
import type { CallOutcome } from '../outcomes.ts';
import { replies, type FixedReply, type Pages } from '../replies.ts';

export type Route =
  | { readonly operation: Operation; readonly backendPath: string; readonly refusal?: undefined }
  | {
      /** Undefined if the request matches no operation. */
      readonly operation: Operation | undefined;
      readonly refusal: FixedReply;
      readonly outcome: CallOutcome;
    };

export interface RouteOptions {
  /** The prefix under which the gateway is mounted, followed by `/api/work-items`. */
  readonly collectionPath: string;
  readonly itemIdParsing: ItemIdParsing;
  /** Pages served on other paths; undefined if there are none. */
  readonly pages: Pages | undefined;
}

/** Routes a request with this `method` and `target`. The path is checked first, then the method, then the id. */
export function route(method: string, target: string, options: RouteOptions): Route {
  const { collectionPath, itemIdParsing, pages } = options;
  if (method === 'CONNECT') {
    // CONNECT requests a tunnel, which the gateway does not offer [D27].
    return refuse(replies.connectNotAllowed, 'no-operation');
  }
  const path = pathOf(target);
  const table = operationsAt(path, collectionPath);
  if (table === undefined) {
    const reply = pages?.replyTo(path, method) ?? replies.notFound;
    return refuse(reply, reply.status < 400 ? 'ok' : 'no-operation');
  }
  const operation = table.byMethod.get(method);
  if (operation === undefined) {
    return method === 'OPTIONS' ? refuse(table.options, 'ok') : refuse(table.methodNotAllowed, 'no-operation');
  }
  if (table === collectionOperations) return { operation, backendPath };
  const id = parseItemId(path.slice(collectionPath.length + 1), itemIdParsing);
  return id === undefined
    ? { operation, refusal: replies.invalidId, outcome: 'invalid-id' }
    : { operation, backendPath: `${backendPath}/${id}` };
}

function refuse(refusal: FixedReply, outcome: CallOutcome): Route {
  return { operation: undefined, refusal, outcome };
}

const slash = 0x2f;

/** Returns a target's path, without the query [D8] and without the scheme and authority of absolute-form [D27]. */
function pathOf(target: string): string {
  let path = target;
  if (path.charCodeAt(0) !== slash) path = path.replace(absoluteForm, '');
  const query = path.indexOf('?');
  return query === -1 ? path : path.slice(0, query);
}

interface OperationsOfPath {
  readonly byMethod: ReadonlyMap<string, Operation>;
  readonly options: FixedReply;
  readonly methodNotAllowed: FixedReply;
}

const { collectionOptions, collectionMethodNotAllowed, itemOptions, itemMethodNotAllowed } = replies;
const collectionOperations = operationsOn('collection', collectionOptions, collectionMethodNotAllowed);
const itemOperations = operationsOn('item', itemOptions, itemMethodNotAllowed);

function operationsOn(path: Operation['on'], options: FixedReply, methodNotAllowed: FixedReply): OperationsOfPath {
  const byMethod = new Map<string, Operation>();
  for (const operation of operations.filter((each) => each.on === path)) {
    byMethod.set(operation.method, operation);
    if (operation.method === 'GET') {
      // HEAD is handled like GET; the transport leaves the body out [D7].
      byMethod.set('HEAD', operation);
    }
  }
  return { byMethod, options, methodNotAllowed };
}

// Returns the operations of a path; undefined if the path is unknown [D4, D5].
function operationsAt(path: string, collection: string): OperationsOfPath | undefined {
  if (path === collection) return collectionOperations;
  const isItem =
    path.startsWith(collection) &&
    path.charCodeAt(collection.length) === slash &&
    !path.includes('/', collection.length + 1);
  return isItem ? itemOperations : undefined;
}
