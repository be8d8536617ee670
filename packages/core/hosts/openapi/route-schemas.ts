// The operations as `@fastify/swagger` takes them, from the OpenAPI document. They are shown and nothing else: Fastify itself
// gets no schema, and so neither validates nor serialises anything.

import type { Operation } from '../../operations.ts';
import type { Json, JsonObject, Limits } from './document.ts';
import { createOpenApi } from './openapi.ts';

/** The schema of each route. */
export type RouteSchemas = (operation: Operation) => JsonObject;

/** Schemas without references, in the form of Fastify; `prefix` is where the plugin is mounted. */
export function createRouteSchemas(limits: Limits, prefix: string): RouteSchemas {
  const { paths, components } = createOpenApi(limits);
  // Two of them may be in one server, and no two operations may have one id.
  const place = prefix.replace(/[^a-z0-9]+(.?)/gi, (_, letter: string) => letter.toUpperCase());
  return ({ method, on }) => {
    const path = Object.entries(paths as JsonObject).find(([name]) => name.endsWith('}') === (on === 'item'));
    const operation = (path?.[1] as JsonObject)[method.toLowerCase()];
    const described = inline(operation ?? {}, components ?? {}) as unknown as Described;
    // What Node.js or Fastify answers before a request comes to a route, in words of their own. The time of a body, which a
    // GET has not, is the plugin's.
    const ofTheHost = method === 'GET' ? ['408', '417', '431'] : ['417', '431'];
    return createSchema(described, place, ofTheHost, limits.requestTimeoutMs);
  };
}

interface Described {
  readonly operationId: string;
  readonly tags: Json;
  readonly summary: string;
  readonly description: string;
  readonly parameters: readonly (JsonObject & { name: string; in: string; schema: JsonObject })[];
  readonly requestBody?: { description: string; content: Record<string, { schema: JsonObject }> };
  readonly responses: Readonly<
    Record<string, { headers: Record<string, { description: string; schema: JsonObject }> }>
  >;
}

function createSchema(
  operation: Described,
  place: string,
  ofTheHost: readonly string[],
  requestTimeoutMs: number,
): JsonObject {
  const { operationId, tags, summary, description, parameters, requestBody, responses } = operation;
  const fields = (where: string): JsonObject => ({
    type: 'object',
    properties: Object.fromEntries(
      parameters
        .filter((each) => each.in === where)
        .map((each) => [each.name, { ...each.schema, description: each['description'] ?? '' }]),
    ),
  });
  return {
    operationId: operationId + place,
    tags,
    summary,
    description,
    headers: fields('header'),
    ...(parameters.some((each) => each.in === 'path') && { params: fields('path') }),
    ...(requestBody && {
      body: { ...requestBody.content['application/json']?.schema, description: requestBody.description },
    }),
    response: Object.fromEntries(
      Object.entries(responses)
        .filter(([status]) => !ofTheHost.includes(status))
        .map(([status, response]) => [
          status,
          {
            ...(response as unknown as JsonObject),
            ...(status === '408' && {
              description: `The body took longer than ${requestTimeoutMs} ms. The connection is closed.`,
            }),
            headers: Object.fromEntries(
              Object.entries(response.headers).map(([name, header]) => [
                name,
                { ...header.schema, description: header.description },
              ]),
            ),
          },
        ]),
    ),
  };
}

/** `value` with what its references mean in their place. */
function inline(value: Json, components: Json): Json {
  if (Array.isArray(value)) {
    return (value as readonly Json[]).map((each) => inline(each, components));
  }
  if (typeof value !== 'object' || value === null) {
    return value;
  }
  const object = value as JsonObject;
  const reference = object['$ref'];
  if (typeof reference === 'string') {
    const [, , kind = '', name = ''] = reference.split('/');
    const found = ((components as JsonObject)[kind] as JsonObject)[name];
    return inline(found ?? {}, components);
  }
  return Object.fromEntries(
    Object.entries(object).map(([name, each]) => asInOpenApi30(name, inline(each, components))),
  );
}

// That is what `@fastify/swagger` writes; its schemas have no constants, and one example.
function asInOpenApi30(name: string, value: Json): [string, Json] {
  if (name === 'const') {
    return ['enum', [value]];
  }
  return name === 'examples' && Array.isArray(value) ? ['example', value[0] as Json] : [name, value];
}
