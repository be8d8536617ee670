// Creates the gateway's OpenAPI 3.1 document. Operations, statuses and messages come from the tables of packages/core/; this
// file adds their meaning for clients. documented-replies.ts describes error replies, headers.ts describes headers.

import { parseRate } from '../../options/rate.ts';
import { collectionPath, isRead, operations, type Operation, type OperationName } from '../../operations.ts';
import { rejectedStatuses } from '../../outcomes.ts';
import { replies, type FixedReply } from '../../replies.ts';
import { version } from '../../version.ts';
import { count, hasTokens, refTo, seconds, type JsonObject, type Limits } from './document.ts';
import {
  errorsOf,
  methodsReplies,
  outsideReplies,
  scopeOf,
  sharedReplies,
  type DocumentedReply,
} from './documented-replies.ts';
import { describeHeaders, describeParameters, listHeaders } from './headers.ts';

/** Returns the document as indented JSON. */
export function createOpenApiText(limits: Limits): string {
  return `${JSON.stringify(createOpenApi(limits), null, 2)}\n`;
}

const itemsTag = 'Work items';
const methodsTag = 'Methods';
const bearerScheme = 'bearer';

export function createOpenApi(limits: Limits): JsonObject {
  return {
    openapi: '3.1.1',
    info: {
      title: 'Work Item Gateway',
      version,
      summary: 'Create, read, list, update and delete work items.',
      description: describeGateway(limits),
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/', description: 'The gateway that serves this document.' }],
    security: hasTokens(limits) ? [{ [bearerScheme]: [] }] : [],
    tags: [
      { name: itemsTag, description: 'The five operations. Each makes one call to the backend.' },
      { name: methodsTag, description: 'The methods that a path supports. The backend is not called.' },
    ],
    paths: {
      [collectionPath]: createPath('collection', limits),
      [`${collectionPath}/{id}`]: createPath('item', limits),
    },
    components: createComponents(limits),
  };
}

const pathTexts = {
  collection: { operationId: 'getCollectionMethods', what: 'the collection', ids: '' },
  item: { operationId: 'getItemMethods', what: 'an item', ids: ' The id may be anything: it is not checked.' },
};

const sampleItem = { id: 1, title: 'Sign-in fails for names with an apostrophe', type: 'Bug', state: 'Active' };
const sampleRequest: JsonObject = { title: 'My first work item', state: 'New' };
const sampleSuccess = parseBody(replies.success);

const texts = {
  list: {
    summary: 'List work items',
    description: 'Returns the whole list: there is no paging, filtering or sorting.',
    success: "The backend's JSON, byte for byte.",
    // Generators make a class, not a list, of a named schema without a type.
    schema: undefined,
    sample: [sampleItem, { id: 2, title: 'Export the list as CSV', type: 'Feature', state: 'New' }],
  },
  create: {
    summary: 'Create a work item',
    description: 'The body is forwarded byte for byte.',
    success: "Created. The backend's JSON for the new work item, byte for byte.",
    schema: 'WorkItem',
    sample: { id: 4, ...sampleRequest },
  },
  read: {
    summary: 'Read a work item',
    description: 'The only operation that distinguishes an unknown work item (404) from other failures.',
    success: "The backend's JSON for the work item, byte for byte.",
    schema: 'WorkItem',
    sample: sampleItem,
  },
  update: {
    summary: 'Update a work item',
    description: 'The body is forwarded byte for byte. An unknown id is a 500, not a 404.',
    success: "Updated. The backend's own body is dropped.",
    schema: 'Success',
    sample: sampleSuccess,
  },
  delete: {
    summary: 'Delete a work item',
    description: 'An unknown id is a 500, not a 404.',
    success: "Deleted. The backend's own body is dropped.",
    schema: 'Success',
    sample: sampleSuccess,
  },
} satisfies Record<OperationName, object>;

function parseBody(reply: FixedReply): JsonObject {
  return JSON.parse(reply.body.toString()) as JsonObject;
}

function createPath(on: Operation['on'], limits: Limits): JsonObject {
  const { operationId, what, ids } = pathTexts[on];
  const asksFirst = ' Browsers send this request (a CORS preflight) before a page of another origin makes a call.';
  const here = operations.filter((operation) => operation.on === on);
  return {
    ...Object.fromEntries(here.map((each) => [each.method.toLowerCase(), createOperation(each, limits)])),
    options: {
      operationId,
      tags: [methodsTag],
      summary: `List the methods of ${what}`,
      description: `The methods are in \`Allow\`.${ids}${limits.corsOrigins.length > 0 ? asksFirst : ''}`,
      security: hasTokens(limits) ? [] : undefined,
      parameters: parametersOf(on, false),
      // The rate limit does not count OPTIONS requests, so these replies have no rate-limit headers.
      responses: createResponses(methodsReplies(on, limits), { ...limits, rateLimit: '' }),
    },
  };
}

// Each operation lists its parameters, because some tools do not resolve references in the parameters of a path.
function parametersOf(on: Operation['on'], isWrite: boolean): JsonObject[] {
  const conditions = ['IfMatch', 'IfNoneMatch', 'IfUnmodifiedSince', 'IdempotencyKey'];
  const names = ['RequestId', 'TraceParent', 'TraceState', ...(isWrite ? conditions : [])];
  return (on === 'item' ? ['Id', ...names] : names).map((name) => refTo('parameters', name));
}

function createOperation(operation: Operation, limits: Limits): JsonObject {
  const { name, method, on, takesBody, successStatus } = operation;
  const { summary, description, success, schema, sample } = texts[name];
  const scope = scopeOf(name, limits);
  return {
    operationId: name === 'list' ? 'listWorkItems' : `${name}WorkItem`,
    tags: [itemsTag],
    summary,
    description: `${description}${method === 'GET' ? ' `HEAD` gets the same reply without the body.' : ''}`,
    security: scope === undefined ? undefined : [{ [bearerScheme]: [scope] }],
    parameters: parametersOf(on, !isRead(operation)),
    requestBody: takesBody ? refTo('requestBodies', 'WorkItem') : undefined,
    responses: {
      [successStatus]: {
        description: success,
        headers: listHeaders(replies.success, limits),
        content: {
          'application/json': {
            schema: schema === undefined ? {} : refTo('schemas', schema),
            examples: { [name]: { summary, value: sample } },
          },
        },
      },
      ...createResponses(errorsOf(operation, limits), limits),
    },
  };
}

/** The names of the responses that all operations share, by status. */
export const sharedNames: ReadonlyMap<number, string> = new Map([
  [408, 'RequestTimeout'],
  [417, 'ExpectationFailed'],
  [431, 'HeadersTooLarge'],
  [503, 'ServiceUnavailable'],
]);

/** Creates one response per status, with an example for each message that has the status. */
function createResponses(documented: readonly DocumentedReply[], limits: Limits): JsonObject {
  const byStatus = Map.groupBy(documented, ([{ status }]) => status);
  return Object.fromEntries(
    [...byStatus].map(([status, group]) => {
      const shared = sharedNames.get(status);
      return [status, shared === undefined ? createResponse(group, limits) : refTo('responses', shared)];
    }),
  );
}

function createSharedResponses(limits: Limits): JsonObject {
  const byName = Map.groupBy(sharedReplies(limits), ([{ status }]) => sharedNames.get(status));
  return Object.fromEntries([...byName].map(([name = '', group]) => [name, createResponse(group, limits)]));
}

function createResponse(group: readonly DocumentedReply[], limits: Limits): JsonObject {
  const [[reply]] = group as [DocumentedReply];
  const headers = group.flatMap(([each]) => each.headers);
  const examples = group.map(([each]) => {
    const message = messageOf(each);
    return [nameOf(message), { summary: message, value: { error: message } }] as const;
  });
  const content = { schema: refTo('schemas', 'Error'), examples: Object.fromEntries(examples) };
  return {
    description: group.map(([, when]) => when).join(' Or: '),
    headers: listHeaders({ ...reply, headers }, limits),
    content: reply.body.length > 0 ? { 'application/json': content } : undefined,
  };
}

/** The error message of a reply; empty if the reply has no body. */
function messageOf(reply: FixedReply): string {
  return reply.body.length > 0 ? (parseBody(reply) as { error: string }).error : '';
}

/** Converts a message to a name: `Invalid ID format` to `invalidIdFormat`. */
function nameOf(message: string): string {
  return message.toLowerCase().replace(/[^a-z]+([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function createComponents(limits: Limits): JsonObject {
  return {
    schemas: {
      WorkItem: {
        title: 'Work item',
        description:
          'Any JSON value: the backend decides which fields a work item has. The bytes are passed through unchanged.',
        examples: [sampleItem],
      },
      Success: {
        type: 'object',
        title: 'Success',
        required: ['success'],
        properties: { success: { type: 'boolean', const: true, description: 'Always `true`.' } },
        additionalProperties: false,
        examples: [sampleSuccess],
      },
      Error: {
        type: 'object',
        title: 'Error',
        required: ['error'],
        properties: { error: { type: 'string', description: 'A short message for people.' } },
        additionalProperties: false,
        examples: [parseBody(replies.invalidId)],
      },
    },
    securitySchemes: hasTokens(limits)
      ? {
          [bearerScheme]: {
            type: 'http',
            scheme: 'bearer',
            bearerFormat: 'JWT',
            description: `A token issued by ${limits.authIssuer}.`,
          },
        }
      : undefined,
    responses: createSharedResponses(limits),
    requestBodies: {
      WorkItem: {
        description: `One JSON text in UTF-8, of at most ${count(limits.requestBytesMax)} bytes. \`Content-Type\` is ignored.`,
        required: true,
        content: { 'application/json': { schema: refTo('schemas', 'WorkItem'), example: sampleRequest } },
      },
    },
    parameters: describeParameters(limits),
    headers: describeHeaders(limits),
  };
}

function describeGateway(limits: Limits): string {
  return `A gateway in front of a work-item backend. It passes JSON through byte for byte, stores nothing, and turns every failure into a fixed error.

## Errors

Every error is \`{"error":"…"}\` with one of the messages listed here, and never contains text from the backend. The reason is in the gateway's log: search for the reply's \`x-request-id\`.

A 500 can be caused by the request itself: its body is not JSON, or a healthy backend rejected it (with ${rejectedStatuses.join(', ')}, for instance because the item does not exist). Sending the same request again fails again. Every other 500 is the fault of the backend or the gateway.

## Limits

| What | Limit |
| --- | --- |
| Request body | ${count(limits.requestBytesMax)} bytes, then 413 |
| Request head | ${count(limits.requestHeadBytesMax)} bytes, then 431 |
| Calls in flight | ${count(limits.inFlightMax)}, then 503 |
${describeRate(limits)}| Time to send a request | ${seconds(limits.requestTimeoutMs)} (its head: ${seconds(limits.requestHeadersTimeoutMs)}), then 408 |
| Time for the backend | ${seconds(limits.backendTimeoutMs)}, then 500 |

## Outside the operations

${describeReplies(outsideReplies)}

## Every operation

${describeReplies(sharedReplies(limits))}
`;
}

function describeReplies(documented: readonly DocumentedReply[]): string {
  const rows = documented.map(([reply, when]) => `| ${reply.status} | ${messageOf(reply)} | ${when} |`);
  return ['| Status | Message | When |', '| --- | --- | --- |', ...rows].join('\n');
}

function describeRate({ rateLimit }: Limits): string {
  const rate = parseRate(rateLimit);
  return rate ? `| Requests per client | ${count(rate.limit)} in ${seconds(rate.windowMs)}, then 429 |\n` : '';
}
