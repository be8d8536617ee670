// The five operations [spec 4 and 7]. Every difference between them is a column of this table.

export type OperationName = 'list' | 'create' | 'read' | 'update' | 'delete';
type OperationMethod = 'GET' | 'POST' | 'PUT' | 'DELETE';

export interface Operation {
  readonly name: OperationName;
  /** Method of the client's request and of the request to the backend [spec 4]. */
  readonly method: OperationMethod;
  /** The path: the collection (`/api/work-items`) or one item (`/api/work-items/{id}`). */
  readonly on: 'collection' | 'item';
  /** True: the request's body must be JSON and is forwarded [spec 4, rule 6]. False: a body is dropped [D11]. */
  readonly takesBody: boolean;
  /** True: the backend's JSON is the reply [spec 4, rules 3, 5]. False: the reply is `{"success":true}` [rule 4]. */
  readonly passesAnswer: boolean;
  readonly successStatus: 200 | 201;
  /** Message of the 404 reply; undefined if a backend's 404 is treated like every other failure [spec 7, rule 1]. */
  readonly notFoundMessage: string | undefined;
  /** Message of the 500 reply to every other failure [spec 7]. */
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

/** True for list and read. Repeating them does no harm at the backend [D20, D21]. */
export function isRead(operation: Operation): boolean {
  return operation.method === 'GET';
}
