// The five operations: sections 4 and 7 of the specification as one table. Every difference between two
// operations is a column here; the code that walks a request through has none. Imports nothing.

export type OperationName = 'list' | 'create' | 'read' | 'update' | 'delete';
type OperationMethod = 'GET' | 'POST' | 'PUT' | 'DELETE';

export interface Operation {
  readonly name: OperationName;
  /** The method, towards the client and towards the backend alike [spec 4]. */
  readonly method: OperationMethod;
  /** Whether the path names the collection (`/api/work-items`) or one item (`/api/work-items/{id}`). */
  readonly on: 'collection' | 'item';
  /** The request body must be JSON and is forwarded [spec 4, rule 6]; otherwise a body is dropped [D11]. */
  readonly takesBody: boolean;
  /** The backend's answer must be JSON and is the reply [spec 4, rules 3 and 5]; otherwise `{"success":true}` [rule 4]. */
  readonly passesAnswer: boolean;
  /** The reply's status when all went well [spec 4]. */
  readonly successStatus: 200 | 201;
  /** The message of the 404 that a backend's 404 becomes; where there is none it is a failure [spec 7, rule 1]. */
  readonly notFoundMessage: string | undefined;
  /** The message of the 500 that every other failure becomes [spec 7]. */
  readonly failureMessage: string;
}

export const collectionPath = '/api/work-items';
export const backendPath = '/api/WorkItem';

// prettier-ignore
export const operations: readonly Operation[] = [
  { name: 'list',   method: 'GET',    on: 'collection', takesBody: false, passesAnswer: true,  successStatus: 200, notFoundMessage: undefined,             failureMessage: 'Failed to fetch work items' },
  { name: 'create', method: 'POST',   on: 'collection', takesBody: true,  passesAnswer: true,  successStatus: 201, notFoundMessage: undefined,             failureMessage: 'Failed to create work item' },
  { name: 'read',   method: 'GET',    on: 'item',       takesBody: false, passesAnswer: true,  successStatus: 200, notFoundMessage: 'Work item not found', failureMessage: 'Failed to fetch work item' },
  { name: 'update', method: 'PUT',    on: 'item',       takesBody: true,  passesAnswer: false, successStatus: 200, notFoundMessage: undefined,             failureMessage: 'Failed to update work item' },
  { name: 'delete', method: 'DELETE', on: 'item',       takesBody: false, passesAnswer: false, successStatus: 200, notFoundMessage: undefined,             failureMessage: 'Failed to delete work item' },
];

/** True for the operations that the backend may be asked again without harm: the reads [D20, D21]. */
export function isRead(operation: Operation): boolean {
  return operation.method === 'GET';
}
