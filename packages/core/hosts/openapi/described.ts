// The OpenAPI document without references, for code that reads it.

import type { Json, JsonObject } from './document.ts';

type Parts<Each> = Readonly<Record<string, Each>>;

/** A parameter, a header, a body or a reply, with the members that it has. */
export interface Part {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description: string;
  readonly example?: number;
  readonly schema: JsonObject;
  readonly headers: Parts<Part>;
  readonly content?: {
    readonly 'application/json': { schema: JsonObject; example?: Json; examples?: Parts<{ readonly value: Json }> };
  };
}

export interface DescribedOperation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description: string;
  readonly parameters: readonly Part[];
  readonly requestBody?: Part;
  readonly responses: Parts<Part>;
}

interface Described {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: Parts<Parts<DescribedOperation>>;
  readonly components: { readonly securitySchemes?: { readonly bearer: Part } };
}

/** Returns `document` without references, in the terms of OpenAPI 3.0, whose schemas have no `const` and one example. */
export function resolveReferences(document: Json): Described {
  const inline = (value: Json): Json => {
    if (Array.isArray(value)) return (value as readonly Json[]).map(inline);
    if (typeof value !== 'object' || value === null) return value;
    const object = value as JsonObject;
    if (typeof object['$ref'] === 'string') {
      const target = object['$ref'].split('/').slice(1);
      return inline(target.reduce<Json>((found, name) => (found as JsonObject)[name], document));
    }
    return Object.fromEntries(Object.entries(object).map(([name, each]) => asInOpenApi30(name, inline(each))));
  };
  return inline(document) as unknown as Described;
}

function asInOpenApi30(name: string, value: Json): [string, Json] {
  if (name === 'const') return ['enum', [value]];
  return name === 'examples' && Array.isArray(value) ? ['example', value[0] as Json] : [name, value];
}
