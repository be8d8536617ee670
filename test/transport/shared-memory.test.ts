// Memory that answers share: all arrive in the same buffer, and are gathered in blocks that go from one to the next.
// Nobody may receive another's bytes, however pieces of different answers come in turns and however slowly they are read.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { answer, answerBytes, type Answer } from '../helpers/scripted-backend.ts';
import { forEveryTarget } from '../helpers/targets.ts';

const failed = '{"error":"Failed to fetch work items"}';

/** A JSON text of `length` bytes, all but the quotes the same letter. */
function list(letter: string, length: number): Buffer {
  const bytes = Buffer.alloc(length, letter);
  bytes[0] = bytes[length - 1] = 0x22;
  return bytes;
}

forEveryTarget((target) => {
  /** What comes of a call whose answer comes in pieces, with a whole call of somebody else's between any two of them. */
  const callInterrupted = async (pieces: readonly Buffer[]) => {
    const gates = pieces.slice(1).map(() => ({ sent: createGate(), next: createGate() }));
    const slow: Answer = async (exchange) => {
      for (const [index, piece] of pieces.entries()) {
        await exchange.write(piece);
        gates[index]?.sent.open();
        await gates[index]?.next.opened;
      }
    };
    target().backend.answersOnce(slow);
    const reply = target().call('GET', '/api/work-items');
    for (const { sent, next } of gates) {
      await sent.opened;
      // It fills the shared buffer, longer than any piece, with bytes of its own.
      target().backend.answersOnce(answer(list('z', 20_000)));
      const other = await target().call('GET', '/api/work-items');
      assert.ok(other.body.equals(list('z', 20_000)));
      next.open();
    }
    return await reply;
  };

  /** Every cut into two within the first `length` bytes. */
  const cuts = (bytes: Buffer, length: number): Buffer[][] =>
    Array.from({ length: length - 1 }, (_, index) => [
      bytes.subarray(0, index + 1),
      bytes.subarray(index + 1),
    ]);

  test('a body in pieces of all sizes is its own bytes', async () => {
    const body = list('a', 70_000);
    const bytes = answerBytes(body);
    const pieces: Buffer[] = [];
    for (let from = 0, size = 1; from < bytes.length; from += size, size = size * 3 + 1) {
      pieces.push(bytes.subarray(from, from + size));
    }
    const reply = await callInterrupted(pieces);
    assert.equal(reply.status, 200);
    assert.ok(reply.body.equals(body));
  });

  test('a small body in two pieces is its own bytes', async () => {
    for (const [first, whole] of [
      [1, 2],
      [1_000, 3_000],
      [1_000, 16_384],
      [3_000, 16_385],
    ] as const) {
      const bytes = answerBytes(list('a', whole));
      const cut = bytes.length - whole + first;
      const reply = await callInterrupted([bytes.subarray(0, cut), bytes.subarray(cut)]);
      assert.ok(reply.body.equals(list('a', whole)), `${first} of ${whole} bytes`);
    }
  });

  test('a head that is cut anywhere is understood as it is: one that is right', async () => {
    const bytes = answerBytes('{"id":5}');
    for (const pieces of cuts(bytes, bytes.length)) {
      const reply = await callInterrupted(pieces);
      assert.deepEqual([reply.status, reply.text], [200, '{"id":5}'], String(pieces[0]));
    }
  });

  test('a head that is cut anywhere is understood as it is: one with a flaw [D18]', async () => {
    const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n';
    const bytes = Buffer.from(`${head}2\r\n[]\r\n0\r\n\r\n`);
    for (const pieces of cuts(bytes, head.length)) {
      const reply = await callInterrupted(pieces);
      assert.deepEqual([reply.status, reply.text], [500, failed], String(pieces[0]));
    }
  });

  test('an interim head that is cut anywhere is skipped [D15]', async () => {
    const interim = 'HTTP/1.1 100 Continue\r\nX: 1\r\n\r\n';
    const bytes = Buffer.concat([Buffer.from(interim), answerBytes('{"id":5}')]);
    for (const pieces of cuts(bytes, interim.length)) {
      const reply = await callInterrupted(pieces);
      assert.deepEqual([reply.status, reply.text], [200, '{"id":5}'], String(pieces[0]));
    }
  });

  test('trailers that are cut anywhere change nothing', async () => {
    const trailers = '0\r\nContent-Digest: 7\r\nKeep-Alive: timeout=9\r\n\r\n';
    const bytes = Buffer.from(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n${trailers}`);
    const start = bytes.length - trailers.length;
    for (let cut = start + 1; cut < bytes.length; cut += 1) {
      const reply = await callInterrupted([bytes.subarray(0, cut), bytes.subarray(cut)]);
      assert.deepEqual([reply.status, reply.text], [200, '[]'], String(cut - start));
    }
  });

  test('a list that its client reads slowly stays as it is while others are read', async () => {
    const slowLists = ['a', 'b', 'c'].map((letter) => list(letter, 12_000_000));
    const slow = await Promise.all(
      slowLists.map(async (body) => {
        const client = await target().connect();
        client.pause();
        return { client, body };
      }),
    );
    for (const { client, body } of slow) {
      target().backend.answersOnce(answer(body));
      client.send('GET /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n');
      await target().backend.nextRequest();
    }
    // One goes away in the middle of its list, and takes nobody's memory along.
    const leaving = await target().connect();
    leaving.pause();
    target().backend.answersOnce(answer(list('d', 12_000_000)));
    leaving.send('GET /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n');
    await target().backend.nextRequest();
    for (let count = 0; count < 20; count += 1) {
      if (count === 10) leaving.reset();
      const body = list(String.fromCharCode(0x65 + count), 1_000_000 + count);
      target().backend.answersOnce(answer(body));
      const reply = await target().call('GET', '/api/work-items');
      assert.ok(reply.body.equals(body), `list ${count}`);
    }
    for (const { client, body } of slow) {
      client.resume();
      const reply = await client.reply();
      assert.equal(reply.status, 200);
      assert.ok(reply.body.equals(body), `the slow list of ${String.fromCharCode(body[1] ?? 0)}`);
      client.destroy();
    }
  });
});
