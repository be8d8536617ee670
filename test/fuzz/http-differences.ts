// The comparison of our readers of HTTP/1.1 with Node's strict parser, and the list of known differences. Any other
// difference is a finding.

import { METHODS } from 'node:http';
import { fieldNames, type FieldName } from '../../packages/core/http1/fields.ts';
import type { AnswerHead, RequestHead } from '../../packages/core/http1/head.ts';
import type { JudgedMessage, Judgement } from '../helpers/http-oracle.ts';
import type { Message, Reading } from '../helpers/http-readings.ts';

export interface Difference {
  /** `accepted` or `refused`: by our reader, but not by Node's. Otherwise the part of a message that differs. */
  readonly kind: 'accepted' | 'refused' | 'start' | 'fields' | 'body' | 'end' | 'persists' | 'count';
  /** Node's error. */
  readonly error: string | undefined;
  /** Our reason to refuse the message. */
  readonly flaw: string | undefined;
  /** The bytes from the start of the message on. */
  readonly text: string;
  /** The bytes of earlier messages. */
  readonly before: string;
  readonly ours: Message<RequestHead | AnswerHead> | undefined;
  readonly judged: JudgedMessage | undefined;
}

export interface KnownDifference {
  readonly name: string;
  /** Why our reading is right, with the rule. */
  readonly why: string;
  readonly applies: (difference: Difference) => boolean;
}

const notCompared: ReadonlySet<string> = new Set<FieldName>([
  // Compared by their effect on the head.
  'connection',
  'content-length',
  'transfer-encoding',
  'expect',
  'upgrade',
  'keep-alive',
]);
const compared = new Set<string>(fieldNames.filter((name) => !notCompared.has(name)));

function isRequest(head: RequestHead | AnswerHead): head is RequestHead {
  return 'method' in head;
}

function compareMessage(
  ours: Message<RequestHead | AnswerHead>,
  judged: JudgedMessage,
): Difference['kind'] | undefined {
  const { head } = ours;
  const start = isRequest(head) ? `${head.method} ${head.target}` : String(head.status);
  if (start !== judged.start) {
    return 'start';
  }
  if (isRequest(head)) {
    const fields = judged.fields.filter(([name]) => compared.has(name)).flat();
    if (fields.join('\0') !== head.fields.join('\0') || (head.version === '1.0') !== judged.isOld) {
      return 'fields';
    }
    if (head.method === 'CONNECT') {
      // Node reads the bytes that follow as the tunnel's.
      return undefined;
    }
  }
  // A message whose body ends with the connection is the last, whatever its head says.
  const persists = head.persists && head.bodyLength !== 'until-close';
  if (judged.persists !== undefined && persists !== judged.persists) {
    return 'persists';
  }
  const shared = Math.min(ours.body.length, judged.body.length);
  if (!ours.body.subarray(0, shared).equals(judged.body.subarray(0, shared))) {
    return 'body';
  }
  return undefined;
}

/** The first difference between the readings of one connection's bytes; undefined if there is none. */
export function compare(
  bytes: Buffer,
  reading: Reading<RequestHead | AnswerHead>,
  judgement: Judgement,
): Difference | undefined {
  const { messages, flaw, starts } = reading;
  const { error } = judgement;
  for (let index = 0; ; index += 1) {
    const ours = messages[index];
    const judged = judgement.messages[index];
    const difference = (kind: Difference['kind']): Difference => ({
      kind,
      error,
      flaw: flaw?.reason,
      before: bytes.toString('latin1', 0, starts[index]),
      text: bytes.toString('latin1', starts[index] ?? bytes.length),
      ours,
      judged,
    });
    if (ours === undefined && judged === undefined) {
      // Both readers have refused the head or wait for more bytes, or one has refused it and the other waits.
      return undefined;
    }
    if (ours === undefined) {
      return difference(flaw === undefined ? 'count' : 'refused');
    }
    if (judged === undefined) {
      return difference(error === undefined ? 'count' : 'accepted');
    }
    const kind = compareMessage(ours, judged);
    if (kind !== undefined) {
      return difference(kind);
    }
    const isLast = !ours.head.persists || ('method' in ours.head && ours.head.method === 'CONNECT');
    if (ours.isWhole !== judged.isWhole || (!ours.isWhole && ours.body.length !== judged.body.length)) {
      if (isLast && 'method' in ours.head && ours.head.method === 'CONNECT') {
        return undefined;
      }
      const isOursRefused = !ours.isWhole && flaw !== undefined;
      const isTheirsRefused = !judged.isWhole && error !== undefined;
      if (isOursRefused && isTheirsRefused) {
        return undefined;
      }
      return difference(isOursRefused ? 'refused' : isTheirsRefused ? 'accepted' : 'end');
    }
    if (!ours.isWhole) {
      if ((flaw === undefined) === (error === undefined)) {
        return undefined;
      }
      return difference(flaw === undefined ? 'accepted' : 'refused');
    }
    // Only the first answer is compared: there was one request.
    if (isLast || !('method' in ours.head)) {
      return undefined;
    }
  }
}

// The first line, without empty lines before it.
function firstLine(text: string): string {
  return /^[\r\n]*([^\r\n]*)/.exec(text)?.[1] ?? '';
}

function valuesOf(difference: Difference, name: string): string[] {
  const { judged } = difference;
  return judged === undefined ? [] : judged.fields.filter((field) => field[0] === name).map(([, value]) => value);
}

function isHeadFlaw({ flaw }: Difference, reason: string): boolean {
  return flaw === reason || flaw === `an answer with ${reason}`;
}

const codings: readonly KnownDifference[] = [
  {
    name: 'transfer codings other than one "chunked"',
    why: 'with other codings, parsers disagree on the end of the body: RFC 9112, 6.1 [D18, D27]',
    applies: (difference) =>
      difference.kind === 'refused' &&
      isHeadFlaw(difference, 'a transfer-encoding other than one "chunked"') &&
      valuesOf(difference, 'transfer-encoding').join().toLowerCase() !== 'chunked',
  },
  {
    name: 'a transfer coding in HTTP/1.0',
    why: 'HTTP/1.0 has no codings, so its framing is faulty: RFC 9112, 6.1 [D18, D27]',
    applies: (difference) =>
      difference.kind === 'refused' &&
      isHeadFlaw(difference, 'a transfer-encoding in HTTP/1.0') &&
      difference.judged?.isOld === true &&
      valuesOf(difference, 'transfer-encoding').length > 0,
  },
];

// Node's errors about trailers that it treats like fields of the head.
const trailerErrors: ReadonlySet<string | undefined> = new Set([
  'HPE_CLOSED_CONNECTION',
  'HPE_INVALID_CONTENT_LENGTH',
  'HPE_INVALID_TRANSFER_ENCODING',
  'HPE_UNEXPECTED_CONTENT_LENGTH',
]);
const trailerThatFrames =
  /(?:^|\n)0+(?:;[^\n]*)?\r\n(?:[^\r\n]+\r\n)*(?:(?:proxy-)?connection|content-length|transfer-encoding):/i;

const chunks: readonly KnownDifference[] = [
  {
    name: 'trailer fields that would change the framing',
    why: 'our reader checks and drops trailers, but Node applies them: RFC 9110, 6.5.1',
    applies: ({ kind, error, before, text }) =>
      kind === 'accepted' && trailerErrors.has(error) && trailerThatFrames.test(before + text),
  },
  {
    name: 'invalid chunk extensions',
    why: 'Node accepts an empty name, and more: RFC 9112, 7.1.1 [D18, D27]',
    applies: ({ kind, flaw }) => kind === 'refused' && flaw === 'an invalid chunk extension',
  },
  {
    name: 'chunks of more than 2^48 bytes, and more than 64 digits',
    why: 'no client sends them, and their size may not be an exact number: RFC 9112, 7.1 [D18, D27]',
    applies: ({ kind, flaw, text }) =>
      kind === 'refused' &&
      flaw === 'a chunk size over the limit' &&
      /\r\n(?:0*[1-9a-f][0-9a-f]{12}|[0-9a-f]{65})/i.test(text),
  },
  {
    name: 'proxy-connection',
    why: 'not in any standard; Node reads it as connection: RFC 9112, C.2.2',
    applies: (difference) =>
      difference.kind === 'persists' &&
      difference.ours?.head.persists !== difference.judged?.persists &&
      valuesOf(difference, 'proxy-connection').length > 0,
  },
];

const longLength: KnownDifference = {
  name: 'a content-length of more than 15 digits',
  why: 'no client sends a body of that length, and the length may not be an exact number: RFC 9110, 8.6 [D18, D27]',
  applies: (difference) =>
    difference.kind === 'refused' &&
    isHeadFlaw(difference, 'an invalid content-length, or more than one') &&
    valuesOf(difference, 'content-length').some((value) => /^0*[1-9]\d{15,}$/.test(value)),
};

const tabAfterValue: KnownDifference = {
  name: 'a tab after a length or a coding',
  why: 'white space after a value is not part of the value; Node refuses it in a request, and misses the chunks of an answer: RFC 9110, 5.5',
  applies: ({ kind, text }) =>
    (kind === 'accepted' || kind === 'persists') &&
    /\r\n(?:transfer-encoding|content-length):[ \t]*\w+[ \t]*\t[ \t]*\r\n/i.test(text),
};

const otherVersion: KnownDifference = {
  name: 'HTTP/0.9 and HTTP/2.0',
  why: 'messages of these versions have another form: RFC 9112, 2.3 [D18, D27]',
  applies: ({ kind, flaw, text }) =>
    kind === 'refused' &&
    (flaw === 'an answer that is not HTTP/1.1' || flaw === 'a version that is neither HTTP/1.0 nor HTTP/1.1') &&
    /HTTP\/(?:0\.9|2\.0)/.test(text),
};

const closeAndKeepAlive: KnownDifference = {
  name: 'both close and keep-alive',
  why: 'close takes precedence; Node reports that the connection goes on, and refuses the next message: RFC 9112, 9.3',
  applies: (difference) => {
    const options = valuesOf(difference, 'connection').join().toLowerCase();
    return (
      difference.kind === 'persists' &&
      difference.judged?.persists === true &&
      /\bclose\b/.test(options) &&
      options.includes('keep-alive')
    );
  },
};

const inBoth: readonly KnownDifference[] = [
  ...codings,
  ...chunks,
  longLength,
  tabAfterValue,
  otherVersion,
  closeAndKeepAlive,
];

export const knownRequestDifferences: readonly KnownDifference[] = [
  ...inBoth,
  {
    name: 'a method unknown to Node',
    why: 'any token is a method; the operation table answers 405: RFC 9110, 9.1 [D6]',
    applies: ({ kind, error, text }) => {
      const method = /^[\r\n]*([A-Z0-9_-]*)/.exec(text)?.[1] ?? '';
      return kind === 'accepted' && error === 'HPE_INVALID_METHOD' && !METHODS.includes(method);
    },
  },
  {
    name: 'the method PRI',
    why: 'Node reads it as the preface of HTTP/2; in HTTP/1.1 it is an unknown method: RFC 9113, 3.4 [D6]',
    applies: ({ kind, error, text }) =>
      /^[\r\n]*PRI /.test(text) &&
      // In HTTP/1.0 Node reports neither an error nor a request.
      (kind === 'count' || (kind === 'accepted' && error === 'HPE_INVALID_VERSION')),
  },
  {
    name: 'no host field, or two host fields',
    why: 'Node requires a host only if an option is set, and uses the first of two: RFC 9112, 3.2 [D27]',
    applies: (difference) =>
      difference.kind === 'refused' &&
      ((difference.flaw === 'no host' && valuesOf(difference, 'host').length === 0) ||
        (difference.flaw === 'two host fields' && valuesOf(difference, 'host').length > 1)),
  },
  {
    name: 'an invalid host',
    why: 'Node does not check the host: RFC 9110, 7.2 [D27]',
    applies: (difference) =>
      difference.kind === 'refused' &&
      difference.flaw === 'an invalid host' &&
      !/^[a-z0-9.-]*$|^[a-z0-9.-]+:\d{1,4}$/i.test(valuesOf(difference, 'host')[0] ?? ''),
  },
  {
    name: 'an invalid target',
    why: 'the target has a fragment, no host, or more than a host before the path: RFC 9112, 3.2 [D27]',
    applies: ({ kind, flaw, judged }) =>
      kind === 'refused' &&
      flaw === 'an invalid target' &&
      judged !== undefined &&
      !/^(?!CONNECT)\S+ \/[^#]*$|^CONNECT [a-z0-9.-]+(?::\d{1,4})?$/i.test(judged.start),
  },
  {
    name: 'no version, or not exactly one space before the version',
    why: 'it is HTTP/0.9, or it has spaces that other parsers read as part of the target: RFC 9112, 3 [D27]',
    applies: ({ kind, flaw, text }) =>
      kind === 'refused' &&
      (flaw === 'an invalid target, or no version after it' ||
        flaw === 'a version that is neither HTTP/1.0 nor HTTP/1.1') &&
      !/^[A-Z-]+ \S+ HTTP\/1\.[01]$/.test(firstLine(text)),
  },
  {
    name: 'empty lines that do not end in CR LF',
    why: 'Node skips single CR and LF too; only CR LF is an empty line: RFC 9112, 2.2 [D27]',
    applies: ({ kind, flaw, text }) =>
      kind === 'refused' &&
      (flaw === 'an empty line that does not end in CR LF' || flaw === 'an invalid method') &&
      /^(?:\r\n)*(?:\n|\r[^\n])/.test(text),
  },
  {
    name: 'errors after an upgrade',
    why: 'Node reports no error after an upgrade that it does not perform: RFC 9110, 7.8 [D27]',
    applies: (difference) =>
      difference.kind === 'refused' &&
      difference.error === undefined &&
      valuesOf(difference, 'upgrade').length > 0 &&
      difference.ours?.isWhole === false,
  },
  {
    name: 'a request for an upgrade closes the connection',
    why: 'the bytes that follow may be in the other protocol: RFC 9110, 7.8',
    applies: (difference) =>
      difference.kind === 'persists' &&
      difference.judged?.persists === true &&
      valuesOf(difference, 'upgrade').length > 0,
  },
];
export const knownAnswerDifferences: readonly KnownDifference[] = [
  ...inBoth,
  {
    name: 'a transfer coding in an interim answer',
    why: 'an interim answer has no body and so no coding; Node ignores the coding: RFC 9112, 6.1 [D18]',
    applies: (difference) =>
      difference.kind === 'refused' &&
      (isHeadFlaw(difference, 'a transfer-encoding other than one "chunked"') ||
        isHeadFlaw(difference, 'both a content-length and a transfer-encoding')) &&
      /(?:^|\r\n\r\n)HTTP\/1\.1 1\d\d[^]*\r\ntransfer-encoding:/i.test(difference.text),
  },
  {
    name: 'an interim answer with connection: close',
    why: 'its fields do not apply to the final answer: RFC 9110, 15.2 [D15]',
    applies: ({ kind, error, text }) =>
      kind === 'accepted' &&
      error === 'HPE_CLOSED_CONNECTION' &&
      /^(?:HTTP[^]*?\r\n\r\n)*?HTTP\/1\.1 1\d\d[^]*?\r\n(?:proxy-)?connection:[^\r]*close/i.test(text),
  },
  {
    name: 'a 204 that announces a body closes the connection',
    why: 'Node ignores the body, but other parsers might read it: RFC 9112, 6.3 [D18]',
    applies: (difference) =>
      difference.kind === 'persists' &&
      difference.judged?.start === '204' &&
      difference.judged.persists === true &&
      ['content-length', 'transfer-encoding'].some((name) => valuesOf(difference, name).length > 0),
  },
  {
    name: 'a status below 100, or 101',
    why: 'below 100 is not a status, and 101 switches to a protocol that was not offered: RFC 9110, 15 [D18]',
    applies: ({ kind, judged }) =>
      kind === 'refused' && judged !== undefined && (Number(judged.start) < 100 || judged.start === '101'),
  },
  {
    name: 'a control character in a reason',
    why: 'a reason phrase is text: RFC 9112, 4 [D18]',
    applies: ({ kind, flaw, text }) =>
      kind === 'refused' &&
      flaw === 'an answer with a control character in its status line' &&
      // eslint-disable-next-line no-control-regex -- the flaw itself
      /(?:^|\r\n\r\n)HTTP\/1\.[01] \d\d\d [^\r\n]*[\0-\x08\x0b-\x1f\x7f]/.test(text),
  },
  {
    name: 'an interim answer in HTTP/1.0',
    why: 'HTTP/1.0 has no interim answers: RFC 9110, 15.2 [D18]',
    applies: ({ kind, flaw, text }) =>
      kind === 'refused' && flaw === 'an answer with an interim status in HTTP/1.0' && /HTTP\/1\.0 1\d\d/.test(text),
  },
  {
    name: 'empty lines before an answer',
    why: 'only a server skips empty lines: RFC 9112, 2.2 [D18]',
    applies: ({ kind, flaw, text }) =>
      kind === 'refused' && flaw === 'an answer that is not HTTP/1.1' && /(?:^|\r\n\r\n)[\r\n]+HTTP/.test(text),
  },
];
