// A backend answers before the whole request is sent, then resets the connection. The gateway reads what has arrived before
// it handles the failed write [D17, D18].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { createServer as createTlsServer } from 'node:tls';
import { createOpenSocket } from '../../packages/core/hosts/dialing/open-socket.ts';
import { BackendConnection } from '../../packages/core/http1/backend-connection.ts';
import { BorrowedBytes } from '../../packages/core/http1/borrowed-bytes.ts';
import { poll } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { Program } from '../helpers/program.ts';
import { assertReply } from '../helpers/expected.ts';

const head = 'HTTP/1.1 413 Payload Too Large\r\nContent-Length: ';
// `broken` stands for the failed write.
const answers: [title: string, bytes: string, seen: (string | number)[]][] = [
  ['a whole answer', `${head}0\r\n\r\n`, [413, 'end']],
  ['a whole answer with a body', `${head}3000\r\n\r\n${'x'.repeat(3_000)}`, [413, 'end']],
  ['the head of an answer', `${head}9\r\n\r\nx`, [413, 'broken']],
  ['nothing', '', ['broken']],
];

// A self-signed certificate for localhost and 127.0.0.1.
const pem = (name: string) => readFileSync(new URL(`../vectors/tls/backend-${name}.pem`, import.meta.url), 'utf8');
const [cert, key] = [pem('certificate'), pem('key')];
for (const scheme of ['http', 'https']) {
  for (const [title, bytes, expected] of answers) {
    test(`${title} over ${scheme}, then a reset, when a write fails: all that arrived is read`, async (t) => {
      const carriers: Socket[] = [];
      const peers: Socket[] = [];
      const take = (socket: Socket) => peers.push(socket.on('error', () => undefined));
      const server = scheme === 'http' ? createServer(take) : createTlsServer({ cert, key, noDelay: true }, take);
      server.on('connection', (socket) => carriers.push(socket)).listen(0, '127.0.0.1');
      t.after(() => server.close());
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo;
      const open = createOpenSocket(new URL(`${scheme}://127.0.0.1:${port}`), () => ({ ca: cert }));
      const { promise, resolve, reject } = Promise.withResolvers<BackendConnection>();
      let connection: BackendConnection | undefined;
      open({
        onOpen: (socket) => resolve((connection = new BackendConnection(socket, () => undefined))),
        onFailed: reject,
        onBytes: (arrived) => connection?.onBytes(arrived),
      });
      const opened = await promise;
      t.after(() => opened.destroy());
      await poll(() => peers.length > 0, 'the peer');
      // The peer sends all that belongs to its handshake.
      for (let turns = 0; turns < 20; turns += 1) await nextTurn();
      const seen: (number | string)[] = [];
      const body = new BorrowedBytes([Buffer.alloc(40_000), Buffer.alloc(40_000)]);
      opened.send('PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 80000\r\n\r\n', body, {
        onSent: () => {
          peers[0]?.write(bytes);
          carriers[0]?.resetAndDestroy();
        },
        onAnswerHead: ({ status }) => seen.push(status),
        onAnswerBody: () => undefined,
        onAnswerEnd: (isReusable) => seen.push(isReusable ? 'end, reusable' : 'end'),
        onBroken: (error) => {
          assert.ok(error instanceof Error);
          seen.push(error.message.startsWith('write E') ? 'broken' : error.message);
        },
        onFault: (error) => seen.push(String(error)),
      });
      await poll(() => seen.length > 0 && seen.at(-1) !== 413, 'the end');
      assert.deepEqual(seen, expected);
    });
  }
}

// A backend in a process of its own, so that its answer can arrive in the middle of a write.
const early = `
  const answer = 'HTTP/1.1 413 Payload Too Large\\r\\nContent-Length: 2\\r\\n\\r\\n{}';
  const server = require('node:net').createServer((socket) => {
    let bytes = 0;
    socket.on('error', () => undefined).on('data', (data) => {
      bytes += data.length;
      if (bytes > 300_000) {
        socket.write(answer);
        socket.resetAndDestroy();
      }
    });
  });
  server.listen(0, '127.0.0.1', () => require('node:fs').writeSync(1, 'port ' + server.address().port + '\\n'));
`;

test('a backend that answers a large write with 413 and a reset is never unreachable [D51]', async () => {
  await using backend = new Program([process.execPath, '-e', early]);
  const [, port] = await backend.prints(/^port (\d+)$/m);
  await using command = await startCommand({ BACKEND_URL: `http://127.0.0.1:${port}` });
  const calls = 4;
  for (let count = 0; count < calls; count += 1) {
    const body = `[${' '.repeat(8_000_000)}]`;
    const reply = await command.call('PUT', '/api/work-items/5', { body });
    assertReply(reply, 500, '{"error":"Failed to update work item"}');
  }
  const lines = () => command.logs.filter(({ operation }) => operation === 'update');
  await poll(() => lines().length === calls, 'all lines');
  assert.deepEqual(
    [...new Set(lines().map(({ outcome, cause }) => `${String(outcome)}: ${String(cause)}`))],
    ['rejected: status 413'],
  );
});
