// SIGSTOP, like a frozen machine, in every host. After a pause the timers run first, but what arrived in time counts
// [D19, D33, D35, D36].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { figureOf, isDraining, runToEnd, startCommand } from '../helpers/command.ts';
import { assertReply, succeeded } from '../helpers/expected.ts';
import type { HostName } from '../helpers/gateway.ts';
import { Http2Client, noHttp2OfCommand } from '../helpers/http2-client.ts';
import { childrenOf, stateOf } from '../helpers/process-figures.ts';
import { Program } from '../helpers/program.ts';
import { RawClient, request, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer, answerBytes, noContent, ScriptedBackend, type Answer } from '../helpers/scripted-backend.ts';
import { useCertificates } from '../helpers/suites.ts';
import { holdCall } from './held-call.ts';

const limitMs = '2500';
// Longer than each limit, by more than the 500 ms that count as a pause.
const pauseMs = 3_500;
const limits = {
  BACKEND_TIMEOUT_MS: limitMs,
  BACKEND_CONNECT_TIMEOUT_MS: limitMs,
  REQUEST_TIMEOUT_MS: limitMs,
  REPLY_STALL_TIMEOUT_MS: limitMs,
  REQUEST_HEADERS_TIMEOUT_MS: limitMs,
  IDLE_TIMEOUT_MS: limitMs,
};

/** Stops the process, calls `act`, and lets the process continue after `pauseMs`. */
async function pause(program: Program, act: () => unknown): Promise<void> {
  program.signal('SIGSTOP');
  await poll(() => stateOf(program.process.pid ?? 0) === 'T', 'the process is stopped');
  await act();
  await new Promise((resolve) => setTimeout(resolve, pauseMs));
  program.signal('SIGCONT');
}

async function startHost(host: HostName, backendUrl: string): Promise<{ program: Program; port: number }> {
  if (host === 'command') {
    const command = await startCommand({ BACKEND_URL: backendUrl, ...limits });
    return { program: command, port: command.port };
  }
  const file = join(import.meta.dirname, 'host-process.ts');
  const program = new Program([process.execPath, file, host, backendUrl, limitMs]);
  const [, port] = await program.prints(/^port (\d+)$/m);
  return { program, port: Number(port) };
}

interface Place {
  readonly backend: ScriptedBackend;
  readonly port: number;
}

/** `begin` resolves before the pause. `act` is called during the pause. The client gets its reply after it. */
interface Case {
  readonly title: string;
  begin(place: Place): Promise<{ act: () => void; client: RawClient }>;
  readonly status: number;
  readonly body: string;
}

const list = requestBytes('GET', '/api/work-items');
const textOf = (size: number): string => `[${' '.repeat(size - 2)}]`;
const put = (size: number): Buffer => requestBytes('PUT', '/api/work-items/5', { body: textOf(size) });

const answers: Case[] = (
  [
    [list, 200, textOf(2), answer('[]')],
    [list, 200, textOf(3_000_000), answer(textOf(3_000_000))],
    [put(2), 200, succeeded, noContent],
  ] as const
).map(([bytes, status, body, then]) => ({
  title: `an answer of ${body.length} bytes is passed on [D19]`,
  status,
  body,
  begin: async ({ backend, port }) => {
    const { client, open } = await holdCall(backend, { port }, bytes, then);
    return { client, act: open };
  },
}));

/** A client that has sent the first part of `bytes` before the pause, and sends the rest during the pause. */
function inTwoParts(title: string, bytes: Buffer, firstLength: number, status: number, body: string): Case {
  return {
    title,
    status,
    body,
    begin: async ({ port }) => {
      const client = await RawClient.open(port);
      client.send(bytes.subarray(0, firstLength));
      // The gateway has read this part when it has served another client.
      assert.equal((await request(port, 'OPTIONS', '/api/work-items')).status, 204);
      return { client, act: () => client.send(bytes.subarray(firstLength)) };
    },
  };
}

const bodies = [2, 5_000_000].map((size) => {
  const bytes = put(size);
  return inTwoParts(`a body of ${size} bytes is forwarded [D35]`, bytes, bytes.length - size + 1, 200, succeeded);
});

// For other hosts, Node limits heads and idle connections.
const ofOwnServer: Case[] = [
  inTwoParts('a head whose first byte came before the pause is served [D35]', list, 1, 200, '[]'),
  inTwoParts('a head on a new connection is served [D35]', list, 0, 200, '[]'),
  {
    title: 'a write on an idle connection is served [D35]',
    status: 200,
    body: succeeded,
    begin: async ({ port }) => {
      const client = await RawClient.open(port);
      assert.equal((await client.call('GET', '/api/work-items')).status, 200);
      return { client, act: () => client.send(put(2)) };
    },
  },
  {
    title: 'a client that reads its reply during the pause gets all of it [D35]',
    status: 200,
    body: textOf(20_000_000),
    begin: async ({ backend, port }) => {
      const client = await RawClient.open(port);
      backend.answersOnce(answer(textOf(20_000_000)));
      client.send(list);
      await client.receives(1);
      client.pause();
      return { client, act: () => client.resume() };
    },
  },
];

const cases = {
  command: [...answers, ...bodies, ...ofOwnServer],
  node: [...answers, ...bodies],
  fetch: [...answers, ...bodies],
};

async function startBackend(t: TestContext, then: Answer = answer('[]')): Promise<ScriptedBackend> {
  const backend = await ScriptedBackend.start();
  t.after(() => backend.stop());
  return backend.answers(then);
}

const notLinux = process.platform !== 'linux' && 'only Linux shows that a process is stopped';

describe('during a pause of the process,', { concurrency: 3, skip: notLinux }, () => {
  for (const [host, ofHost] of Object.entries(cases)) {
    test(host, async (t) => {
      const backend = await startBackend(t);
      const { program, port } = await startHost(host as HostName, backend.url);
      t.after(() => program[Symbol.asyncDispose]());
      // The first call of a process is its slowest.
      await request(port, 'GET', '/api/work-items');
      const begun: (Case & Awaited<ReturnType<Case['begin']>>)[] = [];
      for (const each of ofHost) begun.push({ ...each, ...(await each.begin({ backend, port })) });
      await pause(program, () => {
        for (const { act } of begun) act();
      });
      for (const { title, client, status, body } of begun) {
        await t.test(title, async () => assertReply(await client.reply(), status, body));
      }
    });
  }

  for (const moment of ['before', 'after'] as const) {
    test(`that begins ${moment} a drain, a call is answered, and the drain is complete [D33]`, async (t) => {
      const backend = await startBackend(t);
      await using command = await startCommand({ BACKEND_URL: backend.url, SHUTDOWN_TIMEOUT_MS: limitMs });
      const { client, open } = await holdCall(backend, command);
      if (moment === 'after') {
        command.signal('SIGTERM');
        await isDraining(command);
      }
      await pause(command, () => {
        if (moment === 'before') command.signal('SIGTERM');
        open();
      });
      assertReply(await client.reply(), 200, '{"id":5}');
      client.destroy();
      assert.equal(await command.exitCode(), 0, command.output);
    });
  }

  test('of the workers too, no worker is killed, and a call is answered [D19, D63]', async (t) => {
    const backend = await startBackend(t);
    await using command = await startCommand({ BACKEND_URL: backend.url, WORKERS: '2', ...limits });
    const { client, open } = await holdCall(backend, command);
    const workers = childrenOf(command.process.pid) ?? [];
    assert.equal(workers.length, 2);
    for (const pid of workers) process.kill(pid, 'SIGSTOP');
    await pause(command, open);
    // The primary process runs again before the workers do.
    assert.equal((await command.admin('/livez')).status, 200);
    for (const pid of workers) process.kill(pid, 'SIGCONT');
    assertReply(await client.reply(), 200, '{"id":5}');
    client.destroy();
    assert.deepEqual(childrenOf(command.process.pid), workers);
  });

  test('the backend stays reachable, and `health` waits [D34]', async (t) => {
    const backend = await startBackend(t);
    await using command = await startCommand({ BACKEND_URL: backend.url });
    let health: ReturnType<typeof runToEnd> | undefined;
    await pause(command, () => {
      health = runToEnd(['health'], { ADMIN_PORT: String(command.adminPort), ADMIN_HOST: '127.0.0.1' });
    });
    assert.equal((await health)?.code, 0);
    assert.equal(await figureOf(command, 'backend_reachable'), 1);
  });
});

describe('over TLS, during a pause of the process,', { concurrency: 3, skip: notLinux || noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const { cert, key, certFile, keyFile } = folder.issue(authority, 'server');
  const secure = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, ...limits };

  test('a client begins its handshake [D36]', async (t) => {
    const backend = await startBackend(t);
    await using command = await startCommand({ BACKEND_URL: backend.url, ...secure });
    const carrier = connect(command.port, '127.0.0.1');
    await once(carrier, 'connect');
    // The gateway has accepted the carrier when it has served another client.
    const options = { ca: authority.cert, servername: 'localhost' };
    await using other = await RawClient.openSecure(command.port, options);
    await other.call('GET', '/api/work-items');
    let opening: Promise<RawClient> | undefined;
    await pause(command, () => {
      opening = RawClient.openSecure(command.port, { ...options, socket: carrier });
    });
    await using client = await opening;
    assertReply((await client?.call('GET', '/api/work-items')) ?? assert.fail(), 200, '[]');
  });

  test('the backend goes on with its handshake [D19]', async (t) => {
    const accepted: Socket[] = [];
    const tls = createTlsServer({ cert, key }, (socket) => {
      socket.on('error', () => undefined).on('data', () => socket.write(answerBytes('[]')));
    });
    const server = createServer((socket) => accepted.push(socket)).listen(0, '127.0.0.1');
    t.after(() => {
      server.close();
      for (const socket of accepted) socket.destroy();
    });
    await once(server, 'listening');
    await using command = await startCommand({
      ...limits,
      BACKEND_URL: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
      BACKEND_CA_FILE: authority.certFile,
    });
    await using client = await RawClient.open(command.port);
    client.send(list);
    // The first connection is the gateway's own, after its start [D34].
    await poll(() => accepted.length > 1, 'a connection for the call');
    await pause(command, () => {
      for (const socket of accepted) tls.emit('connection', socket);
    });
    assertReply(await client.reply(), 200, '[]');
  });

  test('a body arrives over HTTP/2 [D35, D39]', { skip: noHttp2OfCommand }, async (t) => {
    const backend = await startBackend(t, noContent);
    await using command = await startCommand({ BACKEND_URL: backend.url, HTTP2: 'true', ...secure });
    await using client = await Http2Client.open(command.port);
    assert.equal((await client.call('DELETE', '/api/work-items/5')).status, 200);
    let reply: Promise<Reply> | undefined;
    await pause(command, () => {
      reply = client.call('PUT', '/api/work-items/5', { body: textOf(1_000_000) });
    });
    assert.equal((await reply)?.status, 200);
  });
});
