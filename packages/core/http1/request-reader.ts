// Reads requests: the request line [RFC 9112, 3] and the fields of a request.

import {
  carriageReturn,
  digitZero,
  isVersionByte,
  methodBytes,
  methodBytesMax,
  space,
  targetBytes,
  versionLength,
} from './grammar.ts';
import { RequestFields, type Flaw, type RequestHead } from './head.ts';
import { MessageReader, type RepeatedValues, type Sink } from './reader.ts';
import { KnownText, RepeatedText } from './repeated-text.ts';

// The part of the request line to which the next byte belongs.
const partMethod = 0;
const partTarget = 1;
const partVersion = 2;

// The beginning of requests in another protocol: a first byte [RFC 8446, 5.1], and words in place of a method.
const tlsByte = 0x16;
const foreign = new Map([
  ['PROXY', 'the PROXY protocol'],
  ['PRI', 'HTTP/2 without TLS'],
]);

const methods = new KnownText(['GET', 'PUT', 'POST', 'DELETE']);
const repeatedInRequests: RepeatedValues = {
  host: new RepeatedText(),
  connection: new RepeatedText(),
  'user-agent': new RepeatedText(),
  'content-length': new RepeatedText(),
  'transfer-encoding': new RepeatedText(),
  'x-forwarded-for': new RepeatedText(),
};

export class RequestReader extends MessageReader<RequestHead> {
  protected readonly repeatedValues = repeatedInRequests;
  protected readonly isRequest = true;
  #part = partMethod;
  #method = '';
  #target = '';
  protected fields = new RequestFields();
  readonly #requiresHost: boolean;

  constructor(sink: Sink<RequestHead>, headBytesMax: number, requiresHost = true) {
    super(sink, headBytesMax);
    this.#requiresHost = requiresHost;
  }

  protected readStartLine(bytes: Buffer, from: number, end: number): number {
    let at = from;
    if (this.#part === partMethod) {
      while (at < end && methodBytes[bytes[at] ?? 0] === 1) {
        at += 1;
      }
      const length = this.sinceMark(at);
      if (length > methodBytesMax || (at < end && (bytes[at] !== space || length === 0))) {
        this.fail(bytes[at] === tlsByte && length === 0 ? 'TLS on a port without TLS' : 'an invalid method');
        return at;
      }
      if (at === end) return at;
      this.#method = methods.read(bytes, at - length, at);
      at += 1;
      this.setMark(at);
      this.#part = partTarget;
    }
    if (this.#part === partTarget) {
      while (at < end && targetBytes[bytes[at] ?? 0] === 1) {
        at += 1;
      }
      if (at === end) return at;
      if (bytes[at] !== space || this.sinceMark(at) === 0) {
        this.fail('an invalid target, or no version after it');
        return at;
      }
      this.#target = this.textSinceMark(bytes, at);
      at += 1;
      this.setMark(at);
      this.#part = partVersion;
    }
    if (this.#part === partVersion) {
      for (; at < end && this.sinceMark(at) < versionLength; at += 1) {
        if (!isVersionByte(bytes[at] ?? 0, this.sinceMark(at))) {
          this.fail(foreign.get(this.#method) ?? 'a version that is neither HTTP/1.0 nor HTTP/1.1');
          return at;
        }
        this.minorVersion = (bytes[at] ?? 0) - digitZero;
      }
      if (at < end) {
        if (bytes[at] !== carriageReturn) {
          this.fail('a request line that continues after its version');
          return at;
        }
        this.#part = partMethod;
        this.endStartLine();
        at += 1;
      }
    }
    return at;
  }

  protected finishHead(): RequestHead | Flaw {
    const { fields } = this;
    this.fields = new RequestFields();
    return fields.finish(this.#method, this.#target, this.minorVersion, this.#requiresHost);
  }
}
