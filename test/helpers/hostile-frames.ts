// Random hostile HTTP/2 connections: valid and invalid frames in random pieces, with every way to end a connection. The
// seed determines what a connection does.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { createChoices } from '../wire/http-messages.ts';
import { createRandom } from '../json/texts.ts';
import {
  fieldBlock,
  flags,
  frame,
  frameTypes,
  headers,
  preface,
  requestFields,
  resetStream,
  settingIds,
  settings,
  windowUpdate,
  type Fields,
} from './http2-frames.ts';

const item = '/api/work-items/5';
const largestWindow = 2 ** 31 - 1;

/** Ways in which a client ends its connection. */
export const endings = [
  'destroy',
  'reset',
  'end',
  'close_notify without FIN',
  'FIN without close_notify',
  'stay',
] as const;

export interface HostileClient {
  readonly carrier: Socket;
  readonly secure: TLSSocket;
  /** Sends bytes; does nothing after the connection has closed. */
  send(...parts: readonly Uint8Array[]): void;
  end(ending: (typeof endings)[number]): void;
  [Symbol.dispose](): void;
}

/** Opens a TLS connection whose TCP connection a test can end on its own. Resolves without `h2` if it was refused. */
export async function openHostile(port: number): Promise<HostileClient> {
  const carrier = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  carrier.on('error', () => undefined);
  let hidesEnd = false;
  const between = new Duplex({
    allowHalfOpen: true,
    read: () => carrier.resume(),
    write: (bytes: Buffer, _encoding, done) => {
      if (carrier.writable) carrier.write(bytes);
      done();
    },
    final: (done) => {
      if (!hidesEnd) carrier.end();
      done();
    },
  });
  carrier.on('data', (bytes: Buffer) => {
    if (!between.push(bytes)) carrier.pause();
  });
  carrier.on('close', () => between.destroy());
  const secure = connectTls({ socket: between, ALPNProtocols: ['h2'], rejectUnauthorized: false });
  secure.on('error', () => undefined).resume();
  await Promise.race([once(secure, 'secureConnect'), once(carrier, 'close')]);
  return {
    carrier,
    secure,
    send: (...parts) => {
      if (secure.writable) secure.write(Buffer.concat(parts));
    },
    end: (ending) => {
      if (ending === 'destroy') carrier.destroy();
      else if (ending === 'reset') carrier.resetAndDestroy();
      else if (ending === 'FIN without close_notify') carrier.end();
      else if (ending !== 'stay') {
        hidesEnd = ending === 'close_notify without FIN';
        secure.end();
      }
    },
    [Symbol.dispose]: () => {
      secure.destroy();
      carrier.destroy();
    },
  };
}

/** Runs one connection that `seed` determines. The caller disposes of the client, which may stay open. */
export async function attack(port: number, seed: number): Promise<HostileClient> {
  const { below, chance, pick } = createChoices(createRandom(seed));
  const client = await openHostile(port);
  const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  let stream = -1;
  const next = () => (stream += 2);
  const any = () => (chance(0.8) ? Math.max(1, stream) : 2 * below(20) + 1);
  const code = () => pick([0, 0, 1, 2, 5, 8, 11]);
  const request = (fields: Fields, ends = chance(0.6), isWhole = chance(0.95)) =>
    headers(next(), fields, (ends ? flags.endStream : 0) | (isWhole ? flags.endHeaders : 0));
  const get = (path: string, others: Fields = []) =>
    request(requestFields(pick(['GET', 'GET', 'HEAD', 'DELETE']), path, others));
  const put = (others: Fields = []) => request(requestFields('PUT', item, others), false);
  const data = (length: number, ends = chance(0.3)) =>
    frame(frameTypes.data, ends ? flags.endStream : 0, any(), Buffer.alloc(length, '1'));
  const goAway = (error: number) => frame(frameTypes.goAway, 0, 0, Buffer.from([0, 0, 0, below(2), 0, 0, 0, error]));
  const window = () => settings([[settingIds.initialWindowSize, pick([0, 0, 1, 65_535, 2 ** 31 - 1])]]);
  const usual: readonly [() => Buffer, ...(() => Buffer)[]] = [
    () => get('/nope'),
    () => get(item),
    () => get('/api/work-items'),
    () => put(),
    () => put([['content-length', String(below(5))]]),
    () => put([['expect', '100-continue']]),
    () => data(below(20)),
    () => data(16_384),
    () => resetStream(any(), code()),
    () => windowUpdate(pick([0, any()]), pick([1, 100, 100_000])),
    window,
    () => settings(),
    () => frame(frameTypes.settings, flags.ack),
    () => frame(frameTypes.ping, 0, 0, Buffer.alloc(8)),
    () => goAway(0),
    () => Buffer.concat([goAway(0), goAway(0)]),
    () => frame(0x77, below(256), below(9), Buffer.alloc(below(300))),
    () => headers(any(), [['x-trailer', 'a']]),
  ];
  const broken: typeof usual = [
    () => Buffer.from([0x40, 0x01, 0, 0, 0, 0, 0, 0, any()]),
    () => frame(frameTypes.headers, flags.endHeaders | flags.endStream, next(), Buffer.alloc(6, 0xff)),
    () => windowUpdate(pick([0, any()]), pick([0, largestWindow])),
    () => settings([[settingIds.initialWindowSize, 2 ** 31]]),
    () => settings(Array.from({ length: 40 }, () => [settingIds.headerTableSize, below(9_000)] as const)),
    () => frame(frameTypes.ping, 0, pick([0, 1]), Buffer.alloc(7)),
    () => goAway(pick([1, 2, 11])),
    () => frame(frameTypes.priority, 0, any(), Buffer.from([0, 0, 0, any(), 1])),
    () => frame(frameTypes.priority, 0, any(), Buffer.alloc(4)),
    () => frame(frameTypes.continuation, pick([0, flags.endHeaders]), any(), Buffer.alloc(below(50))),
    () => Buffer.concat([headers(next(), requestFields('GET', item), 0), ...Array.from({ length: below(12) }, () => frame(frameTypes.continuation, 0, stream))]),
    () => frame(frameTypes.pushPromise, flags.endHeaders, any(), Buffer.alloc(10)),
    () => frame(frameTypes.data, flags.padded, any(), Buffer.from([200, 0])),
    () => data(below(5_000)),
    () => headers(pick([0, 2, 1]), requestFields('GET', item)),
    () => request([...requestFields('GET', item), ['Bad Name', 'x']]),
    () => frame(frameTypes.headers, 0x28 | flags.endHeaders, next(), Buffer.concat([Buffer.alloc(6), fieldBlock(requestFields('GET', item))])),
    () => Buffer.from(Array.from({ length: below(60) }, () => below(256))),
    () => Buffer.alloc(20),
    () => get(item).subarray(0, below(30)),
  ]; // prettier-ignore
  if (chance(0.97)) client.send(preface);
  if (chance(0.97)) client.send(chance(0.6) ? window() : settings());
  // node:http2 stops reading after some errors. Such connections are frequent here, because chance seldom leads to them.
  if (chance(0.3)) {
    client.send(settings([[settingIds.initialWindowSize, 0]]), pick([() => get('/nope'), () => put()])(), goAway(0));
    client.send(pick(broken)());
    await wait(40);
  }
  for (let left = 1 + below(12); left > 0 && !client.carrier.destroyed; left -= 1) {
    const bytes = Buffer.concat(Array.from({ length: 1 + below(4) }, () => pick(chance(0.75) ? usual : broken)()));
    const cut = chance(0.3) ? below(bytes.length) : bytes.length;
    client.send(bytes.subarray(0, cut));
    if (chance(0.05)) client.secure.pause();
    if (chance(0.5)) await wait(below(45));
    client.send(bytes.subarray(cut));
  }
  if (chance(0.5)) await wait(below(60));
  client.end(pick(endings));
  return client;
}
