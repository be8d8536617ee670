// How large an answer may be, and in which encoding: D17, D18 and D22. What any other answer becomes is in
// test/faults/matrix.test.ts.

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
import { bytesOf, type Reply } from '../helpers/raw-client.ts';
import { answer, chunked, endlessBody, rawThenClose, type Answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, forEveryTarget, type Target } from '../helpers/targets.ts';

const item = '{"id":5}';
/** Every operation gets this answer on a new and on a reused connection, and `assertIt` looks at the reply. */
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
    test(`operation ${name}: no encoding is asked for, and an encoded answer is not JSON [D22]`, async () => {
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
        [
          'chunked',
          (body, status) => chunked(`${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`, { status }),
        ],
        ['until close', (body, status) => rawThenClose(`HTTP/1.1 ${status} X\r\n\r\n${body}`)],
      ];
      for (const [framing, make] of framings) {
        testEach(
          target,
          `a body of exactly the limit passes, ${framing} [D18]`,
          make(atLimit, 200),
          (reply, { status }) => {
            assertReply(reply, status, atLimit);
          },
          passing,
        );

        testEach(
          target,
          `a needed body over the limit is the operation's 500, ${framing} [D18]`,
          make(`${atLimit} `, 200),
          (reply, { failure }) => {
            assertReply(reply, 500, failure);
          },
          passing,
        );

        testEach(
          target,
          `a body over the limit changes nothing where it is not needed, ${framing} [D17]`,
          make(`"${'x'.repeat(300_000)}"`, 200),
          (reply) => {
            assertReply(reply, 200, succeeded);
          },
          discarding,
        );

        testEach(
          target,
          `a 404 is a 404 whatever the size of its body, ${framing} [D17]`,
          make(`"${'x'.repeat(300_000)}"`, 404),
          (reply) => {
            assertReply(reply, 404, itemNotFound);
          },
          [operation(3)],
        );
      }

      testEach(
        target,
        'a body without end is the operation\'s 500 as soon as the limit is passed [D18]',
        endlessBody(),
        (reply, { failure }) => {
          assertReply(reply, 500, failure);
        },
        passing,
      ); // prettier-ignore

      test('an answer over the limit closes its backend connection [D18]', async () => {
        target().backend.answersOnce(endlessBody());
        assertReply(await target().call('GET', '/api/work-items'), 500, operation(1).failure);
        const { connection } = await target().backend.nextRequest();
        await target().backend.connectionClosed(connection);
      });
    },
    { responseBytesMax: 1000 },
  );
});

describe('RESPONSE_BYTES_MAX, the default', () => {
  forEachTarget(
    (target) => {
      test('the limit of an answer is 64 MiB when nothing sets it [D18]', async () => {
        const body = Buffer.alloc(64 * 1024 * 1024, 'x');
        body[0] = body[body.length - 1] = 0x22;
        target().backend.answersOnce(answer(body), answer(Buffer.concat([body, bytesOf(' ')])));
        const reply = await target().call('GET', '/api/work-items');
        assert.equal(reply.status, 200);
        assert.ok(reply.body.equals(body));
        assertReply(await target().call('GET', '/api/work-items'), 500, operation(1).failure);
      });
    },
    {},
    { kinds: ['command'] },
  );
});
