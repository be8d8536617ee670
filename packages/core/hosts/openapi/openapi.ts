// The OpenAPI 3.1 document of the gateway. Operations, statuses and messages come from the tables of packages/core/; what is
// written here is only what they mean to a client. When a client gets which reply is in documented-replies.ts, and what
// headers mean is in headers.ts.

import { parseRate } from '../../guards/options/rate.ts';
import { collectionPath, operations, type Operation, type OperationName } from '../../operations.ts';
import { rejectedStatuses } from '../../outcomes.ts';
import { replies, type FixedReply } from '../../replies.ts';
import { version } from '../../version.ts';
import { createCors } from '../options/cors-options.ts';
import { count, hasTokens, refTo, seconds, type Json, type JsonObject, type Limits } from './document.ts';
import {
  errorsOf,
  methodsReplies,
  outsideReplies,
  scopeOf,
  sharedReplies,
  type Documented,
} from './documented-replies.ts';
import { describeHeaders, describeParameters } from './headers.ts';

/** The document as it is served and printed. */
export function createOpenApiText(limits: Limits): string {
  return `${JSON.stringify(createOpenApi(limits), null, 2)}\n`;
}

const itemsTag = 'Work items';
const methodsTag = 'Methods';
const bearerScheme = 'bearer';

/** The document. */
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
      { name: methodsTag, description: 'What can be asked of a path. The backend is not called.' },
    ],
    paths: {
      [collectionPath]: createPath('collection', limits),
      [`${collectionPath}/{id}`]: createPath('item', limits),
    },
    components: createComponents(limits),
  };
}

/** What the two paths are for: the texts about them that no table has. */
const pathTexts = {
  collection: { operationId: 'getCollectionMethods', what: 'the collection', ids: '' },
  item: {
    operationId: 'getItemMethods',
    what: 'an item',
    ids: ' Any id will do: it is not looked at.',
  },
};

const sampleItem: JsonObject = {
  id: 1,
  title: 'Sign-in fails for names with an apostrophe',
  type: 'Bug',
  state: 'Active',
};
const sampleRequest: JsonObject = { title: 'My first work item', state: 'New' };
const sampleList: Json = [
  sampleItem,
  { id: 2, title: 'Export the list as CSV', type: 'Feature', state: 'New' },
];
const sampleSuccess = parseBody(replies.success);

/** What the backend may answer to the operations whose answer is passed on. */
const samples: Readonly<Partial<Record<OperationName, Json>>> = {
  list: sampleList,
  create: { id: 4, ...sampleRequest },
  read: sampleItem,
};

/** What an operation is for: the one text about it that no table has. */
const texts: Record<OperationName, { summary: string; description: string; success: string }> = {
  list: {
    summary: 'List work items',
    description: 'All that the backend returns: there is no paging, filtering or sorting.',
    success: "The backend's JSON, byte for byte.",
  },
  create: {
    summary: 'Create a work item',
    description: 'The body is forwarded as it is, byte for byte.',
    success: "Created. The backend's JSON for the new work item, byte for byte.",
  },
  read: {
    summary: 'Read a work item',
    description: 'The only operation that tells an unknown work item from any other failure.',
    success: "The backend's JSON for the work item, byte for byte.",
  },
  update: {
    summary: 'Update a work item',
    description: 'The body is forwarded as it is, byte for byte. An unknown id is a 500, not a 404.',
    success: "Updated. The backend's own body is dropped.",
  },
  delete: {
    summary: 'Delete a work item',
    description: 'An unknown id is a 500, not a 404.',
    success: "Deleted. The backend's own body is dropped.",
  },
};

function parseBody(reply: FixedReply): JsonObject {
  return JSON.parse(reply.body.toString()) as JsonObject;
}

function createPath(on: Operation['on'], limits: Limits): JsonObject {
  const { operationId, what, ids } = pathTexts[on];
  const asksFirst =
    limits.corsOrigins.length > 0
      ? ' Browsers ask so (a CORS preflight) before a page of another origin calls.'
      : '';
  const here = operations.filter((operation) => operation.on === on);
  return {
    ...Object.fromEntries(
      here.map((operation) => [operation.method.toLowerCase(), createOperation(operation, limits)]),
    ),
    options: {
      operationId,
      tags: [methodsTag],
      summary: `Ask for the methods of ${what}`,
      description: `The methods are in \`Allow\`.${ids}${asksFirst}`,
      security: hasTokens(limits) ? [] : undefined,
      parameters: parametersOf(on),
      // It does not count.
      responses: createResponses(methodsReplies(on, limits), { ...limits, rateLimit: '' }),
    },
  };
}

// Of each operation and not of the path, where Swagger UI would not resolve the references.
function parametersOf(on: Operation['on']): JsonObject[] {
  const names = ['RequestId', 'TraceParent', 'TraceState'];
  return (on === 'item' ? ['Id', ...names] : names).map((name) => refTo('parameters', name));
}

function createOperation(operation: Operation, limits: Limits): JsonObject {
  const { name, method, on, takesBody, passesAnswer, successStatus } = operation;
  const { summary, description, success } = texts[name];
  const schema = passesAnswer ? (name === 'list' ? 'WorkItems' : 'WorkItem') : 'Success';
  const scope = scopeOf(name, limits);
  return {
    operationId: name === 'list' ? 'listWorkItems' : `${name}WorkItem`,
    tags: [itemsTag],
    summary,
    description: `${description}${method === 'GET' ? ' `HEAD` answers the same, without the body.' : ''}`,
    security: scope === undefined ? undefined : [{ [bearerScheme]: [scope] }],
    parameters: parametersOf(on),
    requestBody: takesBody ? refTo('requestBodies', 'WorkItem') : undefined,
    responses: {
      [successStatus]: {
        description: success,
        headers: headersOf(replies.success, limits),
        content: {
          'application/json': {
            schema: refTo('schemas', schema),
            examples: { [name]: { summary, value: samples[name] ?? sampleSuccess } },
          },
        },
      },
      ...createResponses(errorsOf(operation, limits), limits),
    },
  };
}

/** The responses that are the same for every operation, by the name under which the document has each once. */
const sharedNames: ReadonlyMap<number, string> = new Map([
  [408, 'RequestTimeout'],
  [417, 'ExpectationFailed'],
  [431, 'HeadersTooLarge'],
  [503, 'ServiceUnavailable'],
]);

/** Responses by status; messages that share a status share its response. */
function createResponses(documented: readonly Documented[], limits: Limits): JsonObject {
  const byStatus = Map.groupBy(documented, ({ reply }) => reply.status);
  return Object.fromEntries(
    [...byStatus].map(([status, group]) => {
      const shared = sharedNames.get(status);
      return [status, shared === undefined ? createResponse(group, limits) : refTo('responses', shared)];
    }),
  );
}

function createSharedResponses(limits: Limits): JsonObject {
  const byName = Map.groupBy(sharedReplies(limits), ({ reply }) => sharedNames.get(reply.status));
  return Object.fromEntries([...byName].map(([name = '', group]) => [name, createResponse(group, limits)]));
}

function createResponse(group: readonly Documented[], limits: Limits): JsonObject {
  const [{ reply }] = group as [Documented];
  const headers = group.flatMap((each) => each.reply.headers);
  const examples = group.map((each) => {
    const message = messageOf(each.reply);
    return [nameOf(message), { summary: message, value: { error: message } }] as const;
  });
  const content = { schema: refTo('schemas', 'Error'), examples: Object.fromEntries(examples) };
  return {
    description: group.map(({ when }) => when).join(' Or: '),
    headers: headersOf({ ...reply, headers }, limits),
    content: reply.body.length > 0 ? { 'application/json': content } : undefined,
  };
}

/** Empty where there is no body. */
function messageOf(reply: FixedReply): string {
  return reply.body.length > 0 ? (parseBody(reply) as { error: string }).error : '';
}

/** `Invalid ID format` -> `invalidIdFormat`. */
function nameOf(message: string): string {
  return message.toLowerCase().replace(/[^a-z]+([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

// Of replies to requests that the rate limit counts [D64]: those of any other status are given before it is asked.
const countedStatuses: ReadonlySet<number> = new Set([200, 201, 400, 404, 408, 413, 429, 500, 503]);

/** The reply's own headers, and those that differ each time [D24]; `content-type` is the key of the content. */
function headersOf(reply: FixedReply, limits: Limits): JsonObject {
  const described = describeHeaders(limits);
  // With those that pages of other origins get [D45].
  const cors = createCors(limits, limits.corsMaxAgeS);
  const fields = ['origin', limits.corsOrigins[0] ?? '', 'access-control-request-method', 'GET'];
  const methods = reply.status === replies.collectionOptions.status ? ['GET', 'OPTIONS'] : ['GET'];
  const added = methods.flatMap((method) => cors?.fieldsFor(reply.headers, { method, fields }) ?? []);
  const own = [...reply.headers, ...added];
  const names = new Set([
    'x-request-id',
    ...(reply.body.length > 0 ? ['content-length'] : []),
    ...own.filter((_, index) => index % 2 === 0),
    ...(countedStatuses.has(reply.status) ? ['ratelimit-policy', 'ratelimit'] : []),
  ]);
  return Object.fromEntries(
    [...names].flatMap((name) => {
      const header = described.get(name);
      return header === undefined ? [] : [[name, refTo('headers', header.name)]];
    }),
  );
}

function createComponents(limits: Limits): JsonObject {
  return {
    schemas: {
      WorkItem: {
        title: 'Work item',
        description:
          "Any JSON value: which fields a work item has is the backend's affair. The bytes are passed on unchanged.",
        examples: [sampleItem],
      },
      WorkItems: {
        title: 'Work items',
        description: "Any JSON value: the backend's list of work items, passed on unchanged.",
        examples: [sampleList],
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
            description: `A token of the issuer ${limits.authIssuer}.`,
          },
        }
      : undefined,
    responses: createSharedResponses(limits),
    requestBodies: {
      WorkItem: {
        description: `One JSON text in UTF-8, of at most ${count(limits.requestBytesMax)} bytes. The bytes decide: any \`Content-Type\` will do.`,
        required: true,
        content: { 'application/json': { schema: refTo('schemas', 'WorkItem'), example: sampleRequest } },
      },
    },
    parameters: describeParameters(limits),
    headers: Object.fromEntries(
      [...describeHeaders(limits).values()].map(({ name, described }) => [name, described]),
    ),
  };
}

function describeGateway(limits: Limits): string {
  return `A gateway in front of a work-item backend. It passes JSON through byte for byte, stores nothing, and turns every failure into a fixed error.

Every error is \`{"error":"…"}\` with one of the messages listed here; nothing that the backend said is among them. The reason is in the gateway's log, found by the reply's \`x-request-id\`.

A 500 can be the request's own fault: its body is not JSON, or the backend is well and rejected it (with ${rejectedStatuses.join(', ')}, such as for an item that is not there). Sent again as it is, such a request fails again. Every other 500 is the backend's fault or the gateway's.

## Limits

| What | Limit |
| --- | --- |
| Request body | ${count(limits.requestBytesMax)} bytes, then 413 |
| Request head | ${count(limits.requestHeadBytesMax)} bytes, then 431 |
| Calls at once | ${count(limits.inFlightMax)}, then 503 |
${describeRate(limits)}| Time to send a request | ${seconds(limits.requestTimeoutMs)} (its head: ${seconds(limits.requestHeadersTimeoutMs)}), then 408 |
| Time for the backend | ${seconds(limits.backendTimeoutMs)}, then 500 |

## Outside the operations

${describeReplies(outsideReplies)}

## Every operation

${describeReplies(sharedReplies(limits))}
`;
}

function describeReplies(documented: readonly Documented[]): string {
  const rows = documented.map(({ reply, when }) => `| ${reply.status} | ${messageOf(reply)} | ${when} |`);
  return ['| Status | Message | When |', '| --- | --- | --- |', ...rows].join('\n');
}

function describeRate({ rateLimit }: Limits): string {
  const rate = parseRate(rateLimit);
  return rate === undefined
    ? ''
    : `| Requests of a client | ${count(rate.limit)} in ${seconds(rate.windowMs)}, then 429 |\n`;
}
