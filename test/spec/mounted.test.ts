// The plugin in a Fastify server: it answers its own paths and leaves the rest to the host. D5, D24, D28.

import assert from 'node:assert/strict';
import { describe, mock, test } from 'node:test';
import type { FastifyInstance } from 'fastify';
import { workItemGateway, type WorkItemGatewayOptions } from '../../packages/core/hosts/index.ts';
import { poll } from '../helpers/changes.ts';
import {
  assertHeaders,
  assertReply,
  invalidId,
  methodNotAllowed,
  operation,
  operations,
  succeeded,
} from '../helpers/expected.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { serve, versions } from '../plugin/hosts.ts';
import { answer } from '../helpers/scripted-backend.ts';

for (const [version, Fastify] of Object.entries(versions)) {
  describe(`${version} Fastify`, () => {
    /** A server and the lines of its log. Writing each of the first `lost` lines throws. */
    function createLoggingServer(lost = 0) {
      const lines: Record<string, unknown>[] = [];
      const stream = {
        write: (line: string) => {
          lost -= 1;
          if (lost >= 0) throw new TypeError('SECRET');
          lines.push(JSON.parse(line) as Record<string, unknown>);
        },
      };
      const app = Fastify({ logger: { level: 'warn', stream } });
      return { app, lines };
    }

    for (const prefix of ['', '/v1', '/v1/']) {
      test(`every operation works under the prefix "${prefix}" of its host [spec 4]`, async () => {
        await using server = await serve(Fastify(), { prefix });
        const base = prefix.replace(/\/$/, '');
        for (const { method, path, options, status, body, backendTarget } of operations) {
          assertReply(await server.call(method, base + path, options), status, body);
          assert.equal(server.backend.requests.at(-1)?.target, backendTarget);
        }
        assertReply(await server.call('PUT', `${base}/api/work-items/x`), 400, invalidId);
        assertReply(await server.call('PUT', `${base}/api/work-items`), 405, methodNotAllowed, ['allow']);
        assert.deepEqual(server.backend.violations, []);
      });
    }

    test('the host still serves other paths and parses their bodies [D5]', async () => {
      const app = Fastify();
      app.post('/echo', (incoming) => ({ got: incoming.body }));
      await using server = await serve(app, { prefix: '/v1' });
      const echo = await server.call('POST', '/echo', {
        headers: [['Content-Type', 'application/json']],
        body: '{"a":1}',
      });
      assert.equal(echo.text, '{"got":{"a":1}}');
      assert.equal(echo.header('x-request-id'), undefined);
      const unknown = await server.call('GET', '/api/work-items');
      assert.equal(unknown.status, 404);
      assert.notEqual(unknown.text, '{"error":"Not found"}');
    });

    test("headers from the host's hooks are added to a reply, but never replace the gateway's headers [D24]", async () => {
      const app = Fastify();
      app.addHook('onRequest', (_request, reply, done) => {
        reply.headers({
          'access-control-allow-origin': '*',
          'set-cookie': ['a=1', 'b=2'],
          'x-count': 3,
          'content-type': 'text/html',
          'content-length': '1',
          'cache-control': 'public',
          'x-content-type-options': 'none',
          'x-request-id': 'hidden',
          'transfer-encoding': 'chunked',
          connection: 'close',
        });
        done();
      });
      await using server = await serve(app);
      await using client = await RawClient.open(server.port);
      for (const { method, path, options, status, body } of operations) {
        const reply = await client.call(method, path, options);
        assert.equal(reply.status, status);
        assert.equal(reply.text, body);
        assertHeaders(reply, [
          'content-type',
          'content-length',
          'access-control-allow-origin',
          'set-cookie',
          'set-cookie',
          'x-count',
        ]);
        assert.equal(reply.header('content-type'), 'application/json');
        assert.equal(reply.header('access-control-allow-origin'), '*');
        assert.equal(reply.header('x-count'), '3');
        const cookies = reply.headers.filter(([name]) => name === 'set-cookie').map(([, value]) => value);
        assert.deepEqual(cookies, ['a=1', 'b=2']);
        assert.notEqual(reply.header('x-request-id'), 'hidden');
        assert.notEqual(reply.header('connection'), 'close');
      }
    });

    test('the connection stays open after Node has sent 100 Continue', async () => {
      await using server = await serve(Fastify());
      await using client = await RawClient.open(server.port);
      client.send(
        'GET /api/work-items HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n' +
          'DELETE /api/work-items/5 HTTP/1.1\r\nHost: x\r\n\r\n',
      );
      assert.equal((await client.reply()).status, 100);
      assertReply(await client.reply(), 200, '{"id":5}');
      assertReply(await client.reply(), 200, succeeded);
    });

    test('an expectation that the host accepts is not refused', async () => {
      const app = Fastify();
      app.server.on('checkExpectation', (...each) => app.server.emit('request', ...each));
      await using server = await serve(app);
      const headers = [['Expect', 'the-best']] as const;
      assertReply(await server.call('GET', '/api/work-items', { headers }), 200, '{"id":5}');
    });

    test("a failure is a warning in the host's log, with its cause; a success is not logged", async () => {
      const { app, lines } = createLoggingServer();
      await using server = await serve(app);
      await server.call('GET', '/api/work-items');
      server.backend.answersOnce(answer('no JSON'));
      const headers = [['X-Request-Id', 'failed']] as const;
      assertReply(await server.call('GET', '/api/work-items', { headers }), 500, operation(1).failure);
      await poll(() => lines.length > 0, 'a line in the log');
      await server.call('GET', '/nowhere');
      assert.equal(lines.length, 1);
      const { level, requestId, operation: name, status, outcome, cause, msg } = lines[0] ?? {};
      assert.deepEqual(
        { level, requestId, name, status, outcome, cause, msg },
        {
          level: 40,
          requestId: 'failed',
          name: 'list',
          status: 500,
          outcome: 'not-json',
          cause: 'a body that is not JSON',
          msg: 'backend call failed',
        },
      );
    });

    test('faults of the client are not logged [D51]', async () => {
      const { app, lines } = createLoggingServer();
      await using server = await serve(app);
      for (const [status, method, path] of [
        [404, 'GET', '/api/work-items/5'],
        [404, 'DELETE', '/api/work-items/5'],
        [409, 'GET', '/api/work-items/6'],
      ] as const) {
        server.backend.answers(answer('{}', { status }));
        await server.call(method, path);
      }
      await server.call('PUT', '/api/work-items/5', { body: '{' });
      server.backend.answers(answer('{}', { status: 401 }));
      await server.call('GET', '/api/work-items');
      await poll(() => lines.length > 0, 'a line');
      assert.deepEqual(
        lines.map(({ outcome, cause }) => [outcome, cause]),
        [['refused', 'status 401']],
      );
    });

    test("after a fault of the gateway the client gets 500; only the host's log has the error's message and stack [D28]", async () => {
      const { app, lines } = createLoggingServer();
      app.addHook('onRequest', (incoming, _reply, done) => {
        if (incoming.headers['x-fault'] !== undefined) {
          Object.defineProperty(incoming.raw, 'rawHeaders', {
            get() {
              throw new TypeError('SECRET');
            },
          });
        }
        done();
      });
      await using server = await serve(app);
      for (const { method, path, options, failure } of operations) {
        const reply = await server.call(method, path, { ...options, headers: [['X-Fault', '1']] });
        assertReply(reply, 500, failure);
        assert.doesNotMatch(JSON.stringify(reply.headers), /SECRET/);
      }
      assertReply(await server.call('DELETE', '/api/work-items/5'), 200, succeeded);
      await poll(() => lines.length >= operations.length, 'a line in the log for each');
      assert.equal(lines.length, operations.length);
      const { level, operation: name, status, outcome, err, msg } = lines.at(-1) ?? {};
      assert.deepEqual(
        { level, name, status, outcome, msg },
        { level: 50, name: 'delete', status: 500, outcome: 'bug', msg: 'internal error' },
      );
      const { type, message, stack } = err as Record<'type' | 'message' | 'stack', string>;
      assert.deepEqual({ type, message }, { type: 'TypeError', message: 'SECRET' });
      assert.match(stack, /at /);
    });

    test("a fault of the gateway after a reply is an error in the host's log [D28]", async () => {
      const { app, lines } = createLoggingServer(1);
      await using server = await serve(app);
      server.backend.answersOnce(answer('no JSON'));
      assertReply(await server.call('GET', '/api/work-items'), 500, operation(1).failure);
      await poll(() => lines.length > 0, 'a line in the log');
      const { level, operation: name, outcome, err, msg } = lines[0] ?? {};
      assert.deepEqual(
        { level, name, outcome, msg, message: (err as Error).message },
        {
          level: 50,
          name: 'list',
          outcome: 'not-json',
          msg: 'internal error after the reply had begun',
          message: 'SECRET',
        },
      );
    });

    // test/unit/host-options.test.ts tests all options.
    test('if options are invalid, the registration fails with an error that names all of them', async () => {
      const app = Fastify();
      const options = { backendUrl: 'http://localhost:5104', idleTimeoutMs: 5, shutdownTimeoutMs: 0 };
      await assert.rejects(
        async () => {
          await app.register(workItemGateway, options as WorkItemGatewayOptions);
        },
        (error) =>
          error instanceof TypeError &&
          error.message.endsWith(
            'shutdownTimeoutMs must be a whole number from 1 to 2147483647; idleTimeoutMs is unknown.',
          ),
      );
    });

    test("valid options and Fastify's own plugin options are accepted", async () => {
      const app = Fastify();
      const observer = { onCallEnd: mock.fn(), onMalformed: mock.fn(), onStall: mock.fn(), onBug: mock.fn() };
      const ours = { backendUrl: new URL('http://localhost:5104'), shutdownTimeoutMs: 1, observer };
      await app.register(workItemGateway, { ...ours, prefix: '/v1', logLevel: 'warn', logSerializers: {} });
      await app.close();
    });

    test('mounting the plugin in an HTTP/2 server fails with an explanation', async () => {
      const app = Fastify({ http2: true }) as unknown as FastifyInstance;
      await assert.rejects(async () => {
        await app.register(workItemGateway, { backendUrl: 'http://localhost:5104' });
      }, /HTTP\/1\.1/);
    });
  });
}
