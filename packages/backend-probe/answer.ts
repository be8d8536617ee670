// Reads the head of a backend's answer again from its bytes, for reports. The gateway's own reader decides which answers can be
// used; it keeps the framing alone, and nothing of a malformed head.

import { parseConnection } from '../core/http1/grammar.ts';

export interface RawAnswer {
  /** As `1.1`. */
  readonly version: string;
  readonly status: number;
  /** By names in small letters; the values of one name are joined as a list. */
  readonly fields: ReadonlyMap<string, string>;
  /** How the answer says where its body ends. */
  readonly framing: 'chunked' | 'length' | 'until-close' | 'none';
  /** The backend closes the connection after this answer. */
  readonly closesConnection: boolean;
  /** The first bytes of the body that had arrived when the gateway had decided, without the line of a chunk's size. */
  readonly bodyStart: Buffer;
}

const headEnd = Buffer.from('\r\n\r\n');
const statusLine = /^HTTP\/(\d\.\d) (\d{3})(?: |$)/;

/** The final answer in `bytes`; undefined where there is no whole head of one. */
export function readRawAnswer(bytes: Buffer): RawAnswer | undefined {
  const end = bytes.indexOf(headEnd);
  const [first = '', ...lines] = end === -1 ? [] : bytes.toString('latin1', 0, end).split('\r\n');
  const [, version, digits] = statusLine.exec(first) ?? [];
  if (version === undefined) {
    return undefined;
  }
  const status = Number(digits);
  const rest = bytes.subarray(end + headEnd.length);
  // Interim answers stand before the one that counts [D15].
  if (status < 200 && status !== 101) {
    return readRawAnswer(rest);
  }
  const fields = readFields(lines);
  const framing = framingOf(status, fields);
  const { closes, keepsAlive } = parseConnection(fields.get('connection') ?? '');
  const closesConnection = closes || (version === '1.0' && !keepsAlive) || framing === 'until-close';
  // Nothing where the line of the first chunk's size is not whole.
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
