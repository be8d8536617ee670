// The OpenAPI document, parsed, with its references resolved.

import assert from 'node:assert/strict';

export interface OpenApiResponse {
  readonly description: string;
  readonly headers: Readonly<
    Record<string, { readonly schema: { readonly type?: string; readonly const?: unknown; readonly pattern?: string } }>
  >;
  readonly content?: {
    readonly 'application/json': {
      readonly schema: object;
      readonly examples: Readonly<Record<string, { readonly value: unknown }>>;
    };
  };
}

export interface OpenApiOperation {
  readonly operationId: string;
  readonly parameters: readonly { readonly name: string; readonly in: string; readonly schema: object }[];
  readonly requestBody?: { readonly description: string };
  readonly responses: Readonly<Record<string, OpenApiResponse>>;
}

export interface OpenApiDocument {
  readonly openapi: string;
  readonly info: { readonly version: string; readonly description: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, OpenApiOperation>>>>;
}

/** The document in `text` with every `$ref` resolved. */
export function readOpenApi(text: string): OpenApiDocument {
  const document: unknown = JSON.parse(text);
  return follow(document, document) as OpenApiDocument;
}

function follow(value: unknown, document: unknown): unknown {
  if (Array.isArray(value)) return value.map((each) => follow(each, document));
  if (typeof value !== 'object' || value === null) return value;
  if (!('$ref' in value)) {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, follow(each, document)]));
  }
  const [start, ...parts] = String(value.$ref).split('/');
  assert.equal(start, '#', 'every reference is to the document itself');
  const target = parts.reduce<unknown>((each, part) => (each as Record<string, unknown> | undefined)?.[part], document);
  assert.notEqual(target, undefined, `${String(value.$ref)} points to nothing`);
  return follow(target, document);
}
