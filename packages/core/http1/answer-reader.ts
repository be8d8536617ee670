// Reads answers: the status line [RFC 9112, 4] and the fields of an answer.

import { carriageReturn, digitZero, isVersionByte, space, textBytes, versionLength } from './grammar.ts';
import { AnswerFields, type AnswerHead, type Flaw } from './head.ts';
import { MessageReader, type RepeatedValues } from './reader.ts';
import { RepeatedText } from './repeated-text.ts';

const statusStart = versionLength + 1;
const statusEnd = statusStart + 3;

const repeatedInAnswers: RepeatedValues = {
  connection: new RepeatedText(),
  'keep-alive': new RepeatedText(),
  'content-length': new RepeatedText(),
  'transfer-encoding': new RepeatedText(),
};

/** Reads answers to requests other than HEAD and CONNECT. Interim answers are skipped [RFC 9110, 15.2]. */
export class AnswerReader extends MessageReader<AnswerHead> {
  protected readonly repeatedValues = repeatedInAnswers;
  protected readonly isRequest = false;
  #status = 0;
  protected fields = new AnswerFields();

  protected readStartLine(bytes: Buffer, from: number, end: number): number {
    let at = from;
    for (; at < end && this.sinceMark(at) < statusEnd; at += 1) {
      if (!this.#readStatus(bytes[at] ?? 0, this.sinceMark(at))) return this.#failAt(at);
    }
    // If the reason phrase is missing, the space before it may be missing too.
    if (at < end && this.sinceMark(at) === statusEnd && bytes[at] !== carriageReturn) {
      if (bytes[at] !== space) return this.#failAt(at);
      at += 1;
    }
    while (at < end && textBytes[bytes[at] ?? 0] === 1) {
      at += 1;
    }
    if (at < end) {
      if (bytes[at] !== carriageReturn) {
        this.fail('an answer with a control character in its status line');
        return at;
      }
      this.endStartLine();
      at += 1;
    }
    return at;
  }

  // Reads one byte of `HTTP/1.1 200`. Returns false if the byte is invalid.
  #readStatus(byte: number, index: number): boolean {
    if (index < versionLength) {
      this.minorVersion = byte - digitZero;
      return isVersionByte(byte, index);
    }
    if (index < statusStart) return byte === space;
    const digit = byte - digitZero;
    this.#status = index === statusStart ? digit : this.#status * 10 + digit;
    return digit >= 0 && digit <= 9;
  }

  #failAt(at: number): number {
    this.fail('an answer that is not HTTP/1.1');
    return at;
  }

  protected finishHead(): AnswerHead | Flaw {
    const { fields } = this;
    this.fields = new AnswerFields();
    return fields.finish(this.#status, this.minorVersion);
  }
}
