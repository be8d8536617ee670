// The bytes that a `PacedSocket` passes on: how many in a turn of the event loop, when it holds them back, and how it ends.

import assert from 'node:assert/strict';
import { Socket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { keptBytesMax, PacedSocket } from '../../packages/core/hosts/http2/paced-socket.ts';
import { flags, frame, frameTypes, headers, preface } from '../helpers/http2-frames.ts';
import { stopClock, turn, turns } from '../transport/served-connections.ts';

/** A socket without a connection, whose writes go to a list. */
class FakeSocket extends Socket {
  readonly #written: string[];

  constructor(written: string[]) {
    super();
    this.#written = written;
  }

  override _read(): void {
    // Nothing to do: tests emit the bytes.
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#written.push(chunk.toString('latin1'));
    done();
  }
}

/** A paced socket on a fake socket. `pieces`: the bytes passed on so far. */
function open(t: TestContext) {
  const clock = stopClock(t);
  const written: string[] = [];
  const socket = new FakeSocket(written);
  const kept = { bytes: 0 };
  const paced = new PacedSocket(socket, () => kept.bytes);
  const pieces: Buffer[] = [];
  paced.on('data', (piece: Buffer) => pieces.push(piece));
  t.after(() => paced.destroy());
  const receive = (...parts: readonly Buffer[]) => socket.emit('data', Buffer.concat(parts));
  const length = () => pieces.reduce((sum, piece) => sum + piece.length, 0);
  return { clock, written, socket, kept, paced, pieces, receive, length };
}

/** Like `open`, but the preface has been passed on and a new turn has begun. */
async function begin(t: TestContext) {
  const opened = open(t);
  opened.receive(preface);
  await turns(2);
  opened.pieces.length = 0;
  return opened;
}

const ping = frame(frameTypes.ping, 0, 0, Buffer.alloc(8));
const head = (stream: number, length = 1) =>
  frame(frameTypes.headers, flags.endHeaders | flags.endStream, stream, Buffer.alloc(length, 0x82));
const repeat = (bytes: Buffer, count: number) => Array.from({ length: count }, () => bytes);

describe('a turn of the event loop', () => {
  for (const [name, one, atOnce, inOwnTurn] of [
    ['frames', ping, 64, 256],
    ['heads', head(1), 4, 12],
  ] as const) {
    test(`passes on ${atOnce} ${name} without waiting; a turn that the connection waited for passes on ${inOwnTurn} [D58]`, async (t) => {
      const { pieces, receive, length } = await begin(t);
      receive(...repeat(one, atOnce));
      await turns(3);
      assert.equal(length(), atOnce * one.length);
      pieces.length = 0;
      receive(...repeat(one, atOnce + 2 * inOwnTurn));
      assert.equal(length(), atOnce * one.length);
      const perTurn: number[] = [];
      for (let round = 0; round < 10; round += 1) {
        const before = length();
        await turn();
        if (length() > before) perTurn.push((length() - before) / one.length);
      }
      assert.deepEqual(perTurn, [inOwnTurn, inOwnTurn]);
    });
  }

  test('passes on 64 reads, and everything in order [D58]', async (t) => {
    const { receive, length, pieces, socket } = await begin(t);
    const bytes = frame(0xbb, 0, 0, Buffer.from(Array.from({ length: 500 }, (_, index) => index % 251)));
    for (const byte of bytes) receive(Buffer.of(byte));
    assert.equal(length(), 64);
    assert.ok(socket.isPaused(), 'nothing more is read');
    await turns(3);
    assert.ok(Buffer.concat(pieces).equals(bytes));
    assert.ok(!socket.isPaused(), 'reading continues');
  });

  test('passes on at most 4,096 bytes of heads [D58]', async (t) => {
    const { receive, length } = await begin(t);
    receive(head(1, 5_000));
    assert.equal(length(), 9 + 4_096);
    await turns(3);
    assert.equal(length(), 9 + 5_000);
  });

  test('has one allowance for all bytes that arrive in it, and the next turn begins with a full allowance', async (t) => {
    const { receive, length, socket } = await begin(t);
    receive(...repeat(ping, 60));
    receive(...repeat(ping, 5));
    assert.equal(length(), 64 * ping.length);
    assert.ok(socket.isPaused(), 'nothing more is read');
    // Bytes that arrive during the wait are passed on after the rest, in order.
    receive(ping);
    assert.equal(length(), 64 * ping.length);
    await turns(3);
    assert.equal(length(), 66 * ping.length);
    assert.ok(!socket.isPaused(), 'reading continues');
    receive(...repeat(ping, 64));
    assert.equal(length(), 130 * ping.length);
  });

  test('passes on nothing more after the head of a request with a body, so that the stream is known before its DATA arrives', async (t) => {
    const { receive, pieces } = await begin(t);
    const start = headers(1, [['a', '1']], flags.endHeaders);
    const data = frame(frameTypes.data, flags.endStream, 1, Buffer.alloc(5));
    receive(start, data);
    assert.deepEqual(pieces, [start]);
    await new Promise((resolve) => process.nextTick(resolve));
    assert.deepEqual(pieces, [start, data]);
  });
});

describe('bytes are held back', () => {
  test('while 64 KiB of bodies are unread; up to that limit, bytes are passed on [D58]', async (t) => {
    const { kept, paced, receive, length, socket } = await begin(t);
    kept.bytes = keptBytesMax - 1;
    receive(ping);
    assert.equal(length(), 1);
    kept.bytes = keptBytesMax;
    await turns(3);
    receive(ping);
    paced.goOn();
    assert.equal(length(), 1);
    assert.ok(socket.isPaused());
    kept.bytes = keptBytesMax - 2 * ping.length;
    paced.goOn();
    await turns(3);
    assert.equal(length(), 2 * ping.length);
    assert.ok(!socket.isPaused());
  });

  test('while the reader is paused', async (t) => {
    const { paced, receive, length, socket } = await begin(t);
    paced.pause();
    receive(ping);
    paced.goOn();
    paced.takeTurn();
    await turns(3);
    assert.equal(length(), 0);
    assert.ok(socket.isPaused());
    paced.resume();
    paced.goOn();
    await turns(3);
    assert.equal(length(), ping.length);
    assert.ok(!socket.isPaused());
  });

  test('until the reader resumes; no call of goOn is needed', async (t) => {
    const { paced, receive, length, socket } = await begin(t);
    paced.pause();
    receive(ping);
    paced.resume();
    await turns(3);
    assert.equal(length(), ping.length);
    assert.ok(!socket.isPaused());
  });

  test('while a stream has received more DATA than expected, until the meter forgets that stream [RFC 9113, 8.1.1]', async (t) => {
    const { paced, receive, length, pieces } = await begin(t);
    const excess: number[] = [];
    paced.meter.onExcess = (stream) => excess.push(stream);
    receive(headers(1, [['a', '1']], flags.endHeaders));
    paced.meter.expectData(1, 2);
    await turns(2);
    pieces.length = 0;
    receive(frame(frameTypes.data, 0, 1, Buffer.alloc(3)), ping);
    await turns(3);
    assert.deepEqual([excess, length()], [[1], 9]);
    paced.goOn();
    assert.equal(length(), 9);
    paced.meter.forget(1);
    paced.goOn();
    await turns(3);
    assert.equal(length(), 9 + 3 + ping.length);
  });
});

describe('the time of a head', () => {
  test('is measured from its first byte to its end [D35]', async (t) => {
    const { paced, receive, clock } = await begin(t);
    const took = () => paced.headTook(clock.now);
    const bytes = Buffer.concat([head(1, 20), head(3, 20)]);
    receive(bytes.subarray(0, 12));
    clock.now += 5;
    assert.equal(took(), 5);
    receive(bytes.subarray(12, 20));
    assert.equal(took(), 5);
    // This piece ends the first head and begins the second one.
    receive(bytes.subarray(20, 45));
    assert.equal(took(), 0);
    clock.now += 7;
    assert.equal(took(), 7);
    receive(bytes.subarray(45));
    clock.now += 7;
    assert.equal(took(), 0);
  });

  test('starts again at 0 if the gateway holds back bytes of the head', async (t) => {
    const { paced, receive, clock, kept } = await begin(t);
    receive(head(1, 20).subarray(0, 12));
    clock.now += 5;
    kept.bytes = keptBytesMax;
    receive(head(1, 20).subarray(12, 14));
    assert.equal(paced.headTook(clock.now), 0);
    kept.bytes = 0;
    paced.goOn();
    clock.now += 3;
    assert.equal(paced.headTook(clock.now), 3);
  });
});

describe('written bytes and the end', () => {
  test('writes between cork() and uncork() become one write of the socket, and end() ends the socket after all writes', async (t) => {
    const { paced, written, socket } = open(t);
    paced.cork();
    paced.write('a');
    paced.write('b');
    paced.uncork();
    paced.sendFrame(Buffer.from('c'));
    await turn();
    assert.deepEqual(written, ['ab', 'c']);
    paced.end();
    await turns(2);
    assert.ok(socket.writableFinished);
    paced.sendFrame(Buffer.from('d'));
    paced.destroy();
    paced.sendFrame(Buffer.from('e'));
    assert.deepEqual(written, ['ab', 'c']);
  });

  for (const [name, act] of [
    ['the client half-closes the connection', (socket: Socket) => socket.emit('end')],
    ['the connection fails', (socket: Socket) => socket.emit('error', new Error('reset'))],
    ['the connection closes', (socket: Socket) => socket.destroy()],
  ] as const) {
    test(`when ${name}, the socket and its paced socket are destroyed`, async (t) => {
      const { paced, socket, receive, length } = await begin(t);
      receive(...repeat(ping, 65));
      act(socket);
      await turns(3);
      assert.deepEqual([socket.destroyed, paced.destroyed], [true, true]);
      assert.equal(length(), 64 * ping.length, 'bytes that were held back are dropped');
    });
  }

  test('destroying a paced socket destroys its socket', async (t) => {
    const { paced, socket } = open(t);
    paced.destroy();
    await turns(2);
    assert.ok(socket.destroyed);
  });
});
