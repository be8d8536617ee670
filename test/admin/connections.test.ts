// Limits of the admin listener: one request per connection, 64 connections, 5 s to send a head, 10 s without reading a reply.
// /metrics, /readyz and the dashboards each make at most one report a second [D59].

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import type { Report } from '../../packages/figures/report.ts';
import { createReport, withAdmin } from '../dashboard/report.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { countDescriptors } from '../helpers/process-figures.ts';
import { RawClient, request, requestBytes } from '../helpers/raw-client.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { useBackend } from '../helpers/suites.ts';

const connectionsMax = 64;
const unusedMs = 5_000;

const backend = await useBackend();
const command = await startCommand({ BACKEND_URL: backend.url });
after(() => command.stop());

async function openMany(port: number, count: number): Promise<RawClient[]> {
  return await Promise.all(Array.from({ length: count }, () => RawClient.open(port)));
}

function openOf(clients: readonly RawClient[]): number {
  return clients.filter(({ isOpen }) => isOpen).length;
}

/**
 * Returns the function `reports`, which makes a report, and `count`, the number of reports so far. Report N shows N
 * requests in flight. The first report waits for `makeFirst`.
 */
function countReports(makeFirst: () => void | Promise<void> = () => undefined) {
  const counter = {
    count: 0,
    reports: async (): Promise<Report[]> => {
      counter.count += 1;
      const inFlight = counter.count;
      if (inFlight === 1) await makeFirst();
      return [createReport({ inFlight })];
    },
  };
  return counter;
}

test('if a client pipelines 612 KB of requests, only the first gets a reply, and the connection closes [D59]', async () => {
  for (const path of ['/metrics', '/readyz', '/livez', '/']) {
    const counter = countReports();
    await withAdmin(counter.reports, async (port) => {
      const one = requestBytes('GET', path);
      await using client = await RawClient.open(port);
      client.send(Buffer.concat(Array.from({ length: (612 * 1024) / one.length }, () => one)));
      const reply = await client.reply();
      assert.deepEqual([reply.status, reply.header('connection')], [200, 'close']);
      assert.equal(await client.closed(), 'end');
      assert.equal(client.unread.length, 0, 'nothing follows the reply');
      assert.ok(counter.count <= 1, `${counter.count} reports`);
    });
  }
});

test('while each of 20 admin connections sends 612 KB of requests, every call takes less than 1 s [D59]', async () => {
  const one = requestBytes('GET', '/metrics');
  const many = Buffer.concat(Array.from({ length: 612_000 / one.length }, () => one));
  const clients = await openMany(command.adminPort, 20);
  for (const client of clients) client.send(many);
  await using caller = await command.connect();
  for (let calls = 0; calls < 50 || openOf(clients) > 0; calls += 1) {
    const startedAt = performance.now();
    assert.equal((await caller.call('GET', '/api/work-items')).status, 200);
    assert.ok(performance.now() - startedAt < 1_000);
  }
  assert.equal((await command.admin('/readyz')).status, 200);
  assert.ok(command.logs.every(({ level }) => level !== 'error'));
});

test('the text of /metrics is made once a second, and all requests within a second get the same text [D59]', async () => {
  const gate = createGate();
  const counter = countReports(() => gate.opened);
  await withAdmin(counter.reports, async (port) => {
    const inFlightOf = async (): Promise<string | undefined> =>
      /^work_item_gateway_requests_in_flight (\d+)$/m.exec((await request(port, 'GET', '/metrics')).text)?.[1];
    const waiting = Array.from({ length: 20 }, inFlightOf);
    await poll(() => counter.count === 1, 'the first text is being made');
    gate.open();
    const startedAt = performance.now();
    assert.deepEqual(new Set(await Promise.all(waiting)), new Set(['1']));
    let last: string | undefined = '1';
    await poll(async () => {
      last = await inFlightOf();
      return last !== '1';
    }, 'the second text is made');
    assert.ok(performance.now() - startedAt >= 1_000);
    assert.deepEqual([last, counter.count], ['2', 2]);
  });
});

test('/readyz and dashboards each make at most one report a second, whatever the number of requests [D59]', async () => {
  const counter = countReports();
  await withAdmin(counter.reports, async (port) => {
    const startedAt = performance.now();
    await poll(async () => {
      assert.ok((await readState(port)).facts);
      assert.equal((await request(port, 'GET', '/readyz')).status, 200);
      return performance.now() - startedAt > 1_500;
    }, 'a second has passed');
    // There are two kinds of report. Each is made at most once a second, and once more at the beginning.
    assert.ok(counter.count <= 2 * (performance.now() - startedAt) * 0.001 + 2, `${counter.count} reports`);
  });
});

test('if a report fails, all requests that share it get 500, one fault is recorded, and a later report succeeds [D59]', async () => {
  const counter = countReports(() => {
    throw new Error('no descriptors');
  });
  const faults: unknown[] = [];
  await withAdmin(
    counter.reports,
    async (port) => {
      for (let round = 0; round < 5; round += 1) {
        const { status, text } = await request(port, 'GET', '/readyz');
        assert.deepEqual([status, text], [500, '{"error":"Internal server error"}']);
      }
      await poll(async () => (await request(port, 'GET', '/readyz')).status === 200, 'a report succeeds');
      assert.equal(counter.count, 2);
    },
    (fault) => faults.push(fault),
  );
  assert.deepEqual(faults.map(String), ['Error: no descriptors']);
});

test('/livez is served while 64 requests wait for a report [D59]', async () => {
  const gate = createGate();
  const counter = countReports(() => gate.opened);
  await withAdmin(counter.reports, async (port) => {
    const waiting = Array.from({ length: connectionsMax }, () =>
      request(port, 'GET', '/readyz').catch(() => undefined),
    );
    await poll(() => counter.count > 0, 'a report has begun');
    for (let round = 0; round < 5; round += 1) {
      assert.equal((await request(port, 'GET', '/livez')).status, 200);
    }
    gate.open();
    const replies = await Promise.all(waiting);
    assert.ok(replies.filter((reply) => reply?.status === 200).length >= connectionsMax - 1);
    assert.equal(counter.count, 1);
  });
});

test('malformed requests and heads of more than 8 KiB are refused immediately [D59]', async () => {
  const host = 'Host: localhost\r\n';
  for (const [sent, status, error] of [
    ['hello\r\n', 400, 'Bad request'],
    [`CONNECT localhost:80 HTTP/1.1\r\n${host}\r\n`, 405, 'Method not allowed'],
    [`GET /livez HTTP/1.1\r\n${host}X: ${'x'.repeat(8_192)}\r\n\r\n`, 431, 'Request header fields too large'],
    [`GET /${'x'.repeat(1_000_000)}`, 431, 'Request header fields too large'],
  ] as const) {
    await using client = await connect();
    client.send(sent);
    const reply = await client.reply();
    const got = [reply.status, reply.text, reply.header('connection')];
    assert.deepEqual(got, [status, JSON.stringify({ error }), 'close']);
    assert.equal(await client.closed(), 'end');
  }
});

test('a request with a body is answered, and the body is ignored [D59]', async () => {
  for (const [line, fields, status] of [
    ['POST /metrics', 'Content-Length: 900000', 405],
    ['GET /metrics', 'Content-Length: 900000', 200],
    ['PUT /metrics', 'Transfer-Encoding: chunked', 405],
    ['PUT /livez', 'Expect: 100-continue\r\nContent-Length: 900000', 405],
    ['GET /livez', 'Expect: something\r\nContent-Length: 900000', 200],
  ] as const) {
    await using client = await connect();
    client.send(`${line} HTTP/1.1\r\nHost: localhost\r\n${fields}\r\n\r\n`);
    client.send(Buffer.alloc(900_000, 'x'));
    assert.equal((await client.reply()).status, status, line);
    assert.equal(await client.closed(), 'end');
  }
});

// These tests run concurrently, because each lasts as long as a time limit. Only the first test uses `command`.
describe('time limits', { concurrency: true }, () => {
  test('of 300 silent connections, 64 stay open until they are closed after 5 s, and requests are served meanwhile [D59]', async () => {
    const base = countDescriptors(command.process.pid);
    const startedAt = performance.now();
    const clients = await openMany(command.adminPort, 300);
    await poll(() => openOf(clients) <= connectionsMax, 'connections over the limit are closed');
    assert.equal(openOf(clients), connectionsMax);
    for (let round = 0; round < 20; round += 1) {
      assert.equal((await command.admin('/livez')).status, 200);
      assert.equal((await command.admin('/readyz')).status, 200);
    }
    await poll(() => openOf(clients) === 0, 'all connections are closed');
    const passed = performance.now() - startedAt;
    assert.ok(passed >= unusedMs - 50 && passed < unusedMs + 2_000, `closed after ${passed} ms`);
    await poll(
      () => base === undefined || (countDescriptors(command.process.pid) ?? 0) <= base + 2,
      'the descriptors of the connections are closed',
    );
  });

  for (const [what, first, next, reply] of [
    ['a slow head', 'GET /livez HTTP/1.1\r\nHost: localhost\r\n', 'X: y\r\n', /"error":"Request timeout"\}$/],
    ['endless empty lines', '', '\r\n'.repeat(10_000), /^$/],
    ['data after its reply', requestBytes('GET', '/livez'), Buffer.alloc(100_000, 'x'), /\{"status":"alive"\}$/],
  ] as const) {
    test(`a client that sends ${what} is cut off after 5 s [D59]`, async () => {
      await withAdmin(
        () => [createReport()],
        async (port) => {
          await using client = await RawClient.open(port);
          const startedAt = performance.now();
          client.send(first);
          const timer = setInterval(() => client.send(next), 50);
          await client.closed(unusedMs + 2_000).finally(() => clearInterval(timer));
          assert.ok(performance.now() - startedAt >= unusedMs - 50 || typeof next !== 'string');
          assert.match(client.unread.toString(), reply);
        },
      );
    });
  }

  test('clients that do not read their replies do not block others and are cut off after 10 s [D59]', async () => {
    // Larger than the kernel's buffers for a socket.
    const help = 'x'.repeat(12_000_000);
    const reports = () => [
      createReport({
        processMetrics: [{ name: 'large', help, type: 'gauge', values: [] } as { readonly name: string }],
      }),
    ];
    await withAdmin(reports, async (port) => {
      const slow = await openMany(port, 4);
      const startedAt = performance.now();
      for (const client of slow) {
        client.pause();
        client.send(requestBytes('GET', '/metrics'));
      }
      // The 200 connections exceed the limit of 64, but no slow client is closed to make room for them.
      const others = await openMany(port, 200);
      await poll(() => openOf(others) <= connectionsMax - slow.length, 'connections over the limit are closed');
      assert.equal((await request(port, 'GET', '/livez')).status, 200);
      const ends = slow.map((client) => client.closed(15_000));
      // A client may be cut off up to 1 s late [D35].
      await poll(() => performance.now() - startedAt > 10_000 + 1_500, 'the time to read a reply is over', 15_000);
      for (const client of slow) client.resume();
      await Promise.all(ends);
      for (const client of slow) assert.ok(client.bytesReceived < help.length, 'each slow client was cut off');
    });
  });
});

function connect(): Promise<RawClient> {
  return RawClient.open(command.adminPort);
}
