// The reported causes if a server is not a usable Redis. They contain neither password nor user name [D47].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { test } from 'node:test';
import { RedisCounter } from '../../packages/core/guards/rate-limit/redis-counter.ts';

const notRedis = 'the answer is not the protocol of Redis: is this the address of a Redis?';
const closed = 'Redis closed the connection before it answered: did you mean rediss:?';

for (const [what, onData, cause] of [
  ['is silent', () => undefined, 'no answer within 100 ms'],
  ['speaks HTTP', (socket) => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'), notRedis],
  ['speaks HTTP and closes the connection', (socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'), notRedis],
  ['closes the connection', (socket) => socket.end(), closed],
  ['answers OK to everything', (socket) => socket.write('+OK\r\n'), 'the answer is malformed'],
  ['answers with texts instead of numbers', (socket) => socket.write('*2\r\n$1\r\n1\r\n$1\r\n9\r\n'), 'the answer is malformed'],
  ['answers with one number', (socket) => socket.write('*1\r\n:1\r\n'), 'the answer is malformed'],
  ['repeats the password', (socket) => socket.write('-ERR AUTH of ad%61 (ad%2561) with hun%ter2 (hun%25ter2)\r\n'), 'ERR AUTH of *** (***) with *** (***)'],
] as readonly (readonly [string, (socket: Socket) => unknown, string])[]) {
  test(`if a server ${what}, the cause is "${cause}" [D47]`, async () => {
    const server = createServer((socket) => socket.on('error', () => undefined).on('data', () => onData(socket)));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const credentials = what === 'repeats the password' ? 'ad%2561:hun%25ter2@' : '';
    const url = new URL(`redis://${credentials}127.0.0.1:${port}`);
    const counter = new RedisCounter(url, () => assert.fail('the password is reported as unused'));
    try {
      const error: unknown = await counter.revive(() => undefined).catch((each: unknown) => each);
      assert.ok(error instanceof Error);
      assert.deepEqual([error.message, error.cause], [cause, undefined]);
    } finally {
      counter.close();
      server.close();
    }
  });
} // prettier-ignore

const count = '*2\r\n:9\r\n:1000\r\n';
for (const [what, auth, probe, result] of [
  ['requires no password (Redis 5)', '-ERR Client sent AUTH, but no password is set\r\n', count, 'unused'],
  ['requires no password, in words of its own', '-ERR what is a password?\r\n', count, 'unused'],
  ['requires another password', '-WRONGPASS invalid password\r\n', '-NOAUTH Authentication required.\r\n', 'WRONGPASS invalid password'],
  ['refuses AUTH and is then silent', '-ERR no\r\n', '', 'no answer within 100 ms'],
] as const) {
  test(`a server that ${what}: ${result} [D47]`, async () => {
    const server = createServer((socket) =>
      socket.on('error', () => undefined).on('data', (data) => {
        if (data.includes('auth')) socket.write(auth);
        if (data.includes('probe')) socket.write(probe);
      }),
    );
    await once(server.listen(0, '127.0.0.1'), 'listening');
    let unused = 0;
    const url = new URL(`redis://:secret@127.0.0.1:${(server.address() as AddressInfo).port}`);
    const counter = new RedisCounter(url, () => (unused += 1));
    const outcome = await counter.revive(() => undefined).then(() => 'unused', (error: unknown) => (error as Error).message);
    counter.close();
    assert.equal(outcome, result);
    assert.equal(unused, result === 'unused' ? 1 : 0);
    await once(server.close(), 'close');
  });
} // prettier-ignore

test('a counter without a connection counts nothing [D47]', async () => {
  const counter = new RedisCounter(new URL('redis://127.0.0.1:1'), () => undefined);
  await assert.rejects(counter.ask({ rate: { limit: 1, windowMs: 1_000 }, keys: ['a'] }), new Error('not connected'));
});
