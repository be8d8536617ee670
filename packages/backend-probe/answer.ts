// Parses the head of a backend's answer from its bytes, for reports. The gateway's own reader decides whether an answer is
// usable. That reader keeps few fields of a head, and nothing of a malformed head.

import { parseConnection } from '../core/http1/grammar.ts';

export interface RawAnswer {
  /** The HTTP version, such as `1.1`. */
  readonly version: string;
  readonly status: number;
  /** Values by lower-case name. Several values of one name are joined by commas. */
  readonly fields: ReadonlyMap<string, string>;
  /** How the end of the body is found; `none`: the answer has no body. */
  readonly framing: 'chunked' | 'length' | 'until-close' | 'none';
  /** True if the backend closes the connection after this answer. */
  readonly closesConnection: boolean;
  /** The start of the body: the bytes that had arrived when the call ended, without the first chunk-size line. */
  readonly bodyStart: Buffer;
}

const headEnd = Buffer.from('\r\n\r\n');
const statusLine = /^HTTP\/(\d\.\d) (\d{3})(?: |$)/;

/** Returns the final answer in `bytes`; undefined if its head is incomplete or has no valid status line. */
export function readRawAnswer(bytes: Buffer): RawAnswer | undefined {
  const end = bytes.indexOf(headEnd);
  const [first = '', ...lines] = end === -1 ? [] : bytes.toString('latin1', 0, end).split('\r\n');
  const [, version, digits] = statusLine.exec(first) ?? [];
  if (version === undefined) {
    return undefined;
  }
  const status = Number(digits);
  const rest = bytes.subarray(end + headEnd.length);
  // Skip interim answers [D15].
  if (status < 200 && status !== 101) {
    return readRawAnswer(rest);
  }
  const fields = readFields(lines);
  const framing = framingOf(status, fields);
  const { closes, keepsAlive } = parseConnection(fields.get('connection') ?? '');
  const closesConnection = closes || (version === '1.0' && !keepsAlive) || framing === 'until-close';
  // Empty if the first chunk-size line is incomplete.
  const startsAt = framing === 'chunked' ? rest.indexOf('\n') + 1 || rest.length : 0;
  const bodyStart = rest.subarray(startsAt);
  return { version, status, fields, framing, closesConnection, bodyStart };
}

function readFields(lines: readonly string[]): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    const before = fields.get(name);
    fields.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  return fields;
}

function framingOf(status: number, fields: ReadonlyMap<string, string>): RawAnswer['framing'] {
  return status === 204 || status === 304
    ? 'none'
    : fields.has('transfer-encoding')
      ? 'chunked'
      : fields.has('content-length')
        ? 'length'
        : 'until-close';
}
