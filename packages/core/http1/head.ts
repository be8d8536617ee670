// The heads of requests and answers: what is known of a message when its head has ended. Each field that counts is
// taken as it comes; what the whole adds up to, or that it is flawed, is decided once, at the head's end [D18, D27].

import type { FieldName } from './fields.ts';
import {
  isAuthority,
  isChunked,
  isTarget,
  parseConnection,
  parseContentLength,
  parseKeepAliveSeconds,
} from './grammar.ts';

/** Why a message cannot be read; `reason` is for the log. */
export interface Flaw {
  readonly kind: 'malformed' | 'head-too-large';
  readonly reason: string;
}

/** How long a body is: so many bytes (0: there is none), in chunks, or up to the end of the connection. */
export type BodyLength = number | 'chunked' | 'until-close';

export interface RequestHead {
  readonly method: string;
  readonly target: string;
  readonly bodyLength: number | 'chunked';
  /** `unknown` is anything but one `100-continue` [RFC 9110, 10.1.1]. */
  readonly expectation: 'none' | 'continue' | 'unknown';
  /** The client does not ask for the connection to be closed [RFC 9112, 9.3]. */
  readonly persists: boolean;
  /** Of the protocol, as OpenTelemetry writes it. */
  readonly version: '1.0' | '1.1' | '2';
  /** The other fields that somebody here reads, in order, as name, value, name, value. */
  readonly fields: readonly string[];
}

export interface AnswerHead {
  readonly status: number;
  /** `interim` where another head follows. */
  readonly bodyLength: BodyLength | 'interim';
  readonly persists: boolean;
  /** For how long the backend keeps an idle connection, in seconds; undefined where it does not say. */
  readonly keepAliveSeconds: number | undefined;
}

/** The first value of `name` among a head's `fields`; undefined without any. */
export function fieldValue(fields: readonly string[], name: FieldName): string | undefined {
  for (let index = 0; index < fields.length; index += 2) {
    if (fields[index] === name) {
      return fields[index + 1];
    }
  }
  return undefined;
}

/** The value of `name` among a head's `fields`; undefined without any, or with more than one. */
export function onlyFieldValue(fields: readonly string[], name: FieldName): string | undefined {
  let value: string | undefined;
  for (let index = 0; index < fields.length; index += 2) {
    if (fields[index] === name) {
      if (value !== undefined) {
        return undefined;
      }
      value = fields[index + 1];
    }
  }
  return value;
}

/** All values of `name` among a head's `fields`, in order. */
export function fieldValues(fields: readonly string[], name: FieldName): string[] {
  return fields.filter((_, index) => index % 2 === 1 && fields[index - 1] === name);
}

// What says where a message ends, for both roles.
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
          this.flaw ??= 'a content-length that is no number, or two of them';
        }
        this.contentLength = length;
        return true;
      }
      case 'transfer-encoding':
        if (!isChunked(value) || this.transferEncoding !== undefined) {
          this.flaw ??= 'a transfer-encoding other than one "chunked"';
        }
        this.transferEncoding = value;
        return true;
      case 'connection': {
        const { closes, keepsAlive } = parseConnection(value);
        this.closes ||= closes;
        this.keepsAlive ||= keepsAlive;
        return true;
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
        // It knows no codings [RFC 9112, 6.1].
        this.flaw ??= 'a transfer-encoding in HTTP/1.0';
      }
    }
  }

  protected persists(minorVersion: number): boolean {
    return !this.closes && (minorVersion === 1 || this.keepsAlive);
  }
}

const noFields: readonly string[] = [];

/** Takes the fields of one request's head. */
export class RequestFields extends Framing {
  #hostCount = 0;
  #expectation: RequestHead['expectation'] = 'none';
  #fields: string[] | undefined;

  take(name: FieldName, value: string): void {
    if (this.takeFraming(name, value)) {
      return;
    }
    switch (name) {
      case 'host':
        this.#hostCount += 1;
        if (this.#hostCount > 1) {
          this.flaw ??= 'two host fields';
        } else if (!isAuthority(value)) {
          this.flaw ??= 'a host that is none';
        }
        break;
      case 'expect':
        this.#expectation =
          value.toLowerCase() === '100-continue' && this.#expectation === 'none' ? 'continue' : 'unknown';
        return;
      case 'upgrade':
        // Not spoken here; but what follows may be in the other protocol [RFC 9110, 7.8].
        this.closes = true;
        return;
      case 'keep-alive':
        return;
    }
    (this.#fields ??= []).push(name, value);
  }

  /** The head that they make with this request line, or what is wrong with it. */
  finish(method: string, target: string, minorVersion: number): RequestHead | Flaw {
    this.checkFraming(minorVersion);
    if (this.#hostCount === 0 && minorVersion === 1) {
      this.flaw ??= 'no host';
    }
    if (!isTarget(target, method)) {
      this.flaw ??= 'a target that is none';
    }
    if (this.flaw !== undefined) {
      return { kind: 'malformed', reason: this.flaw };
    }
    return {
      method,
      target,
      bodyLength: this.transferEncoding === undefined ? (this.contentLength ?? 0) : 'chunked',
      // A client of HTTP/1.0 knows no 100: it would take it for its reply [RFC 9110, 10.1.1].
      expectation: this.#expectation === 'continue' && minorVersion === 0 ? 'none' : this.#expectation,
      persists: this.persists(minorVersion),
      version: minorVersion === 0 ? '1.0' : '1.1',
      fields: this.#fields ?? noFields,
    };
  }
}

/** Takes the fields of one answer's head. */
export class AnswerFields extends Framing {
  #keepAliveSeconds: number | undefined;

  take(name: FieldName, value: string): void {
    if (!this.takeFraming(name, value) && name === 'keep-alive') {
      this.#keepAliveSeconds = parseKeepAliveSeconds(value);
    }
  }

  finish(status: number, minorVersion: number): AnswerHead | Flaw {
    this.checkFraming(minorVersion);
    if (status < 100 || status === 101) {
      this.flaw ??= `the status ${status}, which nobody asked for`;
    } else if (status < 200 && minorVersion === 0) {
      this.flaw ??= 'an interim status in HTTP/1.0';
    }
    if (this.flaw !== undefined) {
      return { kind: 'malformed', reason: `an answer with ${this.flaw}` };
    }
    const announced = this.transferEncoding === undefined ? (this.contentLength ?? 'until-close') : 'chunked';
    // Answers that have no body whatever they say [RFC 9112, 6.3]. Behind a 204 that announces one it might come all the
    // same; a 304 says how long the body would be.
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
