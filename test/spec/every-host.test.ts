// Clients that leave, stop or take too long, and the log of failures, in every host: the server, the plugin, the fetch
// handler and the Node handler.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, requestTimeout, succeeded } from '../helpers/expected.ts';
import { createObserver, hostNames, startGateway, type Settings } from '../helpers/gateway.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { answer, behind, latency } from '../helpers/scripted-backend.ts';

const item = '/api/work-items/5';
const large = `"${'x'.repeat(950)}"`;

for (const host of hostNames) {
  describe(host, () => {
    test('when a client leaves, its read is cancelled but its write is not, and the records have its address [D21, D52]', async () => {
      // Like a host that no longer knows the address of a closed connection.
      const clientAddress = (request: Request) => (request.signal.aborted ? undefined : '127.0.0.1');
      await using server = await startGateway({ host, settings: host === 'fetch' ? { clientAddress } : {} });
      const gate = createGate();
      server.backend.answers(behind(gate, answer('{"id":5}')));
      for (const method of ['DELETE', 'GET']) {
        await using client = await server.connect();
        client.send(requestBytes(method, item));
        await server.backend.nextRequest();
      }
      // The client of the read left last, so the gateway now knows that both clients have left.
      await server.backend.connectionClosed(1);
      assert.equal(server.backend.isClosed(0), false);
      gate.open();
      await poll(() => server.told.ended.length === 2, 'both calls have ended');
      const ended = server.told.ended.map((each) => [each.method, each.outcome, each.backendOutcome, each.client]);
      assert.deepEqual(ended, [
        ['GET', 'client-gone', 'cancelled', '127.0.0.1'],
        ['DELETE', 'client-gone', 'ok', '127.0.0.1'],
      ]);
    });

    // A `Response` does not show how much of it a client has read.
    if (host !== 'fetch') {
      test('a client that stops reading is disconnected, and its buffered bytes are released [D26, D35]', async () => {
        // Long enough that the second client is not cut off, even if a busy machine delays its reading.
        const settings = { replyStallTimeoutMs: 1_000, bufferedBytesMax: 30_000_000 };
        await using server = await startGateway({ host, settings });
        server.backend.answers(answer(Buffer.alloc(24_000_000, '1')));
        await using client = await server.connect();
        client.send(requestBytes('GET', '/api/work-items'));
        await client.receives(1);
        client.pause();
        await poll(() => server.told.stalled.length === 1, 'the client is cut off');
        assert.equal(server.told.stalled[0], server.told.ended[0]);
        assert.equal((await server.call('GET', '/api/work-items')).status, 200);
      });
    }

    test('a complete body has no timeout any more: the reply may take longer [D35]', async () => {
      await using server = await startGateway({ host, settings: { requestTimeoutMs: 100 } });
      server.backend.answers(latency(400, answer('{}')));
      await using client = await server.connect();
      for (let count = 0; count < 2; count += 1) {
        const reply = await client.call('PUT', item, { body: '{}' });
        assertReply(reply, 200, succeeded);
        assert.notEqual(reply.header('connection'), 'close');
      }
    });

    // spec/deadlines.test.ts and transport/buffered-bytes.test.ts have these cases for the server.
    if (host !== 'server') {
      test('a client that leaves before its body is complete causes no backend call, and no byte stays buffered [D26]', async () => {
        await using server = await startGateway({ host, settings: { bufferedBytesMax: 1_000 } });
        for (const method of ['PUT', 'DELETE', 'PUT']) {
          await using client = await server.connect();
          client.send(`${method} ${item} HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n${large.slice(0, 800)}`);
          client.reset();
        }
        // Fastify starts no call before the body is complete.
        if (host !== 'plugin') await poll(() => server.told.ended.length === 3, 'the calls have ended');
        const isServed = async () => (await server.call('PUT', item, { body: large })).status === 200;
        await poll(isServed, 'the bytes are released');
        assert.equal(server.backend.requests.length, 1);
      });

      test('a stalled body is 408 without a backend call, and its bytes are released [D26, D35]', async () => {
        await using server = await startGateway({ host, settings: { bufferedBytesMax: 1_000, requestTimeoutMs: 300 } });
        // The limit also applies to a DELETE, which needs no body.
        const lines = ['POST /api/work-items', `PUT ${item}`, `DELETE ${item}`];
        for (const line of lines) {
          await using client = await server.connect();
          client.send(`${line} HTTP/1.1\r\nHost: x\r\nContent-Length: 700\r\n\r\n${' '.repeat(600)}`);
          const reply = await client.reply();
          assertReply(reply, 408, requestTimeout);
          // Hono's server decides about the connections of the fetch handler.
          if (host === 'fetch') continue;
          assert.equal(reply.header('connection'), 'close');
          await client.closed();
        }
        const outcomes = server.told.ended.map(({ outcome, reason, cause }) => [outcome, reason, typeof cause]);
        const late = ['bad-request', 'request-timeout', 'string'];
        assert.deepEqual(outcomes, [late, late, late]);
        assert.deepEqual(server.backend.requests, []);
        assertReply(await server.call('PUT', item, { body: large }), 200, succeeded);
      });
    }

    const fail = async (settings: Settings) => {
      await using gateway = await startGateway({ host, settings });
      gateway.backend.answers(answer('', { status: 503 }));
      assert.equal((await gateway.call('GET', `${item}?secret=1`)).status, 500);
      assert.equal((await gateway.call('GET', '/api/work-items/x')).status, 400);
    };

    test('a failure is a line for `log`, also with an observer; a fault of the client is none [D50, D51]', async () => {
      const lines: string[] = [];
      const { told, observer } = createObserver();
      await fail({ observer, log: (line) => lines.push(line) });
      assert.deepEqual(told.ended.map(({ outcome }) => outcome), ['refused', 'invalid-id']); // prettier-ignore
      const start = 'work-item-gateway: GET /api/work-items/5 (request id ';
      const end = ') got 500, outcome refused: the backend answered without success. Cause: status 503.';
      assert.equal(lines.join('\n').replace(/request id [^)]+/, 'request id '), start + end);
    });

    if (host !== 'plugin') {
      test('without `log`, the line goes to console.error; `log: false` writes nothing [D50]', async (context) => {
        const written = context.mock.method(console, 'error', () => undefined);
        await fail({ observer: { onStall: () => undefined }, log: undefined });
        assert.equal(written.mock.callCount(), 1);
        assert.equal(written.mock.calls[0]?.arguments.length, 1);
        await fail({ log: false });
        assert.equal(written.mock.callCount(), 1);
      });
    }
  });
}
