// HTTP/2 against another implementation of RFC 9113: python3-h2, which checks every frame that it receives. D39.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { poll } from '../helpers/changes.ts';
import { succeeded } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';
import { noHttp2 } from '../helpers/http2-client.ts';
import { checkHttp2States } from '../helpers/http2-states.ts';
import { answer } from '../helpers/scripted-backend.ts';

checkHttp2States();

const run = promisify(execFile);
// Debian's Python: another Python on the PATH lacks Debian's packages.
const python = '/usr/bin/python3';
const script = resolve(import.meta.dirname, 'http2-client.py');
const limits = { timeout: 30_000 };

function skipWithout(command: string, args: readonly string[], what: string): string | false {
  return noHttp2 === false && spawnSync(command, args).status !== 0 ? `there is no ${what} on this machine` : noHttp2;
}

interface Told {
  readonly streams: Record<string, { status: string; bytes: number; text: string; ended: boolean }>;
  readonly seen: readonly string[];
}

async function converse(port: number, scenario: string): Promise<Told> {
  const { stdout } = await run(python, [script, String(port), scenario], limits);
  return JSON.parse(stdout) as Told;
}

const replied = { status: '200', bytes: 8, text: '{"id":5}', ended: true };

describe('python3-h2', { skip: skipWithout(python, ['-c', 'import h2'], 'python3-h2') }, () => {
  for (const [scenario, numbers] of [
    ['priorities', [1, 3]],
    ['table', Array.from({ length: 12 }, (_, index) => 1 + 2 * index)],
  ] as const) {
    test(`${scenario}: each stream gets its reply, and the client receives nothing unexpected [D39]`, async () => {
      await using server = await startGateway({ host: 'http2' });
      const streams = Object.fromEntries(numbers.map((stream) => [stream, replied]));
      assert.deepEqual(await converse(server.port, scenario), { streams, seen: [] });
      assert.deepEqual(server.told.bugs, []);
    });
  }

  test('trailers: the backend gets the whole body, without padding, and no trailer [D39]', async () => {
    await using server = await startGateway({ host: 'http2' });
    const reply = { status: '200', bytes: succeeded.length, text: succeeded, ended: true };
    assert.deepEqual(await converse(server.port, 'trailers'), { streams: { 1: reply }, seen: [] });
    const call = await server.backend.nextRequest();
    assert.deepEqual([call.body.toString(), call.header('content-length')], ['{"a":1}', '7']);
    assert.equal(call.header('x-checksum'), undefined);
    assert.notEqual(call.header('x-request-id'), 'late');
  });

  test('windows: a reply is sent as far as the window of its stream allows, and is complete in the end [RFC 9113, 6.9]', async () => {
    await using server = await startGateway({ host: 'http2' });
    const body = `"${'x'.repeat(200_000)}"`;
    server.backend.answers(answer(body));
    const { streams } = await converse(server.port, 'windows');
    const reply = { status: '200', bytes: body.length, text: body.slice(0, 40), ended: true };
    assert.deepEqual(streams, { 1: reply, 3: reply });
    await poll(() => server.gateway.budget.bytes === 0, 'all memory is released');
  });
});
