// Size and encoding of the backend's answers [D17, D18, D22]. test/faults/matrix.test.ts tests all other answers.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import {
  assertReply,
  discarding,
  itemNotFound,
  operation,
  operations,
  passing,
  succeeded,
  type Operation,
} from '../helpers/expected.ts';
import { type Reply } from '../helpers/raw-client.ts';
import { answer, chunked, endless, rawThenClose, type Answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, forEveryTarget, type Target } from '../helpers/targets.ts';

const item = '{"id":5}';
const endlessBody = endless('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', `1000\r\n${' '.repeat(4096)}\r\n`);
/** Tests each operation with `backendAnswer`, on a new and on a reused backend connection. `assertIt` checks the reply. */
function testEach(
  target: () => Target,
  title: string,
  backendAnswer: Answer,
  assertIt: (reply: Reply, operation: Operation) => void,
  which: readonly Operation[] = operations,
): void {
  for (const each of which) {
    test(`operation ${each.name}: ${title}`, async () => {
      await using client = await target().connect();
      for (const connection of ['keep-alive', 'close']) {
        target().backend.answersOnce(answer('[]', { headers: [['Connection', connection]] }));
        await client.call('GET', '/api/work-items');
        target().backend.answersOnce(backendAnswer);
        const before = target().backend.requests.length;
        assertIt(await client.call(each.method, each.path, each.options), each);
        assert.equal(target().backend.requests.length, before + 1, 'one backend call');
      }
      await target().settle();
    });
  }
}

forEveryTarget((target) => {
  for (const { name, method, path, options, failure } of passing) {
    test(`operation ${name}: the gateway sends no Accept-Encoding, and a gzip answer is not JSON [D22]`, async () => {
      target().backend.answersOnce(answer(gzipSync(item), { headers: [['Content-Encoding', 'gzip']] }));
      const reply = await target().call(method, path, { ...options, headers: [['Accept-Encoding', 'gzip']] });
      assertReply(reply, 500, failure);
      assert.equal((await target().backend.nextRequest()).header('accept-encoding'), undefined);
    });
  }
});

describe('RESPONSE_BYTES_MAX=1000', () => {
  forEachTarget(
    (target) => {
      const atLimit = `"${'x'.repeat(998)}"`;
      const framings: [name: string, make: (body: string, status: number) => Answer][] = [
        ['content-length', (body, status) => answer(body, { status })],
        ['chunked', (body, status) => chunked(`${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`, { status })],
        ['until close', (body, status) => rawThenClose(`HTTP/1.1 ${status} X\r\n\r\n${body}`)],
      ];
      for (const [framing, make] of framings) {
        testEach(
          target,
          `a body as large as the limit is passed on, ${framing} [D18]`,
          make(atLimit, 200),
          (reply, { status }) => assertReply(reply, status, atLimit),
          passing,
        );

        testEach(
          target,
          `a body over the limit is not passed on: the client gets 500, ${framing} [D18]`,
          make(`${atLimit} `, 200),
          (reply, { failure }) => assertReply(reply, 500, failure),
          passing,
        );

        testEach(
          target,
          `a body over the limit is ignored if the operation discards bodies, ${framing} [D17]`,
          make(`"${'x'.repeat(300_000)}"`, 200),
          (reply) => assertReply(reply, 200, succeeded),
          discarding,
        );

        testEach(
          target,
          `a 404 with a body over the limit is a 404, ${framing} [D17]`,
          make(`"${'x'.repeat(300_000)}"`, 404),
          (reply) => assertReply(reply, 404, itemNotFound),
          [operation(3)],
        );
      }

      testEach(
        target,
        'an endless body is not passed on: the client gets 500 [D18]',
        endlessBody,
        (reply, { failure }) => assertReply(reply, 500, failure),
        passing,
      ); // prettier-ignore

      test('an answer over the limit closes its backend connection [D18]', async () => {
        target().backend.answersOnce(endlessBody);
        assertReply(await target().call('GET', '/api/work-items'), 500, operation(1).failure);
        const { connection } = await target().backend.nextRequest();
        await target().backend.connectionClosed(connection);
      });
    },
    { responseBytesMax: 1000 },
    { kinds: ['in-process'] },
  );
});
