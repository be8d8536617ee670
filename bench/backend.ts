// The backend of every contender: fixed answers over plain node:net in a separate process. It is so fast that it never limits
// a run, but it parses only requests of well-behaved gateways. The parent process sets the list and reads the counts over IPC.
import { createServer, type Socket } from 'node:net';
import { CREATED_ITEM, EXACT_PROBE, ITEM, makeList, NOT_JSON, PROBE_IDS } from './work-items.ts';

/** `list` is the length of the list, or -1 for a list that is not JSON. If `held` is true, all answers but `ITEM` are withheld. */
export interface BackendOrder {
  list?: number;
  held?: boolean;
}
export interface BackendReport {
  port: number;
  requests: number;
  /** The body of the last request with a body. */
  lastBody: string;
  /** The number of connections with a withheld answer. */
  held: number;
  /** The time when the last connection with a withheld answer closed, on the clock of `hrtime`. */
  emptyAtMs: number;
}

const COMMON =
  'Content-Type: application/json; charset=utf-8\r\nDate: Sat, 14 Mar 2026 09:26:53 GMT\r\nServer: Kestrel\r\n';

function makeAnswer(status: string, body?: Buffer): Buffer {
  const head = body
    ? `HTTP/1.1 ${status}\r\n${COMMON}Content-Length: ${body.length}\r\n\r\n`
    : `HTTP/1.1 ${status}\r\nDate: Sat, 14 Mar 2026 09:26:53 GMT\r\nServer: Kestrel\r\n\r\n`;
  return body ? Buffer.concat([Buffer.from(head), body]) : Buffer.from(head);
}

const item = makeAnswer('200 OK', ITEM);
const exactProbe = makeAnswer('200 OK', EXACT_PROBE);
const notJson = makeAnswer('200 OK', NOT_JSON);
const missing = makeAnswer('404 Not Found', Buffer.from('{"title":"Not Found","status":404}'));
const created = makeAnswer('201 Created', CREATED_ITEM);
const done = makeAnswer('204 No Content');

let list = makeAnswer('200 OK', makeList(100));
let isHeld = false;
let emptyAtMs = 0;
const held = new Set<Socket>();
let requests = 0;
let lastBody = '';

function chooseAnswer(head: string): Buffer {
  switch (head.charCodeAt(0)) {
    case 0x47: {
      // GET. The contender node-net sends the client's path unchanged; all others send the backend's path.
      const path = head.slice(4, head.indexOf(' ', 4));
      const slash = path.indexOf('/', 5);
      if (slash < 0) return list;
      const id = path.slice(slash + 1);
      if (id.length < 6) return item;
      if (id === String(PROBE_IDS.exact)) return exactProbe;
      if (id === String(PROBE_IDS.notJson)) return notJson;
      return id === String(PROBE_IDS.missing) ? missing : item;
    }
    case 0x50: // POST or PUT
      return head.charCodeAt(1) === 0x4f ? created : done;
    default:
      return done;
  }
}

/** Returns the end of the chunked body that begins at `from`, or -1 if the body is incomplete. */
function findEndOfChunks(text: string, from: number): number {
  let at = from;
  for (;;) {
    const lineEnd = text.indexOf('\r\n', at);
    if (lineEnd < 0) return -1;
    const size = Number.parseInt(text.slice(at, lineEnd), 16);
    at = lineEnd + 2 + size + 2;
    if (at > text.length) return -1;
    if (size === 0) return at;
  }
}

/** Answers every complete request in `text`. Returns the rest. */
function answerAll(socket: Socket, text: string): string {
  for (;;) {
    const headEnd = text.indexOf('\r\n\r\n');
    if (headEnd < 0) return text;
    const bodyStart = headEnd + 4;
    let end = bodyStart;
    const head = text.slice(0, headEnd);
    const length = /\r\ncontent-length: *(\d+)/i.exec(head);
    if (length) end += Number(length[1]);
    else if (/\r\ntransfer-encoding: *chunked/i.test(head)) end = findEndOfChunks(text, bodyStart);
    if (end < 0 || end > text.length) return text;
    requests += 1;
    if (end > bodyStart) lastBody = text.slice(bodyStart, end);
    const answer = chooseAnswer(head);
    if (isHeld && answer !== item) held.add(socket);
    else socket.write(answer);
    if (end === text.length) return '';
    text = text.slice(end);
  }
}

const server = createServer({ noDelay: true }, (socket) => {
  let rest = '';
  socket.on('data', (chunk: Buffer) => {
    rest = answerAll(socket, rest + chunk.toString('latin1'));
  });
  socket.on('error', () => socket.destroy());
  socket.on('close', () => {
    if (held.delete(socket) && held.size === 0) emptyAtMs = Number(process.hrtime.bigint()) / 1e6;
  });
});

function report(): void {
  const address = server.address();
  const port = typeof address === 'object' && address ? address.port : 0;
  process.send?.({ port, requests, lastBody, held: held.size, emptyAtMs } satisfies BackendReport);
}

process.on('message', (order: BackendOrder) => {
  if (order.list !== undefined) list = makeAnswer('200 OK', order.list < 0 ? NOT_JSON : makeList(order.list));
  isHeld = order.held ?? isHeld;
  report();
});
process.on('disconnect', () => process.exit());
server.listen(0, '127.0.0.1', 1024, report);
