// Bodies that are JSON are passed on byte for byte in both directions; all others fail [spec 4, rules 5 and 6; D13, D14].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { assertReply, operation, succeeded } from '../helpers/expected.ts';
import { isJsonByOracle } from '../json/oracle.ts';
import { jsonVectors } from '../json/vectors.ts';
import { chunk, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';

/** Texts of 100 kB and more. */
const large: [text: string, isValid: boolean][] = [
  [`"${'a'.repeat(100_000)}"`, true],
  [`[${'0,'.repeat(50_000)}0]`, true],
  [`${' '.repeat(100_000)}1`, true],
  [`${'{"a":'.repeat(100_000)}0${'}'.repeat(100_000)}`, true],
  [`${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}`, true],
  ['['.repeat(1_000_000), false],
  [`${'['.repeat(100_000)}${']'.repeat(100_001)}`, false],
];

const create = operation(2);
const update = operation(4);
const read = operation(3);

forEachTarget((target) => {
  const vectors = jsonVectors.map(({ name, bytes, isValid }) => [name, bytes, isValid] as const);
  const texts = [...vectors, ...large.map(([text, isValid]) => [text.slice(0, 10), Buffer.from(text), isValid] as const)];

  test('each text of test/json/vectors.ts, and large ones, arrive byte for byte or are refused, as request and as answer [D13, D14]', async () => {
    await using client = await target().connect();
    for (const [name, bytes, isValid] of texts) {
      target().backend.reset();
      target().backend.answers(answer(bytes));
      const updated = await client.call('PUT', update.path, { body: bytes });
      const created = await client.call('POST', create.path, { body: bytes });
      const sent = target().backend.requests.map(({ body }) => body);
      const fetched = await client.call('GET', read.path);
      const replies = [updated, created, fetched].map(({ status, body }) => [status, body.toString('latin1')]);
      const text = bytes.toString('latin1');
      const expected = isValid
        ? [[200, succeeded], [201, text], [200, text]]
        : [[500, update.failure], [500, create.failure], [500, read.failure]];
      assert.ok(isDeepStrictEqual(replies, expected), `${name}: ${JSON.stringify(replies).slice(0, 200)}`);
      assert.ok(isDeepStrictEqual(sent, isValid ? [bytes, bytes] : []), name);
    } // prettier-ignore
  });

  /** JSON, almost JSON, and random bytes. */
  const anyBytes = fc.oneof(
    fc.json().map((text) => Buffer.from(text)),
    fc.jsonValue().map((value) => Buffer.from(JSON.stringify(value, undefined, 2))),
    fc.tuple(fc.json(), fc.nat(), fc.integer({ min: 0, max: 255 })).map(([text, at, byte]) => {
      const bytes = Buffer.from(text);
      bytes[at % bytes.length] = byte;
      return bytes;
    }),
    fc.tuple(fc.json(), fc.nat()).map(([text, at]) => {
      const bytes = Buffer.from(text);
      return bytes.subarray(0, at % (bytes.length + 1));
    }),
    fc.string({ unit: 'binary' }).map((text) => Buffer.from(JSON.stringify(text))),
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
    fc.array(fc.constantFrom(...Array.from('{}[]:,"\\ue1.-+0truefalsn \n\xc3\xa9')), { maxLength: 12 }).map((tokens) => Buffer.from(tokens.join(''), 'latin1')), // prettier-ignore
  );
  const cuts = fc.array(fc.nat(), { maxLength: 4 });
  const seed = Number(process.env['FAST_CHECK_SEED'] ?? 20240501);
  // The other hosts need fewer runs: they have the same checker, and differ only in how they read a body.
  const parameters = () => ({ seed, numRuns: target().kind === 'in-process' ? 300 : 75 });

  test('any request body reaches the backend unchanged or not at all [D13, D14]', async () => {
    await using client = await target().connect();
    await fc.assert(
      fc.asyncProperty(anyBytes, cuts, async (bytes, places) => {
        target().backend.reset();
        client.send(requestBytes('PUT', update.path, { headers: [['Transfer-Encoding', 'chunked']] }));
        for (const piece of cut(bytes, places)) client.send(chunk(piece));
        client.send('0\r\n\r\n');
        const reply = await client.reply();
        if (isJsonByOracle(bytes)) {
          assertReply(reply, 200, succeeded);
          assert.deepEqual(target().backend.requests.map((call) => call.body), [bytes]); // prettier-ignore
        } else {
          assertReply(reply, 500, update.failure);
          assert.deepEqual(target().backend.requests, []);
        }
      }),
      parameters(),
    );
  });

  test('any answer reaches the client unchanged or not at all [D13, D14]', async () => {
    await using client = await target().connect();
    await fc.assert(
      fc.asyncProperty(anyBytes, cuts, async (bytes, places) => {
        target().backend.answers(async (exchange) => {
          await exchange.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
          for (const piece of cut(bytes, places)) await exchange.write(chunk(piece));
          await exchange.write('0\r\n\r\n');
        });
        const reply = await client.call('GET', read.path);
        if (isJsonByOracle(bytes)) assertReply(reply, 200, bytes);
        else assertReply(reply, 500, read.failure);
      }),
      parameters(),
    );
  });
}, {}, { kinds: ['in-process', 'plugin', 'fetch', 'node'] }); // prettier-ignore

/** Cuts `bytes` at `places` into non-empty pieces: an empty chunk would end the body. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [0, ...places.map((place) => place % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  return at.map((start, index) => bytes.subarray(start, at[index + 1] ?? start)).filter((piece) => piece.length > 0);
}
