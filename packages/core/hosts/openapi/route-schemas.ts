// Converts the OpenAPI document's operations to route schemas for `@fastify/swagger`. Fastify itself gets no schema, because
// it would validate requests and serialise replies with the schema.

import type { Operation } from '../../operations.ts';
import { seconds, type Json, type JsonObject, type Limits } from './document.ts';
import { createOpenApi } from './openapi.ts';

export type RouteSchemas = (operation: Operation) => JsonObject;

/** Creates schemas without references, in Fastify's format. `prefix`: the path at which the plugin is mounted. */
export function createRouteSchemas(limits: Limits, prefix: string): RouteSchemas {
  const { paths, components } = createOpenApi(limits);
  // Makes operation ids unique when a server mounts the plugin several times.
  const place = prefix.replace(/[^a-z0-9]+(.?)/gi, (_, letter: string) => letter.toUpperCase());
  return ({ method, on }) => {
    const path = Object.entries(paths as JsonObject).find(([name]) => name.endsWith('}') === (on === 'item'));
    const operation = (path?.[1] as JsonObject)[method.toLowerCase()];
    const described = inline(operation ?? {}, components ?? {}) as unknown as DescribedOperation;
    // 417, 431 and for GET also 408 are left out: Node.js or Fastify sends these statuses, with other bodies, before a
    // request reaches a route. For the other operations 408 stays, because the plugin sends 408 when a body is late.
    const ofTheHost = method === 'GET' ? ['408', '417', '431'] : ['417', '431'];
    return createSchema(described, place, ofTheHost, limits.requestTimeoutMs);
  };
}

interface DescribedOperation {
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
  operation: DescribedOperation,
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
              description: `The body took longer than ${seconds(requestTimeoutMs)}. The connection is closed.`,
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

/** Returns `value` with every reference replaced by its target. */
function inline(value: Json, components: Json): Json {
  if (Array.isArray(value)) return (value as readonly Json[]).map((each) => inline(each, components));
  if (typeof value !== 'object' || value === null) return value;
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

// `@fastify/swagger` writes OpenAPI 3.0, whose schemas have no `const` and only one example.
function asInOpenApi30(name: string, value: Json): [string, Json] {
  if (name === 'const') return ['enum', [value]];
  return name === 'examples' && Array.isArray(value) ? ['example', value[0] as Json] : [name, value];
}
