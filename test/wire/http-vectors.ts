// The vectors of test/vectors/http: the bytes of a connection and how the readers must read them. The fuzzer adds vectors.

import { readdirSync, readFileSync } from 'node:fs';
import type { AnswerHead, RequestHead } from '../../packages/core/http1/head.ts';
import type { Reading } from './http-readings.ts';

export interface VectorMessage {
  /** Method and target, or the status. */
  readonly start: string;
  /** One character is one byte. */
  readonly body: string;
  readonly isWhole: boolean;
  readonly persists: boolean;
  /** The whole head, if the vector has it. */
  readonly head?: object;
}

export interface Vector {
  /** A description. */
  readonly what: string;
  readonly role: 'requests' | 'answers';
  /** One character is one byte. */
  readonly bytes: string;
  /** True if the connection ends after the bytes. */
  readonly isEnded: boolean;
  readonly messages: readonly VectorMessage[];
  /** True if the bytes after the messages are refused. */
  readonly isRefused: boolean;
}

/** A vector of `malformed.json`, which has no whole message. */
export interface Malformed extends Pick<Vector, 'what' | 'role' | 'bytes'> {
  /** The number of bytes that show the flaw. With one byte less they are valid. */
  readonly flawAt?: number;
  readonly reason?: string;
}

const folder = new URL('../vectors/http/', import.meta.url);
const read = (name: string): unknown => JSON.parse(readFileSync(new URL(name, folder), 'utf8'));

export const malformed = read('malformed.json') as readonly Malformed[];

/** Handwritten messages with every feature. */
export const valid = read('valid.json') as readonly Vector[];

/** The findings of the fuzzer, and known attacks on other parsers. Each has a file of its own. */
export const findings: readonly Vector[] = readdirSync(folder)
  .filter((name) => name.endsWith('.json') && !['malformed.json', 'valid.json'].includes(name))
  .map((name) => read(name) as Vector);

/** The part of a reading that a vector contains. */
export function summarize({
  messages,
  flaw,
}: Reading<RequestHead | AnswerHead>): Pick<Vector, 'messages' | 'isRefused'> {
  return {
    messages: messages.map(({ head, body, isWhole }) => ({
      start: 'method' in head ? `${head.method} ${head.target}` : String(head.status),
      body: body.toString('latin1'),
      isWhole,
      persists: head.persists,
    })),
    isRefused: flaw !== undefined,
  };
}
