// How the server of connections uses its time, with the clock in the test's hand: when one more connection finds room, how
// often that there is none is told, and that nobody looks at connections when there are none [D26, D35].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';

import type { Connection } from '../../packages/core/http1/connection.ts';
import { ClientServer } from '../../packages/core/http1/server.ts';
import { poll } from '../helpers/changes.ts';
import { closed } from '../helpers/raw-client.ts';
import { noLimits } from '../helpers/served-connections.ts';

async function listen(t: TestContext, connectionsMax: number) {
  const server = new ClientServer(
    { ...noLimits, connectionsMax },
    {
      accept: () => assert.fail('a request'),
      refuse: () => assert.fail('a refusal'),
      onFault: (error) => {
        throw error;
      },
    },
  );
  await once(server.listener.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.listener.address() as AddressInfo;
  const clients: Socket[] = [];
  t.after(async () => {
    for (const client of clients) client.destroy();
    server.closeAll();
    server.listener.close();
    await once(server.listener, 'close');
  });
  const open = (): Socket => {
    const client = connect(port, '127.0.0.1').on('error', () => undefined);
    clients.push(client.resume());
    return client;
  };
  return {
    server,
    /** One more, that is taken in. */
    come: async (): Promise<Socket> => {
      const before = new Set<Connection>(server);
      const client = open();
      await poll(() => [...server].some((each) => !before.has(each)), 'it is taken in');
      return client;
    },
    /** One more, for which there is no room. */
    beRefused: async (): Promise<void> => {
      await closed(open());
    },
  };
}

test(
  'connections that have rested for a second make room, looked for every 50 ms; that all is full is told every second [D26]',
  { timeout: 30_000 },
  async (t) => {
    const from = 10_000;
    let now = from;
    t.mock.method(performance, 'now', () => now);
    const { server, come, beRefused } = await listen(t, 64);
    let told = 0;
    let shed = 0;
    server.onFull = () => (told += 1);
    server.onShed = () => (shed += 1);
    for (let count = 0; count < 64; count += 1) await come();
    assert.deepEqual([told, shed, server.size], [0, 0, 64]);
    const firstLook = from + 999;
    now = firstLook;
    await beRefused();
    assert.deepEqual([told, shed, server.size], [1, 1, 64], 'none has rested for long enough');
    now = firstLook + 49;
    await beRefused();
    assert.deepEqual([told, shed, server.size], [1, 2, 64], 'it was looked a moment ago');
    now = firstLook + 50;
    await come();
    assert.deepEqual([told, shed, server.size], [1, 4, 63], 'a thirty-second made room');
    await come();
    assert.deepEqual([told, shed, server.size], [1, 4, 64]);
    now = firstLook + 999;
    await come();
    await come();
    assert.deepEqual([told, shed, server.size], [1, 6, 64], 'it was told less than a second ago');
    now = firstLook + 1_000;
    await beRefused();
    assert.deepEqual([told, shed, server.size], [2, 7, 64]);
  },
);

test(
  'a connection that has rested for a second to the millisecond makes room [D26]',
  { timeout: 30_000 },
  async (t) => {
    let now = 10_000;
    t.mock.method(performance, 'now', () => now);
    const { server, come } = await listen(t, 1);
    const first = await come();
    now += 1_000;
    const isClosed = closed(first);
    await come();
    await isClosed;
    assert.equal(server.size, 1);
  },
);

test(
  'connections are looked at five times a second, and not when there are none [D35]',
  { timeout: 30_000 },
  async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const clock = t.mock.method(performance, 'now');
    const { server, come } = await listen(t, 10);
    const looksIn = (ms: number): number => {
      const before = clock.mock.callCount();
      t.mock.timers.tick(ms);
      return clock.mock.callCount() - before;
    };
    assert.equal(looksIn(10_000), 0, 'nobody has come');
    for (let round = 0; round < 2; round += 1) {
      const clients = [await come(), await come()];
      assert.deepEqual([looksIn(199), looksIn(1)], [0, 1]);
      assert.equal(looksIn(1_000), 5);
      clients[0]?.destroy();
      await poll(() => server.size === 1, 'one has gone');
      assert.equal(looksIn(1_000), 5);
      clients[1]?.destroy();
      await poll(() => server.size === 0, 'both have gone');
      assert.equal(looksIn(200), 1);
      assert.equal(looksIn(10_000), 0, 'nobody is left');
    }
  },
);

test('a server without TLS says so, and new certificates are nothing to it', async (t) => {
  const { server } = await listen(t, 1);
  assert.equal(server.scheme, 'http');
  server.renewTls({ cert: '', key: '' });
  assert.equal(server.scheme, 'http');
});
