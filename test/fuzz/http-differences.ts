// The comparison of our readers of HTTP/1.1 with Node's strict parser, and the list of known differences. Any other
// difference is a finding.

import { METHODS } from 'node:http';
import { fieldNames } from '../../packages/core/http1/fields.ts';
import type { AnswerHead, RequestHead } from '../../packages/core/http1/head.ts';
import type { JudgedMessage, Judgement } from './http-oracle.ts';
import type { Message, Reading } from '../wire/http-readings.ts';

export interface Difference {
  /** `accepted`: only our reader accepts the message. `refused`: only our reader refuses it. Others: the part that differs. */
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

/** `why`: why our reading is right, with the rule. `flaws`: our reasons to refuse the message; undefined: any. */
type Row = readonly [
  kind: Difference['kind'],
  name: string,
  why: string,
  flaws: readonly string[] | undefined,
  applies: (difference: Difference) => boolean,
];

// Other fields are compared only by their effect on the head.
const compared = new Set<string>(fieldNames);
for (const name of ['connection', 'content-length', 'transfer-encoding', 'expect', 'upgrade', 'keep-alive']) {
  compared.delete(name);
}

function isRequest(head: RequestHead | AnswerHead): head is RequestHead {
  return 'method' in head;
}

function compareMessage(
  ours: Message<RequestHead | AnswerHead>,
  judged: JudgedMessage,
): Difference['kind'] | undefined {
  const { head } = ours;
  const start = isRequest(head) ? `${head.method} ${head.target}` : String(head.status);
  if (start !== judged.start) return 'start';
  if (isRequest(head)) {
    const fields = judged.fields.filter(([name]) => compared.has(name)).flat();
    // `connection` is kept only if it names fields, so it is compared by its effect on the head.
    const own = head.fields.filter((_, index) => head.fields[index - (index % 2)] !== 'connection');
    if (fields.join('\0') !== own.join('\0') || (head.version === '1.0') !== judged.isOld) return 'fields';
    if (head.method === 'CONNECT') {
      // Node treats the bytes that follow as data of the tunnel, so there is no body to compare.
      return undefined;
    }
  }
  // A message whose body ends with the connection is the last, whatever its head says.
  const persists = head.persists && head.bodyLength !== 'until-close';
  if (judged.persists !== undefined && persists !== judged.persists) return 'persists';
  const shared = Math.min(ours.body.length, judged.body.length);
  if (!ours.body.subarray(0, shared).equals(judged.body.subarray(0, shared))) return 'body';
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
      // Each of the two readers has refused the head or waits for more bytes.
      return undefined;
    }
    if (ours === undefined) return difference(flaw === undefined ? 'count' : 'refused');
    if (judged === undefined) return difference(error === undefined ? 'count' : 'accepted');
    const kind = compareMessage(ours, judged);
    if (kind !== undefined) return difference(kind);
    const isLast = !ours.head.persists || ('method' in ours.head && ours.head.method === 'CONNECT');
    if (ours.isWhole !== judged.isWhole || (!ours.isWhole && ours.body.length !== judged.body.length)) {
      if (isLast && 'method' in ours.head && ours.head.method === 'CONNECT') return undefined;
      const isOursRefused = !ours.isWhole && flaw !== undefined;
      const isTheirsRefused = !judged.isWhole && error !== undefined;
      if (isOursRefused && isTheirsRefused) return undefined;
      return difference(isOursRefused ? 'refused' : isTheirsRefused ? 'accepted' : 'end');
    }
    if (!ours.isWhole) {
      if ((flaw === undefined) === (error === undefined)) return undefined;
      return difference(flaw === undefined ? 'accepted' : 'refused');
    }
    // Only the first answer is compared, because there was only one request.
    if (isLast || !('method' in ours.head)) return undefined;
  }
}

function valuesOf(difference: Difference, name: string): string[] {
  const { judged } = difference;
  return judged === undefined ? [] : judged.fields.filter((field) => field[0] === name).map(([, value]) => value);
}

const otherCoding = 'a transfer-encoding that is not exactly one "chunked"';
const badVersion = 'a version that is neither HTTP/1.0 nor HTTP/1.1';

// Node's errors about trailers, because Node treats them like fields of the head.
const trailerErrors: ReadonlySet<string | undefined> = new Set([
  ...['HPE_CLOSED_CONNECTION', 'HPE_INVALID_CONTENT_LENGTH'],
  ...['HPE_INVALID_TRANSFER_ENCODING', 'HPE_UNEXPECTED_CONTENT_LENGTH'],
]);
const trailerThatFrames =
  /(?:^|\n)0+(?:;[^\n]*)?\r\n(?:[^\r\n]+\r\n)*(?:(?:proxy-)?connection|content-length|transfer-encoding):/i;
const hasTabAfterFraming = ({ text }: Difference): boolean =>
  /\r\n(?:transfer-encoding|content-length):[ \t]*\w+[ \t]*\t[ \t]*\r\n/i.test(text);
const whyTab =
  'white space after a value is not part of the value; Node refuses it in a request, and misses the chunks of an answer: RFC 9110, 5.5';

const inBoth: readonly Row[] = [
  ['refused', 'transfer codings that are not exactly one "chunked"', 'with other codings, parsers disagree on the end of the body: RFC 9112, 6.1 [D18, D27]',
    [otherCoding], (difference) => valuesOf(difference, 'transfer-encoding').join().toLowerCase() !== 'chunked'],
  ['refused', 'a transfer coding in HTTP/1.0', 'HTTP/1.0 has no codings, so its framing is faulty: RFC 9112, 6.1 [D18, D27]',
    ['a transfer-encoding in HTTP/1.0'], (difference) => difference.judged?.isOld === true && valuesOf(difference, 'transfer-encoding').length > 0],
  ['accepted', 'trailer fields that would change the framing', 'our reader checks and drops trailers, but Node applies them: RFC 9110, 6.5.1',
    undefined, ({ error, before, text }) => trailerErrors.has(error) && trailerThatFrames.test(before + text)],
  ['refused', 'invalid chunk extensions', 'Node accepts an empty name, and more: RFC 9112, 7.1.1 [D18, D27]', ['an invalid chunk extension'], () => true],
  ['refused', 'chunks of more than 2^48 bytes, or whose size has more than 64 digits', 'no client sends them, and their size may not be an exact number: RFC 9112, 7.1 [D18, D27]',
    ['a chunk size over the limit'], ({ text }) => /\r\n(?:0*[1-9a-f][0-9a-f]{12}|[0-9a-f]{65})/i.test(text)],
  ['persists', 'proxy-connection', 'no standard defines this field; Node treats it as connection: RFC 9112, C.2.2',
    undefined, (difference) => difference.ours?.head.persists !== difference.judged?.persists && valuesOf(difference, 'proxy-connection').length > 0],
  ['refused', 'a content-length of more than 15 digits', 'no client sends a body of that length, and the length may not be an exact number: RFC 9110, 8.6 [D18, D27]',
    ['an invalid content-length, or more than one'], (difference) => valuesOf(difference, 'content-length').some((value) => /^0*[1-9]\d{15,}$/.test(value))],
  ['accepted', 'a tab after a length or a coding', whyTab, undefined, hasTabAfterFraming],
  ['persists', 'a tab after a length or a coding', whyTab, undefined, hasTabAfterFraming],
  ['refused', 'HTTP/0.9 and HTTP/2.0', 'messages of these versions have another form: RFC 9112, 2.3 [D18, D27]',
    ['an answer that is not HTTP/1.1', badVersion], ({ text }) => /HTTP\/(?:0\.9|2\.0)/.test(text)],
  ['persists', 'both close and keep-alive', 'close takes precedence; Node reports that the connection stays open, and refuses the next message: RFC 9112, 9.3', undefined, (difference) => {
    const options = valuesOf(difference, 'connection').join().toLowerCase();
    return difference.judged?.persists === true && /\bclose\b/.test(options) && options.includes('keep-alive');
  }],
]; // prettier-ignore

const inRequests: readonly Row[] = [
  ['accepted', 'a method unknown to Node', 'any token is a method; the operation table answers 405: RFC 9110, 9.1 [D6]',
    undefined, ({ error, text }) => error === 'HPE_INVALID_METHOD' && !METHODS.includes(/^[\r\n]*([A-Z0-9_-]*)/.exec(text)?.[1] ?? '')],
  // In HTTP/1.0 Node reports neither an error nor a request.
  ['count', 'the method PRI', 'Node reads it as the preface of HTTP/2; in HTTP/1.1 it is an unknown method: RFC 9113, 3.4 [D6]',
    undefined, ({ text }) => /^[\r\n]*PRI /.test(text)],
  ['accepted', 'the method PRI', 'as above', undefined, ({ error, text }) => error === 'HPE_INVALID_VERSION' && /^[\r\n]*PRI /.test(text)],
  ['refused', 'no host field, or two host fields', 'Node requires a host only if an option is set, and uses the first of two: RFC 9112, 3.2 [D27]',
    ['no host', 'two host fields'], (difference) => {
      const { length } = valuesOf(difference, 'host');
      return difference.flaw === 'no host' ? length === 0 : length > 1;
    }],
  ['refused', 'an invalid host', 'Node does not check the host: RFC 9110, 7.2 [D27]',
    ['an invalid host'], (difference) => !/^[a-z0-9.-]*$|^[a-z0-9.-]+:\d{1,4}$/i.test(valuesOf(difference, 'host')[0] ?? '')],
  ['refused', 'an invalid target', 'the target has a fragment, lacks a host, or has more than a host before the path: RFC 9112, 3.2 [D27]',
    ['an invalid target'], ({ judged }) => judged !== undefined && !/^(?!CONNECT)\S+ \/[^#]*$|^CONNECT [a-z0-9.-]+(?::\d{1,4})?$/i.test(judged.start)],
  ['refused', 'no version, or not exactly one space before the version', 'it is HTTP/0.9, or it has spaces that other parsers read as part of the target: RFC 9112, 3 [D27]',
    ['an invalid target, or no version after it', badVersion], ({ text }) => !/^[A-Z-]+ \S+ HTTP\/1\.[01]$/.test(/^[\r\n]*([^\r\n]*)/.exec(text)?.[1] ?? '')],
  ['refused', 'empty lines that do not end in CR LF', 'Node skips single CR and LF too; only CR LF is an empty line: RFC 9112, 2.2 [D27]',
    ['an empty line that does not end in CR LF', 'an invalid method'], ({ text }) => /^(?:\r\n)*(?:\n|\r[^\n])/.test(text)],
  ['refused', 'errors after an upgrade', 'Node reports no error after an upgrade that it does not perform: RFC 9110, 7.8 [D27]', undefined, (difference) =>
    difference.error === undefined && valuesOf(difference, 'upgrade').length > 0 && difference.ours?.isWhole === false],
  ['count', 'requests after an offer to upgrade', 'the offer is ignored, so they are requests; Node drops what follows in the same read: RFC 9110, 7.8 [D27]', undefined,
    ({ judged, before }) => judged === undefined && /\nupgrade:/i.test(before) && /\nconnection:[^\n]*\bupgrade\b/i.test(before)],
]; // prettier-ignore

const inAnswers: readonly Row[] = [
  ['refused', 'a transfer coding in an interim answer', 'an interim answer has no body and so no coding; Node ignores the coding: RFC 9112, 6.1 [D18]',
    [otherCoding, 'both a content-length and a transfer-encoding'], ({ text }) => /(?:^|\r\n\r\n)HTTP\/1\.1 1\d\d[^]*\r\ntransfer-encoding:/i.test(text)],
  ['accepted', 'an interim answer with connection: close', 'its fields do not apply to the final answer: RFC 9110, 15.2 [D15]', undefined, ({ error, text }) =>
    error === 'HPE_CLOSED_CONNECTION' && /^(?:HTTP[^]*?\r\n\r\n)*?HTTP\/1\.1 1\d\d[^]*?\r\n(?:proxy-)?connection:[^\r]*close/i.test(text)],
  ['persists', 'a 204 that announces a body closes the connection', 'Node ignores the body, but other parsers might read it: RFC 9112, 6.3 [D18]', undefined, (difference) =>
    difference.judged?.start === '204' && difference.judged.persists === true && ['content-length', 'transfer-encoding'].some((name) => valuesOf(difference, name).length > 0)],
  ['refused', 'a status below 100, or 101', 'a number below 100 is not a status, and 101 switches to a protocol that was not offered: RFC 9110, 15 [D18]',
    undefined, ({ judged }) => judged !== undefined && (Number(judged.start) < 100 || judged.start === '101')],
  // eslint-disable-next-line no-control-regex -- the flaw itself
  ['refused', 'a control character in a reason', 'a reason phrase is text: RFC 9112, 4 [D18]', ['a control character in its status line'], ({ text }) => /(?:^|\r\n\r\n)HTTP\/1\.[01] \d\d\d [^\r\n]*[\0-\x08\x0b-\x1f\x7f]/.test(text)],
  ['refused', 'an interim answer in HTTP/1.0', 'HTTP/1.0 has no interim answers: RFC 9110, 15.2 [D18]', ['an interim status in HTTP/1.0'], ({ text }) => /HTTP\/1\.0 1\d\d/.test(text)],
  ['refused', 'empty lines before an answer', 'only a server skips empty lines: RFC 9112, 2.2 [D18]', ['an answer that is not HTTP/1.1'], ({ text }) => /(?:^|\r\n\r\n)[\r\n]+HTTP/.test(text)],
]; // prettier-ignore

const known = { requests: [...inBoth, ...inRequests], answers: [...inBoth, ...inAnswers] };

/** The name of the known difference that this one is; undefined if it is a finding. */
export function nameOfKnown(role: 'requests' | 'answers', difference: Difference): string | undefined {
  const { kind: found, flaw } = difference;
  return known[role].find(([kind, , , flaws, applies]) => {
    const isFlaw = flaws?.some((reason) => flaw === reason || flaw === `an answer with ${reason}`) ?? true;
    return kind === found && isFlaw && applies(difference);
  })?.[1];
}
