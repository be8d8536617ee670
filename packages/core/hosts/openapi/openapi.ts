// The OpenAPI 3.1 document of the gateway. Which operations there are, and every status and message, comes
// from the tables of packages/core/call/; what is written here is only what those mean to a client.

import { collectionPath, operations, type Operation, type OperationName } from '../../operations.ts';
import { rejectedStatuses } from '../../outcomes.ts';
import {
  createScopeReply,
  failureReplies,
  notFoundReplies,
  replies,
  replyTooManyRequests,
  type FixedReply,
} from '../../replies.ts';
import { anyOrigin, Cors } from '../../admission/cors.ts';
import { isCrossSiteWrite } from '../../admission/cross-site.ts';
import type { guardRows } from '../../guards/options/guard-options.ts';
import { parseRate, rateHeaders } from '../../guards/options/rate.ts';
import { scopesOf } from '../../guards/options/token-kinds.ts';
import { version } from '../../version.ts';
import type { limitRows } from '../options/limits.ts';
import type { corsRows, gatewayRows } from '../options/options.ts';
import type { ValuesOf } from '../options/rows.ts';

/** What of the options a client can meet. */
export type Limits = ValuesOf<
  typeof limitRows &
    typeof corsRows &
    Pick<typeof gatewayRows, 'allowedHosts' | 'itemIdParsing'> &
    Pick<typeof guardRows, 'authIssuer' | 'authScopes' | 'rateLimit' | 'rateLimitKey'>
>;

export type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json };
export type JsonObject = Readonly<Record<string, Json>>;

/** The document as it is served and printed. */
export function createOpenApiText(limits: Limits): string {
  return `${JSON.stringify(createOpenApi(limits), null, 2)}\n`;
}

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
    security: wantsTokens(limits) ? [{ [bearerScheme]: [] }] : [],
    tags: [
      { name: itemsTag, description: 'The five operations. Each makes one call to the backend.' },
      { name: methodsTag, description: 'What can be asked of a path. The backend is not called.' },
    ],
    paths: Object.fromEntries(
      (['collection', 'item'] as const).map((on) => [
        on === 'collection' ? collectionPath : `${collectionPath}/{id}`,
        createPath(on, limits),
      ]),
    ),
    components: createComponents(limits),
  };
}

const itemsTag = 'Work items';
const methodsTag = 'Methods';

function createPath(on: Operation['on'], limits: Limits): JsonObject {
  return {
    ...Object.fromEntries(
      operations
        .filter((operation) => operation.on === on)
        .map((operation) => [operation.method.toLowerCase(), createOperation(operation, limits)]),
    ),
    options: {
      operationId: on === 'collection' ? 'getCollectionMethods' : 'getItemMethods',
      tags: [methodsTag],
      summary:
        on === 'collection' ? 'Ask for the methods of the collection' : 'Ask for the methods of an item',
      description: `The methods are in \`Allow\`.${on === 'item' ? ' Any id will do: it is not looked at.' : ''}${limits.corsOrigins.length > 0 ? ' Browsers ask so (a CORS preflight) before a page of another origin calls.' : ''}`,
      ...(wantsTokens(limits) ? { security: [] } : {}),
      parameters: parametersOf(on),
      responses: createResponses(
        [
          { ...methodsOf(on), when: 'The methods of this path.' },
          badRequest,
          ...refusalsOf('OPTIONS', limits),
          ...answeredBeforeAnyOperation(limits),
        ],
        // It does not count.
        { ...limits, rateLimit: '' },
      ),
    },
  };
}

// Of each operation and not of the path, where Swagger UI would not resolve the references.
function parametersOf(on: Operation['on']): JsonObject[] {
  const names = ['RequestId', 'TraceParent', 'TraceState'];
  return (on === 'item' ? ['Id', ...names] : names).map((name) => refTo('parameters', name));
}

function methodsOf(on: Operation['on']): { reply: FixedReply } {
  return { reply: on === 'collection' ? replies.collectionOptions : replies.itemOptions };
}

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

const sampleItem: JsonObject = {
  id: 1,
  title: 'Sign-in fails for names with an apostrophe',
  type: 'Bug',
  state: 'Active',
};
const sampleRequest: JsonObject = { title: 'My first work item', state: 'New' };
/** What the backend may answer to the operations whose answer is passed on. */
const sampleAnswers: Partial<Record<OperationName, Json>> = {
  list: [sampleItem, { id: 2, title: 'Export the list as CSV', type: 'Feature', state: 'New' }],
  create: { id: 4, ...sampleRequest },
  read: sampleItem,
};

function createOperation(operation: Operation, limits: Limits): JsonObject {
  const { name, takesBody } = operation;
  const text = texts[name];
  const scope = scopeOf(name, limits);
  return {
    operationId: name === 'list' ? 'listWorkItems' : `${name}WorkItem`,
    tags: [itemsTag],
    summary: text.summary,
    description:
      operation.method === 'GET'
        ? `${text.description} \`HEAD\` answers the same, without the body.`
        : text.description,
    ...(scope === undefined ? {} : { security: [{ [bearerScheme]: [scope] }] }),
    parameters: parametersOf(operation.on),
    ...(takesBody ? { requestBody: refTo('requestBodies', 'WorkItem') } : {}),
    responses: {
      [operation.successStatus]: createSuccess(operation, limits),
      ...createResponses(errorsOf(operation, limits), limits),
    },
  };
}

function createSuccess({ name, passesAnswer }: Operation, limits: Limits): JsonObject {
  const schema = passesAnswer ? (name === 'list' ? 'WorkItems' : 'WorkItem') : 'Success';
  const value = passesAnswer ? sampleAnswers[name] : (JSON.parse(replies.success.body.toString()) as Json);
  return {
    description: texts[name].success,
    headers: headersOf(replies.success, true, limits),
    content: {
      'application/json': {
        schema: refTo('schemas', schema),
        examples: { [name]: { summary: texts[name].summary, value: value ?? null } },
      },
    },
  };
}

/** A reply that a client can get, and when. */
interface Documented {
  readonly reply: FixedReply;
  readonly when: string;
}

const badRequest: Documented = {
  reply: replies.badRequest,
  when: 'Not HTTP, or HTTP that two parsers could read in two ways. The connection is closed.',
};

/** What a guard refuses [D56, D57]. */
function refusalsOf(method: string, { allowedHosts, corsOrigins }: Limits): Documented[] {
  const reasons = [
    ...(isCrossSiteWrite(method, 'cross-site')
      ? [
          `a browser sends it for a page of another site (\`Sec-Fetch-Site: cross-site\`)${corsOrigins.length > 0 ? ' and of no origin that is allowed' : ''}`,
        ]
      : []),
    ...(allowedHosts.length > 0 ? ['`Host` is no name under which this gateway is called'] : []),
  ];
  return reasons.length === 0
    ? []
    : [{ reply: replies.forbidden, when: `Refused: ${reasons.join(', or ')}. The backend is not called.` }];
}

/** What a client gets that makes too many requests [D46]. */
function tooManyOf({ rateLimit, rateLimitKey }: Limits): Documented[] {
  const rate = parseRate(rateLimit);
  if (rate === undefined) {
    return [];
  }
  const who = rateLimitKey === 'identity' ? 'whom the token names' : 'from this address (IPv6: from its /64)';
  const when = `More than ${count(rate.limit)} requests in ${seconds(rate.windowMs)} ${who}. The backend is not called: try again after \`Retry-After\` seconds.`;
  const windowS = rate.windowMs / 1_000;
  return [{ reply: replyTooManyRequests(windowS, rateHeaders(rate, 0, windowS)), when }];
}

const bearerScheme = 'bearer';

function wantsTokens({ authIssuer }: Limits): boolean {
  return authIssuer !== '';
}

function scopeOf(name: OperationName, limits: Limits): string | undefined {
  return wantsTokens(limits) ? scopesOf(limits.authScopes).get(name) : undefined;
}

/** What a call without the right token gets [D43]. */
function tokenRefusalsOf(name: OperationName, limits: Limits): Documented[] {
  if (!wantsTokens(limits)) {
    return [];
  }
  const scope = scopeOf(name, limits);
  return [
    { reply: replies.unauthorized, when: 'No token. The backend is not called.' },
    { reply: replies.invalidToken, when: 'A token that is not valid, or not any more.' },
    ...(scope === undefined
      ? []
      : [{ reply: createScopeReply(scope), when: `The token lacks the scope \`${scope}\`.` }]),
  ];
}

/** Every error of an operation, in the order in which it is decided within a status. */
function errorsOf(operation: Operation, limits: Limits): Documented[] {
  const { name, method, on, takesBody, passesAnswer } = operation;
  const failures = [
    'the backend answered with no success status',
    ...(operation.notFoundMessage === undefined ? [' (its 404 is no exception)'] : [' other than 404']),
    `, or did not answer in full within ${seconds(limits.backendTimeoutMs)}`,
    ...(passesAnswer
      ? [`, or not with JSON, or with more than ${count(limits.responseBytesMax)} bytes of it`]
      : []),
    ...(takesBody ? [', or the request body is not valid JSON (then it was not called)'] : []),
  ];
  return [
    ...(on === 'item'
      ? [{ reply: replies.invalidId, when: '`id` holds no integer. The backend is not called.' }]
      : []),
    badRequest,
    ...refusalsOf(method, limits),
    ...tokenRefusalsOf(name, limits),
    ...tooManyOf(limits),
    ...(operation.notFoundMessage === undefined
      ? []
      : [{ reply: notFoundReplies[name], when: 'The backend has no such work item.' }]),
    ...(takesBody
      ? [
          {
            reply: replies.bodyTooLarge,
            when: `The body has more than ${count(limits.requestBytesMax)} bytes. The backend is not called.`,
          },
        ]
      : []),
    ...answeredBeforeAnyOperation(limits),
    { reply: failureReplies[name], when: `Failed: ${failures.join('')}.` },
    ...unavailabilityOf(limits),
  ];
}

function unavailabilityOf(limits: Limits): Documented[] {
  return [
    ...(wantsTokens(limits)
      ? [{ reply: replies.noKeys, when: 'There is no key to check the token with: try again later.' }]
      : []),
    {
      reply: replies.overload,
      when: `More than ${count(limits.inFlightMax)} calls at once, or bodies of more than ${count(limits.bufferedBytesMax)} bytes held for them. The backend is not called: try again after \`Retry-After\` seconds.`,
    },
  ];
}

function answeredBeforeAnyOperation(limits: Limits): Documented[] {
  return [
    {
      reply: replies.requestTimeout,
      when: `The head took longer than ${seconds(limits.requestHeadersTimeoutMs)}, or head and body together longer than ${seconds(limits.requestTimeoutMs)}. The connection is closed.`,
    },
    { reply: replies.expectationFailed, when: 'An `Expect` other than `100-continue`.' },
    {
      reply: replies.headersTooLarge,
      when: `The target and the headers have more than ${count(limits.requestHeadBytesMax)} bytes. The connection is closed.`,
    },
  ];
}

/** The responses that are the same for every operation, by the name under which the document has each once. */
const sharedNames: ReadonlyMap<number, string> = new Map([
  [408, 'RequestTimeout'],
  [417, 'ExpectationFailed'],
  [431, 'HeadersTooLarge'],
  [503, 'ServiceUnavailable'],
]);

function sharedReplies(limits: Limits): Documented[] {
  return [...answeredBeforeAnyOperation(limits), ...unavailabilityOf(limits)];
}

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
  const hasBody = reply.body.length > 0;
  return {
    description: group.map(({ when }) => when).join(' Or: '),
    headers: headersOf({ ...reply, headers }, hasBody, limits),
    ...(hasBody ? { content: { 'application/json': createErrorContent(group) } } : {}),
  };
}

function createErrorContent(group: readonly Documented[]): JsonObject {
  return {
    schema: refTo('schemas', 'Error'),
    examples: Object.fromEntries(
      group.map(({ reply }) => {
        const message = messageOf(reply);
        return [nameOf(message), { summary: message, value: { error: message } }];
      }),
    ),
  };
}

function messageOf(reply: FixedReply): string {
  return (JSON.parse(reply.body.toString()) as { error: string }).error;
}

/** `Invalid ID format` -> `invalidIdFormat`. */
function nameOf(message: string): string {
  return message.toLowerCase().replace(/[^a-z]+([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

const headerNames: Readonly<Record<string, string>> = {
  'x-request-id': 'RequestId',
  'cache-control': 'CacheControl',
  'x-content-type-options': 'ContentTypeOptions',
  'content-length': 'ContentLength',
  'retry-after': 'RetryAfter',
  'www-authenticate': 'WwwAuthenticate',
  allow: 'Allow',
  vary: 'Vary',
  'access-control-allow-origin': 'CorsOrigin',
  'access-control-allow-credentials': 'CorsCredentials',
  'access-control-expose-headers': 'CorsExposedHeaders',
  'access-control-allow-methods': 'CorsMethods',
  'access-control-allow-headers': 'CorsHeaders',
  'access-control-max-age': 'CorsMaxAge',
  'ratelimit-policy': 'RateLimitPolicy',
  ratelimit: 'RateLimit',
};

/** The reply's own, and those that differ each time [D24]; `content-type` is the key of the content. */
function headersOf(reply: FixedReply, hasBody: boolean, limits: Limits): JsonObject {
  const all = corsListsOf(reply, limits).flat();
  const own = [...new Set(all.filter((name, index) => index % 2 === 0 && name !== 'content-type'))];
  const rate = limits.rateLimit !== '' && countedStatuses.has(reply.status) ? rateNames : [];
  const names = new Set(['x-request-id', ...(hasBody ? ['content-length'] : []), ...own, ...rate]);
  return Object.fromEntries([...names].map((name) => [name, refTo('headers', headerNames[name] ?? name)]));
}

// Of replies to requests that the rate limit counts [D64]: those of any other status are given before it is asked.
const countedStatuses: ReadonlySet<number> = new Set([200, 201, 400, 404, 408, 413, 429, 500, 503]);
const rateNames = ['ratelimit-policy', 'ratelimit'];

/** The headers that `reply` can have, with those that pages of other origins get [D45]. */
function corsListsOf(
  { status, headers }: FixedReply,
  { corsOrigins, corsCredentials, corsMaxAgeS }: Limits,
): (readonly string[])[] {
  const [origin] = corsOrigins;
  if (origin === undefined) {
    return [headers];
  }
  const cors = new Cors(corsOrigins, corsCredentials, corsMaxAgeS);
  const fields = ['origin', origin, 'access-control-request-method', 'GET'];
  return [
    headers,
    cors.fieldsFor(headers, { method: 'GET', fields }),
    ...(status === replies.collectionOptions.status
      ? [cors.fieldsFor(headers, { method: 'OPTIONS', fields })]
      : []),
  ];
}

/** What the headers of CORS are, where they are sent. */
function corsHeaders({ corsOrigins, corsCredentials, corsMaxAgeS }: Limits): JsonObject {
  if (corsOrigins.length === 0) {
    return {};
  }
  const isForAny = corsOrigins.includes(anyOrigin);
  const text = (description: string, required: boolean, value?: string): JsonObject => ({
    description,
    required,
    schema: value === undefined ? { type: 'string' } : { type: 'string', const: value },
  });
  const toAllowed = isForAny ? '' : ' Only to a page of an origin that is allowed.';
  const toPreflight = ' Only to a CORS preflight of an origin that is allowed.';
  return {
    ...(isForAny ? {} : { Vary: text('Replies differ by the origin of the page.', true, 'origin') }),
    CorsOrigin: text(
      `The origin whose page may read the reply.${toAllowed}`,
      isForAny,
      isForAny ? anyOrigin : undefined,
    ),
    ...(corsCredentials
      ? { CorsCredentials: text(`The page may call with credentials.${toAllowed}`, false, 'true') }
      : {}),
    CorsExposedHeaders: text(`The headers that the page may read.${toAllowed}`, false),
    CorsMethods: text(`The methods that the page may call with.${toPreflight}`, false),
    CorsHeaders: text(`The headers that the page may send.${toPreflight}`, false),
    CorsMaxAge: {
      description: `For how long the browser may remember it, in seconds.${toPreflight}`,
      required: false,
      schema: { type: 'integer', const: corsMaxAgeS },
    },
  };
}

function refTo(kind: string, name: string): JsonObject {
  return { $ref: `#/components/${kind}/${name}` };
}

function createComponents(limits: Limits): JsonObject {
  const { itemIdParsing, requestBytesMax } = limits;
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
        examples: [sampleAnswers.list ?? null],
      },
      Success: {
        type: 'object',
        title: 'Success',
        required: ['success'],
        properties: { success: { type: 'boolean', const: true, description: 'Always `true`.' } },
        additionalProperties: false,
        examples: [JSON.parse(replies.success.body.toString()) as Json],
      },
      Error: {
        type: 'object',
        title: 'Error',
        required: ['error'],
        properties: { error: { type: 'string', description: 'A short message for people.' } },
        additionalProperties: false,
        examples: [JSON.parse(replies.invalidId.body.toString()) as Json],
      },
    },
    ...(wantsTokens(limits)
      ? {
          securitySchemes: {
            [bearerScheme]: {
              type: 'http',
              scheme: 'bearer',
              bearerFormat: 'JWT',
              description: `A token of the issuer ${limits.authIssuer}.`,
            },
          },
        }
      : {}),
    responses: createSharedResponses(limits),
    requestBodies: {
      WorkItem: {
        description: `One JSON text in UTF-8, of at most ${count(requestBytesMax)} bytes. The bytes decide: any \`Content-Type\` will do.`,
        required: true,
        content: {
          'application/json': {
            schema: refTo('schemas', 'WorkItem'),
            example: sampleRequest,
          },
        },
      },
    },
    parameters: {
      Id: {
        name: 'id',
        in: 'path',
        required: true,
        description:
          itemIdParsing === 'leading'
            ? 'A base-10 integer of any length; what comes behind its digits is ignored (`12abc` is 12).'
            : 'A base-10 integer of any length, and nothing else.',
        schema: { type: 'integer' },
        example: 1,
      },
      RequestId: {
        name: 'x-request-id',
        in: 'header',
        description:
          'Comes back in the reply, and is in the log and in the call to the backend. When it is missing or has another form, a new one is made.',
        schema: { type: 'string', pattern: '^[A-Za-z0-9._~-]{1,128}$' },
      },
      TraceParent: {
        name: 'traceparent',
        in: 'header',
        description: 'W3C trace context, passed to the backend when it is well-formed.',
        schema: { type: 'string' },
      },
      TraceState: {
        name: 'tracestate',
        in: 'header',
        description: 'Passed on with `traceparent`.',
        schema: { type: 'string' },
      },
    },
    headers: {
      RequestId: {
        description: "The request's id: the client's own, or a new one.",
        required: true,
        schema: { type: 'string', pattern: '^[A-Za-z0-9._~-]{1,128}$' },
      },
      CacheControl: {
        description: 'No reply may be cached.',
        required: true,
        schema: { type: 'string', const: 'no-store' },
      },
      ContentTypeOptions: {
        description: 'The content type is to be believed.',
        required: true,
        schema: { type: 'string', const: 'nosniff' },
      },
      ContentLength: {
        description: "The body's exact length in bytes.",
        required: true,
        schema: { type: 'integer', minimum: 0 },
      },
      RetryAfter: {
        description: 'Seconds to wait.',
        required: true,
        schema: { type: 'integer', minimum: 0 },
      },
      ...(wantsTokens(limits)
        ? {
            WwwAuthenticate: {
              description: 'What is wanted, and what was wrong [RFC 6750]; not where a page was refused.',
              required: false,
              schema: { type: 'string' },
            },
          }
        : {}),
      Allow: {
        description: 'The methods that the path has.',
        required: true,
        schema: { type: 'string' },
      },
      ...corsHeaders(limits),
      ...(limits.rateLimit === '' ? {} : rateLimitHeaders),
    },
  };
}

const rateLimitHeaders: JsonObject = {
  RateLimitPolicy: {
    description:
      'The limit: `q` requests in `w` seconds (draft-ietf-httpapi-ratelimit-headers, a structured field). Every reply to a request that counts has it.',
    required: false,
    schema: { type: 'string', pattern: '^"default";q=\\d+;w=\\d+$' },
  },
  RateLimit: {
    description:
      'What is left of it: `r` requests, until it begins anew in `t` seconds. Every reply to a request that counts has it.',
    required: false,
    schema: { type: 'string', pattern: '^"default";r=\\d+;t=\\d+$' },
  },
};

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

${describeReplies([
  { reply: replies.notFound, when: 'No such path.' },
  {
    reply: replies.collectionMethodNotAllowed,
    when: 'A method that the path does not have; `Allow` names those that it has.',
  },
  { reply: replies.internalError, when: 'A fault of the gateway.' },
])}

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

function count(amount: number): string {
  return amount.toLocaleString('en');
}

function seconds(ms: number): string {
  return `${count(ms / 1_000)} s`;
}
