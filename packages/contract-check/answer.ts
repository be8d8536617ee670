// What the head of a backend's answer says, read again from its bytes: for what a report shows. Which answers can be used
// is not decided here but by the gateway's own reader.

export interface RawAnswer {
  /** As `1.1`. */
  readonly version: string;
  readonly status: number;
  /** With names in small letters. */
  readonly fields: readonly (readonly [name: string, value: string])[];
  /** What had arrived behind the head when the gateway had decided; in chunks where it came in chunks. */
  readonly rest: Buffer;
}

const headEnd = Buffer.from('\r\n\r\n');
const statusLine = /^HTTP\/(\d\.\d) (\d{3})(?: |$)/;

/** The final answer in `bytes`; undefined where there is no whole head of one. */
export function readRawAnswer(bytes: Buffer): RawAnswer | undefined {
  let start = 0;
  for (;;) {
    const end = bytes.indexOf(headEnd, start);
    const [first = '', ...lines] = end === -1 ? [] : bytes.toString('latin1', start, end).split('\r\n');
    const match = statusLine.exec(first);
    if (match === null) {
      return undefined;
    }
    start = end + headEnd.length;
    const status = Number(match[2]);
    // Interim answers stand before the one that counts [D15].
    if (status >= 200 || status === 101) {
      return {
        version: match[1] ?? '',
        status,
        fields: lines.map((line) => readField(line)),
        rest: bytes.subarray(start),
      };
    }
  }
}

function readField(line: string): readonly [string, string] {
  const colon = line.indexOf(':');
  return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
}

/** The values of a field, joined as a list; undefined where the answer has none. */
export function valueOf(answer: RawAnswer | undefined, name: string): string | undefined {
  const values = (answer?.fields ?? []).filter(([each]) => each === name).map(([, value]) => value);
  return values.length === 0 ? undefined : values.join(', ');
}

/** How the answer says where its body ends. */
export function framingOf(answer: RawAnswer): 'chunked' | 'length' | 'until-close' | 'none' {
  return answer.status === 204 || answer.status === 304
    ? 'none'
    : valueOf(answer, 'transfer-encoding') !== undefined
      ? 'chunked'
      : valueOf(answer, 'content-length') !== undefined
        ? 'length'
        : 'until-close';
}

/** The backend closes the connection behind this answer. */
export function closesConnection(answer: RawAnswer): boolean {
  const options = (valueOf(answer, 'connection') ?? '')
    .toLowerCase()
    .split(',')
    .map((option) => option.trim());
  return (
    options.includes('close') ||
    (answer.version === '1.0' && !options.includes('keep-alive')) ||
    framingOf(answer) === 'until-close'
  );
}

/** The first bytes of the body that have arrived, without the line of a chunk's size. */
export function bodyStartOf(answer: RawAnswer): Buffer {
  if (framingOf(answer) !== 'chunked') {
    return answer.rest;
  }
  const line = answer.rest.indexOf('\r\n');
  return line === -1 ? Buffer.alloc(0) : answer.rest.subarray(line + 2);
}
