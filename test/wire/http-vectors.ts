// The vectors of test/vectors/http: the bytes of a connection and the messages read from them. The fuzzer adds vectors.

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
