// Random hostile HTTP/2 connections: valid and invalid frames in random pieces, with every way to end a connection. The
// seed determines what a connection does.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { createChoices } from '../wire/http-messages.ts';
import { createRandom } from '../json/texts.ts';
import { poll } from './changes.ts';
import { startGateway } from './gateway.ts';
import * as frames from './http2-frames.ts';
import { data, flags, frame, frameTypes, get, headers, put, requestFields, settings } from './http2-frames.ts';
import { accounted } from './leftovers.ts';
import { answer, latency, timeout, type Answer } from './scripted-backend.ts';

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

const whole = flags.endHeaders | flags.endStream;
/** The header of a frame that is longer than allowed. */
export const longFrame = Buffer.of(0x40, 0x01, 0, 0, 0, 0, 0, 0, 3);
/** A head that cannot be decoded. */
export const brokenHead = (stream: number) => frame(frameTypes.headers, whole, stream, Buffer.alloc(6, 0xff));

/** Runs one connection that `seed` determines. The caller disposes of the client, which may stay open. */
async function attack(port: number, seed: number): Promise<HostileClient> {
  const { below, chance, pick } = createChoices(createRandom(seed));
  const client = await openHostile(port);
  const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  let stream = -1;
  const next = () => (stream += 2);
  const any = () => (chance(0.8) ? Math.max(1, stream) : 2 * below(20) + 1);
  const read = (path: string, others: frames.Fields = []) =>
    headers(
      next(),
      requestFields(pick(['GET', 'GET', 'HEAD', 'DELETE']), path, others),
      (chance(0.6) ? flags.endStream : 0) | (chance(0.95) ? flags.endHeaders : 0),
    );
  const write = (...others: frames.Fields) => put(next(), item, others);
  const bytes = (length: number) => data(any(), '1'.repeat(length), chance(0.3) ? flags.endStream : 0);
  const leave = (error: number) => frame(frameTypes.goAway, 0, 0, Buffer.from([0, 0, 0, below(2), 0, 0, 0, error]));
  const window = () => settings([[frames.settingIds.initialWindowSize, pick([0, 0, 1, 65_535, largestWindow])]]);
  const usual: readonly [() => Buffer, ...(() => Buffer)[]] = [
    () => read('/nope'),
    () => read(item),
    () => read('/api/work-items'),
    () => write(),
    () => write(['content-length', String(below(5))]),
    () => write(['expect', '100-continue']),
    () => bytes(below(20)),
    () => bytes(16_384),
    () => frames.resetStream(any(), pick([0, 0, 1, 2, 5, 8, 11])),
    () => frames.windowUpdate(pick([0, any()]), pick([1, 100, 100_000])),
    window,
    () => settings(),
    () => frame(frameTypes.settings, flags.ack),
    () => frames.ping,
    () => leave(0),
    () => Buffer.concat([leave(0), leave(0)]),
    () => frame(0x77, below(256), below(9), Buffer.alloc(below(300))),
    () => headers(any(), [['x-trailer', 'a']]),
  ];
  const broken: typeof usual = [
    () => longFrame,
    () => brokenHead(next()),
    () => frames.windowUpdate(pick([0, any()]), pick([0, largestWindow])),
    () => settings([[frames.settingIds.initialWindowSize, 2 ** 31]]),
    () => settings(Array.from({ length: 40 }, () => [frames.settingIds.headerTableSize, below(9_000)] as const)),
    () => frame(frameTypes.ping, 0, pick([0, 1]), Buffer.alloc(7)),
    () => leave(pick([1, 2, 11])),
    () => frame(frameTypes.priority, 0, any(), Buffer.from([0, 0, 0, any(), 1])),
    () => frame(frameTypes.priority, 0, any(), Buffer.alloc(4)),
    () => frame(frameTypes.continuation, pick([0, flags.endHeaders]), any(), Buffer.alloc(below(50))),
    () => Buffer.concat([headers(next(), requestFields('GET', item), 0), ...Array.from({ length: below(12) }, () => frame(frameTypes.continuation, 0, stream))]),
    () => frame(frameTypes.pushPromise, flags.endHeaders, any(), Buffer.alloc(10)),
    () => frame(frameTypes.data, flags.padded, any(), Buffer.from([200, 0])),
    () => bytes(below(5_000)),
    () => get(pick([0, 2, 1]), item),
    () => get(next(), item, [['Bad Name', 'x']]),
    () => frame(frameTypes.headers, 0x28 | flags.endHeaders, next(), Buffer.concat([Buffer.alloc(6), frames.fieldBlock(requestFields('GET', item))])),
    () => Buffer.from(Array.from({ length: below(60) }, () => below(256))),
    () => Buffer.alloc(20),
    () => read(item).subarray(0, below(30)),
  ]; // prettier-ignore
  if (chance(0.97)) client.send(frames.preface);
  if (chance(0.97)) client.send(chance(0.6) ? window() : settings());
  // node:http2 stops reading after some errors. Such connections are frequent here, because chance seldom leads to them.
  if (chance(0.3)) {
    client.send(settings(frames.closedWindow), pick([() => read('/nope'), () => write()])(), leave(0));
    client.send(pick(broken)());
    await wait(40);
  }
  for (let left = 1 + below(12); left > 0 && !client.carrier.destroyed; left -= 1) {
    const frames = Buffer.concat(Array.from({ length: 1 + below(4) }, () => pick(chance(0.75) ? usual : broken)()));
    const cut = chance(0.3) ? below(frames.length) : frames.length;
    client.send(frames.subarray(0, cut));
    if (chance(0.05)) client.secure.pause();
    if (chance(0.5)) await wait(below(45));
    client.send(frames.subarray(cut));
  }
  if (chance(0.5)) await wait(below(60));
  client.end(pick(endings));
  return client;
}

const answers: Answer[] = [answer('{"id":5}'), answer(`"${'x'.repeat(200_000)}"`), latency(30, answer('[]')), timeout];
const limitMs = 1_000;

/**
 * Opens `rounds` times 40 random connections to a new gateway. Rejects unless they end, nothing is held afterwards, no bug
 * is recorded and no stall is reported twice. `npm run fuzz -- http2 --seed N` repeats a failure.
 */
export async function attackAtRandom(first: number, rounds: number): Promise<void> {
  const settings = {
    requestHeadersTimeoutMs: limitMs,
    requestTimeoutMs: limitMs,
    replyStallTimeoutMs: limitMs,
    idleTimeoutMs: limitMs,
    backendTimeoutMs: 500,
    backendIdleTimeoutMs: 200,
  };
  await using server = accounted(await startGateway({ host: 'http2', settings }));
  let calls = 0;
  server.backend.answers((exchange) => answers[(calls += 1) % answers.length]?.(exchange));
  for (let seed = first; seed < first + 40 * rounds; seed += 40) {
    const clients = await Promise.all(Array.from({ length: 40 }, (_, index) => attack(server.port, seed + index)));
    await poll(() => server.clients.size === 0, `all connections have ended, seed ${seed}`);
    for (const client of clients) client[Symbol.dispose]();
  }
  assert.deepEqual(server.told.bugs, [], `seed ${first}`);
  assert.equal(new Set(server.told.stalled).size, server.told.stalled.length, `a stall reported twice, seed ${first}`);
}
