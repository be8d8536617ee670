// Single connections' bytes and what they are read as: test/vectors/http, where the fuzzer puts what it finds.

import type { AnswerHead, RequestHead } from '../../packages/core/http1/head.ts';
import type { Reading } from './http-readings.ts';

export interface VectorMessage {
  /** Method and target, or the status. */
  readonly start: string;
  /** One character is one byte. */
  readonly body: string;
  readonly isWhole: boolean;
  readonly persists: boolean;
}

export interface Vector {
  /** What it is about. */
  readonly what: string;
  readonly role: 'requests' | 'answers';
  /** One character is one byte. */
  readonly bytes: string;
  /** The connection ends behind them. */
  readonly isEnded: boolean;
  readonly messages: readonly VectorMessage[];
  /** What follows the messages is refused. */
  readonly isRefused: boolean;
}

/** What of a reading stands in a vector. */
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
