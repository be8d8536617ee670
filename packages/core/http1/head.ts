// Collects the fields of a request or an answer, and checks the head as a whole at its end [D18, D27].

import type { FieldName } from './fields.ts';
import {
  isAuthority,
  isChunked,
  isTarget,
  parseConnection,
  parseContentLength,
  parseKeepAliveSeconds,
} from './grammar.ts';

/** A defect that makes a message unreadable. `kind` is one of the codes in reasons.ts. `reason` is for people. */
export interface Flaw {
  readonly kind: 'invalid-head' | 'invalid-chunks' | 'invalid-length' | 'incomplete-request' | 'head-too-large';
  readonly reason: string;
}

/** Length of a body: a number of bytes (0 if there is no body), `chunked`, or until the connection closes. */
type BodyLength = number | 'chunked' | 'until-close';

export interface RequestHead {
  readonly method: string;
  readonly target: string;
  readonly bodyLength: number | 'chunked';
  /** `unknown`: an `expect` field that is not a single `100-continue` [RFC 9110, 10.1.1]. */
  readonly expectation: 'none' | 'continue' | 'unknown';
  /** True if the client allows another request on the connection [RFC 9112, 9.3]. */
  readonly persists: boolean;
  /** HTTP version, as OpenTelemetry writes it. */
  readonly version: '1.0' | '1.1' | '2';
  /** The other fields that the gateway reads, in order, as name, value, name, value. */
  readonly fields: readonly string[];
}

export interface AnswerHead {
  readonly status: number;
  /** `interim` if another head follows (status 1xx). */
  readonly bodyLength: BodyLength | 'interim';
  readonly persists: boolean;
  /** Seconds for which the backend keeps an idle connection; undefined if the backend announces none. */
  readonly keepAliveSeconds: number | undefined;
}

/** Returns the first value of `name` in a head's `fields`; undefined if there is none. */
export function fieldValue(fields: readonly string[], name: FieldName): string | undefined {
  for (let index = 0; index < fields.length; index += 2) {
    if (fields[index] === name) return fields[index + 1];
  }
  return undefined;
}

/** Returns the value of `name` in a head's `fields`; undefined if there is none or more than one. */
export function onlyFieldValue(fields: readonly string[], name: FieldName): string | undefined {
  let value: string | undefined;
  for (let index = 0; index < fields.length; index += 2) {
    if (fields[index] === name) {
      if (value !== undefined) return undefined;
      value = fields[index + 1];
    }
  }
  return value;
}

export function fieldValues(fields: readonly string[], name: FieldName): string[] {
  return fields.filter((_, index) => index % 2 === 1 && fields[index - 1] === name);
}

class Framing {
  protected contentLength: number | undefined;
  protected transferEncoding: string | undefined;
  protected closes = false;
  protected keepsAlive = false;
  protected flaw: string | undefined;

  protected takeFraming(name: FieldName, value: string): boolean {
    switch (name) {
      case 'content-length': {
        const length = parseContentLength(value);
        if (length === undefined || this.contentLength !== undefined) {
          this.flaw ??= 'an invalid content-length, or more than one';
        }
        this.contentLength = length;
        return true;
      }
      case 'transfer-encoding':
        if (!isChunked(value) || this.transferEncoding !== undefined) {
          this.flaw ??= 'a transfer-encoding that is not exactly one "chunked"';
        }
        this.transferEncoding = value;
        return true;
      case 'connection': {
        const { closes, keepsAlive } = parseConnection(value);
        this.closes ||= closes;
        this.keepsAlive ||= keepsAlive;
        // Other options are names of fields, which are for this connection only [RFC 9110, 7.6.1].
        return (closes || keepsAlive) && !value.includes(',');
      }
      default:
        return false;
    }
  }

  protected checkFraming(minorVersion: number): void {
    if (this.transferEncoding !== undefined) {
      if (this.contentLength !== undefined) {
        this.flaw ??= 'both a content-length and a transfer-encoding';
      } else if (minorVersion === 0) {
        // HTTP/1.0 has no transfer codings [RFC 9112, 6.1].
        this.flaw ??= 'a transfer-encoding in HTTP/1.0';
      }
    }
  }

  protected persists(minorVersion: number): boolean {
    return !this.closes && (minorVersion === 1 || this.keepsAlive);
  }
}

const noFields: readonly string[] = [];

export class RequestFields extends Framing {
  #hostCount = 0;
  #expectation: RequestHead['expectation'] = 'none';
  #fields: string[] | undefined;

  take(name: FieldName, value: string): void {
    if (this.takeFraming(name, value)) return;
    switch (name) {
      case 'host':
        this.#hostCount += 1;
        if (this.#hostCount > 1) {
          this.flaw ??= 'two host fields';
        } else if (!isAuthority(value)) {
          this.flaw ??= 'an invalid host';
        }
        break;
      case 'expect':
        this.#expectation =
          value.toLowerCase() === '100-continue' && this.#expectation === 'none' ? 'continue' : 'unknown';
        return;
      case 'upgrade':
      case 'keep-alive':
        return;
    }
    (this.#fields ??= []).push(name, value);
  }

  /** Checks the fields together with the request line. Returns the head, or its flaw. */
  finish(method: string, target: string, minorVersion: number, requiresHost = true): RequestHead | Flaw {
    this.checkFraming(minorVersion);
    if (this.#hostCount === 0 && minorVersion === 1 && requiresHost) this.flaw ??= 'no host';
    if (!isTarget(target, method)) this.flaw ??= 'an invalid target';
    if (this.flaw !== undefined) return { kind: 'invalid-head', reason: this.flaw };
    return {
      method,
      target,
      bodyLength: this.transferEncoding === undefined ? (this.contentLength ?? 0) : 'chunked',
      // An HTTP/1.0 client would take `100 Continue` for its reply [RFC 9110, 10.1.1].
      expectation: this.#expectation === 'continue' && minorVersion === 0 ? 'none' : this.#expectation,
      persists: this.persists(minorVersion),
      version: minorVersion === 0 ? '1.0' : '1.1',
      fields: this.#fields ?? noFields,
    };
  }
}

export class AnswerFields extends Framing {
  #keepAliveSeconds: number | undefined;

  take(name: FieldName, value: string): void {
    if (!this.takeFraming(name, value) && name === 'keep-alive') this.#keepAliveSeconds = parseKeepAliveSeconds(value);
  }

  finish(status: number, minorVersion: number): AnswerHead | Flaw {
    this.checkFraming(minorVersion);
    if (status < 100 || status === 101) {
      this.flaw ??= `the unexpected status ${status}`;
    } else if (status < 200 && minorVersion === 0) {
      this.flaw ??= 'an interim status in HTTP/1.0';
    }
    if (this.flaw !== undefined) return { kind: 'invalid-head', reason: `an answer with ${this.flaw}` };
    const announced = this.transferEncoding === undefined ? (this.contentLength ?? 'until-close') : 'chunked';
    // A 204 or 304 has no body, whatever its fields announce [RFC 9112, 6.3]. A server may send the announced body of a 204
    // anyway, so such a connection is not reused. A 304 may correctly announce a length and send no body.
    const hasNoBody = status === 204 || status === 304;
    const mayHaveBody = status === 204 && announced !== 0 && announced !== 'until-close';
    return {
      status,
      bodyLength: status < 200 ? 'interim' : hasNoBody ? 0 : announced,
      persists: !mayHaveBody && this.persists(minorVersion),
      keepAliveSeconds: this.#keepAliveSeconds,
    };
  }
}
