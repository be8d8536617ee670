// A fault of our own: the operation's 500, and never a word of it in the reply. D28. The fault is a request of which a
// part cannot be read: made from outside, by the server that the plugin is mounted in.

import assert from 'node:assert/strict';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import type { FastifyInstance } from 'fastify';
import { gatewayServerOptions, workItemGateway } from '../../src/index.ts';
import { assertReply, operations, succeeded } from '../helpers/expected.ts';
import { Fastify } from '../helpers/fastify.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';

/** A server with the plugin in it, and whatever `prepare` adds before. */
async function serve(prepare: (app: FastifyInstance) => void) {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const app = Fastify(gatewayServerOptions());
  prepare(app);
  await app.register(workItemGateway, { backendUrl: backend.url });
  await app.listen({ host: '127.0.0.1', port: 0 });
  return {
    port: (app.server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: async () => {
      app.server.closeAllConnections();
      await app.close();
      await backend.stop();
    },
  };
}

const faulty = ['x-fault', '1'] as const;
const isFaulty = (headers: Record<string, unknown>) => headers['x-fault'] === '1';

for (const [name, prepare] of [
  ...['headers', 'rawHeaders'].map((part): [string, (app: FastifyInstance) => void] => [
    `a request whose ${part} cannot be read`,
    (app) => {
      app.addHook('onRequest', (request, _, done) => {
        if (isFaulty(request.headers)) {
          Object.defineProperty(request.raw, part, {
            get() {
              throw new TypeError('SECRET');
            },
          });
        }
        done();
      });
    },
  ]),
  ...(['onRequest', 'preHandler'] as const).map((stage): [string, (app: FastifyInstance) => void] => [
    `an exception at the stage ${stage}`,
    (app) => {
      app.addHook(stage as 'onRequest', (request, _, done) => {
        done(isFaulty(request.headers) ? new TypeError('SECRET') : undefined);
      });
    },
  ]),
] satisfies [string, (app: FastifyInstance) => void][]) {
  test(`${name} gets the operation's 500, without a word of the fault, and the next request is served [D28]`, async () => {
    await using server = await serve(prepare);
    for (const { method, path, options, failure } of operations) {
      await using client = await RawClient.open(server.port);
      const reply = await client.call(method, path, { ...options, headers: [faulty] });
      assertReply(reply, 500, failure);
      assert.doesNotMatch(JSON.stringify(reply.headers), /SECRET/);
    }
    await using lost = await RawClient.open(server.port);
    const reply = await lost.call('GET', '/nowhere', { headers: [faulty] });
    assertReply(reply, 500, '{"error":"Internal server error"}');
    await using next = await RawClient.open(server.port);
    assertReply(await next.call('DELETE', '/api/work-items/5'), 200, succeeded);
  });
}
