// Converts the OpenAPI document's operations to route schemas for `@fastify/swagger`. Fastify itself gets no schema, because
// it would validate requests and serialise replies with the schema.

import type { Operation } from '../../operations.ts';
import { resolveReferences, type Part } from './described.ts';
import { seconds, type Limits } from './document.ts';
import { createOpenApi } from './openapi.ts';

export type RouteSchemas = (operation: Operation) => object;

/** Creates schemas without references, in Fastify's format. `prefix`: the path at which the plugin is mounted. */
export function createRouteSchemas(limits: Limits, prefix: string): RouteSchemas {
  const [collection, item] = Object.values(resolveReferences(createOpenApi(limits)).paths);
  // Makes operation ids unique when a server mounts the plugin several times.
  const place = prefix.replace(/[^a-z0-9]+(.?)/gi, (_, letter: string) => letter.toUpperCase());
  return ({ method, on }) => {
    const operation = (on === 'item' ? item : collection)?.[method.toLowerCase()];
    if (operation === undefined) return {};
    // 417, 431 and for GET also 408 are left out: Node.js or Fastify sends these statuses, with other bodies, before a
    // request reaches a route. For the other operations 408 stays, because the plugin sends 408 when a body is late.
    const ofTheHost = method === 'GET' ? ['408', '417', '431'] : ['417', '431'];
    const { operationId, parameters, requestBody: body, responses, tags, summary, description } = operation;
    const late = `The body took longer than ${seconds(limits.requestTimeoutMs)}. The connection is closed.`;
    const fields = (where: string) => ({
      type: 'object',
      properties: schemasOf(parameters.filter((each) => each.in === where).map((each) => [each.name, each])),
    });
    return {
      ...{ operationId: operationId + place, tags, summary, description, headers: fields('header') },
      ...(on === 'item' && { params: fields('path') }),
      ...(body && { body: { ...body.content?.['application/json'].schema, description: body.description } }),
      response: Object.fromEntries(
        Object.entries(responses)
          .filter(([status]) => !ofTheHost.includes(status))
          .map(([status, { headers, ...response }]) => [
            status,
            {
              ...response,
              ...(status === '408' && { description: late }),
              headers: schemasOf(Object.entries(headers)),
            },
          ]),
      ),
    };
  };
}

function schemasOf(parts: readonly [name: string, part: Part][]): object {
  return Object.fromEntries(parts.map(([name, { schema, description }]) => [name, { ...schema, description }]));
}
