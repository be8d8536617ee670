// HTTP/2 connections of hostile clients end, whatever node:http2 does, and leave nothing behind. D39, D33.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { startGateway } from '../helpers/gateway.ts';
import { attack, endings, openHostile, type HostileClient } from '../helpers/hostile-frames.ts';
import { noHttp2 } from '../helpers/http2-client.ts';
import {
  flags,
  frame,
  frameTypes,
  headers,
  preface,
  requestFields,
  resetStream,
  settingIds,
  settings,
  windowUpdate,
} from '../helpers/http2-frames.ts';
import { checkHttp2States } from '../helpers/http2-states.ts';
import { accounted } from '../helpers/leftovers.ts';
import { answer, latency, timeout, type Answer } from '../helpers/scripted-backend.ts';

checkHttp2States();

const item = '/api/work-items/5';
const closedWindow = settings([[settingIds.initialWindowSize, 0]]);
const goAway = frame(frameTypes.goAway, 0, 0, Buffer.alloc(8));
const longFrame = Buffer.from([0x40, 0x01, 0, 0, 0, 0, 0, 0, 3]);
const brokenFields = frame(frameTypes.headers, flags.endHeaders | flags.endStream, 3, Buffer.alloc(6, 0xff));
const get = (stream: number, path = '/nope') => headers(stream, requestFields('GET', path));
const put = (stream: number) => headers(stream, requestFields('PUT', item), flags.endHeaders);
const ping = frame(frameTypes.ping, 0, 0, Buffer.alloc(8));
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

// node:http2 neither ends these connections nor reads from them, so that it does not see that a client has left.
const stuck: [name: string, first: Buffer[], later: Buffer][] = [
  ['a closed window, GOAWAY, and a frame that is too long', [closedWindow, get(1), goAway, longFrame], Buffer.alloc(20)],
  ['a closed window, GOAWAY, and fields that cannot be decoded', [closedWindow, get(1), goAway, brokenFields], Buffer.alloc(20)],
  ['two GOAWAYs with a frame that is too long between them', [closedWindow, get(1), goAway, longFrame, goAway], goAway],
  ['a body that does not end, and fields that cannot be decoded', [closedWindow, put(1), goAway, brokenFields], Buffer.alloc(20)],
  ['a frame that is too long after a reset', [closedWindow, get(1), get(3), goAway, resetStream(1, 8), longFrame], Buffer.alloc(20)],
  ['a window that is too large', [closedWindow, get(1), goAway, windowUpdate(0, 2 ** 31 - 1)], ping],
  ['a stream that depends on itself', [closedWindow, get(1), goAway, frame(frameTypes.priority, 0, 1, Buffer.from([0, 0, 0, 1, 1])), longFrame], ping],
]; // prettier-ignore

const limits = {
  requestHeadersTimeoutMs: 2_000,
  requestTimeoutMs: 2_000,
  replyStallTimeoutMs: 2_000,
  idleTimeoutMs: 2_000,
};

describe('hostile HTTP/2 connections', { skip: noHttp2 }, () => {
  for (const [name, first, later] of stuck) {
    test(`connections with ${name} end, and no stall is reported twice`, async () => {
      await using server = accounted(await startGateway({ host: 'http2' }));
      const clients = await Promise.all(Array.from({ length: 18 }, () => openHostile(server.port)));
      for (const client of clients) client.send(preface, ...first);
      for (let round = 0; round < 2; round += 1) {
        await pause(40);
        for (const client of clients) client.send(later);
      }
      await pause(40);
      for (const [index, client] of clients.entries()) client.end(endings[index % endings.length] ?? 'stay');
      await poll(() => server.clients.size === 0, 'all connections have ended');
      for (const client of clients) client[Symbol.dispose]();
      assert.equal(new Set(server.told.stalled).size, server.told.stalled.length);
    });
  }

  test('80 random hostile connections leave nothing', async () => {
    // Each run has other connections. `npm run fuzz -- http2 --seed N` repeats those of a failure.
    const first = Date.now() % 1_000_000;
    const answers: Answer[] = [
      answer('{"id":5}'),
      answer(`"${'x'.repeat(200_000)}"`),
      latency(30, answer('[]')),
      timeout,
    ];
    const settings = { ...limits, backendTimeoutMs: 1_000, backendIdleTimeoutMs: 200 };
    await using server = accounted(await startGateway({ host: 'http2', settings }));
    let calls = 0;
    server.backend.answers((exchange) => answers[(calls += 1) % answers.length]?.(exchange));
    const clients: HostileClient[] = [];
    for (let seed = first; seed < first + 80; seed += 40) {
      clients.push(...(await Promise.all(Array.from({ length: 40 }, (_, index) => attack(server.port, seed + index)))));
    }
    // Clients that stay are cut by the limits.
    await poll(() => server.clients.size === 0, `all connections have ended, seed ${first}`);
    for (const client of clients) client[Symbol.dispose]();
    assert.deepEqual(server.told.bugs, [], `seed ${first}`);
    assert.equal(new Set(server.told.stalled).size, server.told.stalled.length, `seed ${first}`);
  });

  test('a drain does not wait for hostile connections [D33]', async () => {
    await using server = await startGateway({ host: 'http2' });
    const clients: HostileClient[] = [];
    const open = async (...frames: Buffer[]) => {
      const client = await openHostile(server.port);
      client.send(preface, ...frames);
      clients.push(client);
    };
    for (const [, first, later] of stuck) await open(...first, later);
    // Replied to, with a body that does not end; nothing; half a head; a closed window.
    await open(settings(), headers(1, requestFields('GET', '/nope'), flags.endHeaders));
    await open(settings());
    await open(settings(), get(1).subarray(0, 20));
    await open(closedWindow, get(1));
    await poll(() => server.told.ended.length >= 8, 'the calls have ended');
    const signal = AbortSignal.timeout(10_000);
    await server.drain(signal);
    assert.equal(signal.aborted, false);
    assert.equal(server.clients.size, 0);
    for (const client of clients) client[Symbol.dispose]();
  });
});
