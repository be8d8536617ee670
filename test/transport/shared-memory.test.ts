// All answers arrive in one buffer. No client gets bytes of another client's answer, even if its answer arrives in pieces
// between complete answers to others. own-bytes.test.ts asks the same of clients that read slowly.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { answer, answerBytes, type Answer } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';

/** A JSON string of `length` bytes that repeats one letter. */
function list(letter: string, length: number): Buffer {
  const bytes = Buffer.alloc(length, letter);
  bytes[0] = bytes[length - 1] = 0x22;
  return bytes;
}

const ok = 'HTTP/1.1 200 OK\r\n';

forEachTarget((target) => {
  /** Makes a call whose answer arrives in `pieces`, with another client's complete call between two pieces. */
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
      // Overwrites the beginning of the shared buffer with other bytes.
      target().backend.answersOnce(answer(list('z', 20_000)));
      const other = await target().call('GET', '/api/work-items');
      assert.ok(other.body.equals(list('z', 20_000)));
      next.open();
    }
    return await reply;
  };

  test('a body in pieces of all sizes, and a small body in two pieces, arrive unchanged', async () => {
    const bytes = answerBytes(list('a', 70_000));
    const pieces: Buffer[] = [];
    for (let from = 0, size = 1; from < bytes.length; from += size, size = size * 3 + 1) {
      pieces.push(bytes.subarray(from, from + size));
    }
    assert.ok((await callInterrupted(pieces)).body.equals(list('a', 70_000)));
    for (const [first, whole] of [[1, 2], [1_000, 16_384], [3_000, 16_385]] as const) {
      const small = answerBytes(list('a', whole));
      const cut = small.length - whole + first;
      const reply = await callInterrupted([small.subarray(0, cut), small.subarray(cut)]);
      assert.ok(reply.body.equals(list('a', whole)), `${first} of ${whole} bytes`);
    } // prettier-ignore
  });

  const failure = '{"error":"Failed to fetch work items"}';
  for (const [what, before, part, rest, status, text] of [
    ['a head', '', answerBytes('{"id":5}').toString(), '', 200, '{"id":5}'],
    ['a malformed head', '', `${ok}Transfer-Encoding: gzip, chunked\r\n\r\n`, '2\r\n[]\r\n0\r\n\r\n', 500, failure],
    ['trailers', `${ok}Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n`, '0\r\nDigest: 7\r\nKeep-Alive: timeout=9\r\n\r\n', '', 200, '[]'],
  ] as const) {
    test(`${what}, split at any byte, is read as if it were not split [D15, D18]`, async () => {
      for (let cut = 1; cut < part.length; cut += 1) {
        const pieces = [before + part.slice(0, cut), part.slice(cut) + rest].map((piece) => Buffer.from(piece));
        const reply = await callInterrupted(pieces);
        assert.deepEqual([reply.status, reply.text], [status, text], `cut at ${cut}`);
      }
    });
  }
}, {}, { kinds: ['in-process'] }); // prettier-ignore
