// A fault of our own: the operation's 500, and never a word of it in the reply. D28. The fault is a request of which a
// part cannot be read: made from outside, by the server that the plugin is mounted in.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertReply, operations, succeeded } from '../helpers/expected.ts';
import { Fastify } from '../helpers/fastify.ts';
import { serve } from '../helpers/hosts.ts';
import { RawClient } from '../helpers/raw-client.ts';

const faulty = ['x-fault', '1'] as const;
const isFaulty = (headers: Record<string, unknown>) => headers['x-fault'] === '1';

test("a request that cannot be read gets the operation's 500, without a word of the fault, and the next request is served [D28]", async () => {
  const app = Fastify();
  app.addHook('onRequest', (request, _, done) => {
    if (isFaulty(request.headers)) {
      Object.defineProperty(request.raw, 'rawHeaders', {
        get() {
          throw new TypeError('SECRET');
        },
      });
    }
    done();
  });
  await using server = await serve(app);
  for (const { method, path, options, failure } of operations) {
    await using client = await RawClient.open(server.port);
    const reply = await client.call(method, path, { ...options, headers: [faulty] });
    assertReply(reply, 500, failure);
    assert.doesNotMatch(JSON.stringify(reply.headers), /SECRET/);
  }
  await using next = await RawClient.open(server.port);
  assertReply(await next.call('DELETE', '/api/work-items/5'), 200, succeeded);
});
