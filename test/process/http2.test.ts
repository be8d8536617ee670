// HTTP/2 of the built command: on by a setting, in every worker, drained as everything is. D39, D33, D41.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { connect } from 'node:tls';
import { describe, test } from 'node:test';
import { isDeepStrictEqual, promisify } from 'node:util';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply } from '../helpers/expected.ts';
import { anyCertificate, Http2Client, noHttp2OfCommand } from '../helpers/http2-client.ts';
import { FrameClient, headers, requestFields, resetStream } from '../helpers/http2-frames.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { runCommand, startCommand } from '../helpers/targets.ts';

const run = promisify(execFile);
const item = '/api/work-items/5';

async function startWith(environment: NodeJS.ProcessEnv) {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const { certFile, keyFile } = anyCertificate();
  const command = await startCommand({
    BACKEND_URL: backend.url,
    TLS_CERT_FILE: certFile,
    TLS_KEY_FILE: keyFile,
    ...environment,
  });
  return {
    backend,
    command,
    [Symbol.asyncDispose]: async () => {
      await command[Symbol.asyncDispose]();
      await backend.stop();
    },
  };
}

/** What a client that would speak either agrees on. */
async function protocolOf(port: number): Promise<string | false | null> {
  const socket = connect({
    port,
    host: '127.0.0.1',
    ALPNProtocols: ['h2', 'http/1.1'],
    rejectUnauthorized: false,
  });
  await new Promise((resolve, reject) => {
    socket.once('secureConnect', resolve).once('error', reject);
  });
  socket.destroy();
  return socket.alpnProtocol;
}

// As on a Node of that version: the rest of it is this one's.
const olderNode = `data:text/javascript,${encodeURIComponent("Object.defineProperty(process,'versions',{value:{...process.versions,node:'24.21.0'}})")}`; // prettier-ignore

test('HTTP2 on a Node before 26 is a problem of the start and of check, beside all others [D39]', async () => {
  const environment = { HTTP2: 'true', NODE_OPTIONS: `--import=${olderNode}`, REQUEST_BYTES_MAX: 'x' };
  for (const command of ['serve', 'dev', 'check']) {
    await using refused = runCommand([command], environment);
    assert.equal(await refused.exitCode(), 1);
    const problems = refused.stderr.match(/^error: .*$/gm) ?? [];
    assert.equal(problems.length, 3, refused.stderr);
    assert.ok(
      problems.includes(
        'error: HTTP2 needs Node 26 or newer, and this is Node 24.21.0: use a newer Node, or leave HTTP2 out',
      ),
      refused.stderr,
    );
  }
  // A document is no service, and HTTP2=false needs nothing.
  const { stdout } = await run(
    process.env['GATEWAY_NODE'] ?? process.execPath,
    ['dist/command/main.js', 'openapi'],
    {
      cwd: `${import.meta.dirname}/../..`,
      env: { ...environment, REQUEST_BYTES_MAX: '', TLS_CERT_FILE: 'a', TLS_KEY_FILE: 'b' },
    },
  );
  assert.match(stdout, /"openapi"/);
  await using off = runCommand(['check'], { ...environment, HTTP2: 'false' });
  assert.equal(await off.exitCode(), 1);
  assert.doesNotMatch(off.stderr, /HTTP2/);
});

describe('HTTP/2 of the command', { skip: noHttp2OfCommand }, () => {
  test('without HTTP2 nothing but HTTP/1.1 is agreed on [D39]', async () => {
    for (const environment of [{}, { HTTP2: 'false' }]) {
      await using gateway = await startWith(environment);
      assert.equal(await protocolOf(gateway.command.port), 'http/1.1');
    }
  });

  for (const workers of ['1', '2']) {
    test(`with HTTP2 h2 comes first, in every worker, WORKERS=${workers} [D39]`, async () => {
      await using gateway = await startWith({ HTTP2: 'true', WORKERS: workers });
      for (let round = 0; round < 4; round += 1) {
        assert.equal(await protocolOf(gateway.command.port), 'h2');
        await using client = await Http2Client.open(gateway.command.port);
        assertReply(await client.call('PUT', item, { body: '{"a":1}' }), 200, '{"success":true}');
        assertReply(await client.call('GET', item), 200, '{"id":5}');
      }
      const line = await gateway.command.log(({ path }) => path === item, 'a line of a request');
      assert.deepEqual([line['client'], line['http']], ['127.0.0.1', '2']);
      assert.match(
        await gateway.command.metrics(),
        /work_item_gateway_requests_total\{[^}]*operation="read"[^}]*\} 4/,
      );
    });
  }

  test('open connections and streams are gauges, of all workers together', async () => {
    await using gateway = await startWith({ HTTP2: 'true', WORKERS: '2' });
    const { command, backend } = gateway;
    const names = ['client_connections', 'http2_connections', 'http2_streams'];
    const figures = async () => {
      const text = await command.metrics();
      return names.map(
        (name) => /^\S+ (\d+)$/m.exec(text.slice(text.indexOf(`\nwork_item_gateway_${name} `) + 1))?.[1],
      );
    };
    const has = (expected: string[], what: string) =>
      poll(
        async () => isDeepStrictEqual(await figures(), expected),
        `${what}: ${names.join(', ')} are ${expected.join(', ')}`,
      );
    const gate = createGate();
    backend.answers(behind(gate, answer('{"id":5}')));
    const clients = await Promise.all(Array.from({ length: 3 }, () => Http2Client.open(command.port)));
    await using other = await RawClient.openSecure(command.port, { rejectUnauthorized: false });
    await has(['4', '3', '0'], 'nobody calls');
    const calls = clients.flatMap((client) => [
      client.call('GET', item),
      client.call('PUT', item, { body: '{}' }),
    ]);
    other.send(requestBytes('GET', item));
    await has(['4', '3', '6'], 'all call');
    gate.open();
    for (const reply of await Promise.all(calls)) assert.equal(reply.status, 200);
    assert.equal((await other.reply()).status, 200);
    await has(['4', '3', '0'], 'all have their replies');
    for (const client of clients) client.destroy();
    await has(['1', '0', '0'], 'those of HTTP/2 have gone');
  });

  test('HTTP2 without TLS is a problem of the start, and HTTP2=false is none [D41]', async () => {
    await using on = runCommand(['serve'], { HTTP2: 'true' });
    assert.equal(await on.exitCode(), 1);
    assert.match(
      on.stderr,
      /^error: HTTP2 needs TLS_CERT_FILE and TLS_KEY_FILE: without them clients speak plain http$/m,
    );
    await using off = await startCommand({ HTTP2: 'false', BACKEND_URL: 'http://localhost:1' });
    assert.ok(off.isRunning);
  });

  test('SIGTERM: calls in flight on streams get their replies, and the exit code is 0 [D33]', async () => {
    await using gateway = await startWith({ HTTP2: 'true' });
    await using client = await Http2Client.open(gateway.command.port);
    const gate = createGate();
    gateway.backend.answersOnce(behind(gate, answer('"late"')));
    const late = client.call('GET', item);
    await gateway.backend.nextRequest();
    gateway.command.signal('SIGTERM');
    await new Promise((resolve) => client.session.once('goaway', resolve));
    gate.open();
    assertReply(await late, 200, '"late"');
    assert.equal(await gateway.command.exitCode(), 0);
  });

  test('while it serves on after SIGTERM, the first reply tells the client to go [D33]', async () => {
    await using gateway = await startWith({ HTTP2: 'true', SHUTDOWN_DELAY_MS: '60000' });
    await using client = await Http2Client.open(gateway.command.port);
    assertReply(await client.call('GET', item), 200, '{"id":5}');
    const gone = new Promise((resolve) => client.session.once('goaway', resolve));
    gateway.command.signal('SIGTERM');
    await gateway.command.log(({ signal }) => signal === 'SIGTERM', 'the signal is heard');
    assertReply(await client.call('GET', item), 200, '{"id":5}');
    await gone;
  });

  test('a call that does not end is cut at SHUTDOWN_TIMEOUT_MS, and the exit code is 1 [D33]', async () => {
    await using gateway = await startWith({ HTTP2: 'true', SHUTDOWN_TIMEOUT_MS: '300' });
    await using client = await Http2Client.open(gateway.command.port);
    gateway.backend.answersOnce(behind(createGate(), answer('1')));
    const cut = client.call('GET', item);
    await gateway.backend.nextRequest();
    gateway.command.signal('SIGTERM');
    await assert.rejects(cut);
    assert.equal(await gateway.command.exitCode(), 1);
  });

  test('hostile connections end, the process lives, and nothing is on stderr', async () => {
    await using gateway = await startWith({ HTTP2: 'true' });
    const { port } = gateway.command;
    for (const bytes of [
      Buffer.alloc(1000, 0xff),
      Buffer.concat(
        Array.from({ length: 2000 }, (_, index) =>
          Buffer.concat([headers(1 + 2 * index, requestFields('GET', item)), resetStream(1 + 2 * index, 8)]),
        ),
      ),
    ]) {
      await using hostile = await FrameClient.begin(port);
      await hostile.sent(bytes);
      await hostile.closed();
    }
    await using good = await Http2Client.open(port);
    assertReply(await good.call('GET', item), 200, '{"id":5}');
    assert.equal(gateway.command.stderr, '');
  });

  test('what it needs is loaded where it is on, and nowhere else', async () => {
    const look = "import('./packages/command/service/serving.ts').then(() => console.log(process.moduleLoadList.some((name) => name.includes('http2'))))"; // prettier-ignore
    const { stdout } = await run(process.execPath, ['-e', look], { cwd: `${import.meta.dirname}/../..` });
    assert.equal(stdout.trim(), 'false');
  });
});
