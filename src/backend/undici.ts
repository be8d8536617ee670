// The parts of undici that are used here, and nothing else of it: its index would load fetch, caches and mocks
// too, at a tenth of the whole start-up time. The version is fixed in package.json, since neither these paths
// nor what its parser holds are promised.

import { createRequire } from 'node:module';
import type { buildConnector as BuildConnector, Client as UndiciClient } from 'undici';

const require = createRequire(import.meta.url);

export const Client = require('undici/lib/dispatcher/client.js') as typeof UndiciClient;
export const buildConnector = require('undici/lib/core/connect.js') as typeof BuildConnector;

const { kParser } = require('undici/lib/core/symbols.js') as { kParser: symbol };
const noHeaders: Buffer[] = [];

interface Parser {
  readonly headers: Buffer[];
  contentLength: number;
}

function parserOf(socket: object): Parser | null | undefined {
  return (socket as Record<symbol, Parser | null | undefined>)[kParser];
}

/**
 * Sets what undici's parser takes for the length of the answer that comes on `socket`: it counts white space behind the
 * digits, which may be there (RFC 9112, 5.1), for more of them.
 */
export function setAnswerLength(socket: object, length: number): void {
  const parser = parserOf(socket);
  if (parser) {
    parser.contentLength = length;
  }
}

/**
 * The names and values of headers and trailers that undici's parser has met on `socket` and not made use of yet, since
 * the head or the answer has not come to its end: parts of the buffers that it was given. They may be replaced.
 */
export function heldHeaders(socket: object): Buffer[] {
  return parserOf(socket)?.headers ?? noHeaders;
}
