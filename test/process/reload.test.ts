// SIGHUP changes settings without a restart, except listeners' addresses and the use of workers [D65].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { anyCertificate, CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import {
  type Command,
  figureOf,
  isDraining,
  isReloaded,
  logged,
  type LogLine,
  startCommand,
} from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { noHttp2OfCommand } from '../helpers/http2-client.ts';
import { FrameClient, headers, requestFields } from '../helpers/http2-frames.ts';
import { holdCall } from './held-call.ts';
import { createPair, keySetOf } from '../helpers/issuer.ts';
import { KeyPipe } from '../helpers/key-pipe.ts';
import { childrenOf, countDescriptors } from '../helpers/process-figures.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';
import { assertNoToken } from '../helpers/tokens.ts';

const folder = useFolder();
const backend = await useBackend();

const list = '/api/work-items';
let files = 0;

/** Starts a gateway whose settings file has these lines; `write` replaces the lines. */
async function start(environment: NodeJS.ProcessEnv, ...lines: readonly string[]) {
  const file = join(folder, `${(files += 1)}.env`);
  const write = (...next: readonly string[]): void => writeFileSync(file, next.map((line) => `${line}\n`).join(''));
  write(...lines);
  return Object.assign(await startCommand({ SETTINGS_FILE: file, BACKEND_URL: backend.url, ...environment }), {
    write,
  });
}

/** Sends SIGHUP and returns the log line at the end of the reload. */
async function reload(command: Command): Promise<LogLine> {
  const before = command.logs.filter(isReloaded).length;
  command.signal('SIGHUP');
  return await command.log((line) => command.logs.filter(isReloaded)[before] === line, 'the reload ends');
}

/** Replaces the lines of the settings file and sends SIGHUP. Resolves when the settings are in force. */
async function begun(command: Awaited<ReturnType<typeof start>>, lines: readonly string[]): Promise<void> {
  const isIt = ({ msg }: LogLine) => msg === 'SIGHUP: new connections use the new settings';
  const before = command.logs.filter(isIt).length;
  command.write(...lines);
  command.signal('SIGHUP');
  await command.log((line) => command.logs.filter(isIt)[before] === line, 'the new settings are in force');
}

function isRefusal({ level, msg }: LogLine): boolean {
  return level === 'error' && /^(?:SIGHUP|reload)/.test(String(msg));
}

/** Sends SIGHUP and returns the log line that refuses the reload. */
async function refusal(command: Command): Promise<LogLine> {
  const before = command.logs.filter(isRefusal).length;
  command.signal('SIGHUP');
  return await command.log((line) => command.logs.filter(isRefusal)[before] === line, 'a refusal');
}

/** Settings for tokens, with the keys in `file`. */
function tokens(file: string): string[] {
  return ['AUTH_ISSUER=https://issuer.test', 'AUTH_AUDIENCE=api', `AUTH_JWKS_FILE=${file}`];
}

async function shownSetting(command: Command, name: string): Promise<string | undefined> {
  const { facts } = await readState(command.adminPort);
  return facts.settings.find(({ variable }) => variable === name)?.value;
}

async function postsALongItem(command: Command): Promise<number> {
  return (await command.call('POST', list, { body: '{"title":"long"}' })).status;
}

for (const WORKERS of ['1', '2']) {
  describe(`SIGHUP with WORKERS=${WORKERS}`, () => {
    test('SIGHUP without a change writes one line, at every log level', async () => {
      const keys = join(folder, `${(files += 1)}.json`);
      writeFileSync(keys, keySetOf(createPair('same', 'ES256')));
      for (const [LOG_LEVEL, lines] of [
        ['info', []],
        ['info', tokens(keys)],
        ['silent', []],
      ] as const) {
        await using command = await start({ WORKERS, LOG_LEVEL }, ...lines);
        const loaded = () => command.logs.filter(({ keys: names }) => names !== undefined).length;
        await poll(
          () => loaded() === (lines.length > 0 ? Number(WORKERS) : 0),
          'the line of each worker about its keys',
        );
        const before = command.logs.length;
        for (let round = 1; round <= 2; round += 1) {
          const { changed } = await reload(command);
          assert.deepEqual(changed, {});
          assert.deepEqual(
            command.logs.slice(before).map(({ msg }) => msg),
            Array<string>(round).fill('reloaded'),
          );
        }
      }
    });

    test('new connections get the new settings, and a call in flight ends with the old settings', async () => {
      await using command = await start({ WORKERS });
      const held = await holdCall(backend, command);
      command.write('REQUEST_BYTES_MAX=10', 'ITEM_ID_PARSING=whole');
      command.signal('SIGHUP');
      await poll(async () => (await postsALongItem(command)) === 413, 'the new limit is in force');
      assert.ok(!command.logs.some(isReloaded), 'the reload waits for the call in flight');
      assert.equal(await shownSetting(command, 'REQUEST_BYTES_MAX'), '10');
      await logged(command, /^SIGHUP: new connections/);
      held.open();
      const reply = await held.client.reply();
      assertReply(reply, 200, '{"id":5}');
      assert.equal(reply.header('connection'), 'close');
      held.client.destroy();
      const { changed } = await command.log(isReloaded, 'the reload ends');
      assert.deepEqual(changed, { requestBytesMax: '10485760 → 10', itemIdParsing: 'leading → whole' });
      assert.equal(await postsALongItem(command), 413);
      assert.equal((await command.call('GET', `${list}/12abc`)).status, 400);
      assert.equal(await shownSetting(command, 'REQUEST_BYTES_MAX'), '10');
    });

    test('after a reload that turns tokens on, every call needs one, also on connections from before the reload [D65]', async () => {
      const keys = join(folder, `${(files += 1)}.json`);
      writeFileSync(keys, keySetOf(createPair('one', 'ES256')));
      await using command = await start({ WORKERS });
      const held = await holdCall(backend, command);
      // Sent ahead while the held call is in flight: not answered, because the reply to the held call is the last.
      held.client.send(requestBytes('GET', `${list}/6`));
      await using idle = await command.connect();
      assertReply(await idle.call('GET', list), 200, '[]');
      await using fresh = await command.connect();
      await using halfway = await command.connect();
      const bytes = requestBytes('POST', list, { body: '{"title":"x"}' });
      const half = bytes.indexOf('\r\n') + 5;
      halfway.send(bytes.subarray(0, half));
      await begun(command, tokens(keys));
      const calls = backend.requests.length;
      halfway.send(bytes.subarray(half));
      idle.send(requestBytes('GET', list));
      fresh.send(requestBytes('DELETE', `${list}/5`));
      for (const client of [halfway, idle, fresh]) {
        const reply = await client.reply();
        assertNoToken(reply);
        assert.equal(reply.header('connection'), 'close');
        await client.closed();
      }
      held.open();
      const reply = await held.client.reply();
      assertReply(reply, 200, '{"id":5}');
      assert.equal(reply.header('connection'), 'close');
      await held.client.closed();
      assert.equal(held.client.unread.length, 0);
      assert.equal(backend.requests.length, calls);
      await command.log(isReloaded, 'the reload ends');
    });

    test(
      'a TLS handshake from before the reload, and streams of an HTTP/2 client that ignores GOAWAY, need a token after it [D65]',
      { skip: noHttp2OfCommand },
      async () => {
        const keys = join(folder, `${(files += 1)}.json`);
        writeFileSync(keys, keySetOf(createPair('one', 'ES256')));
        const { certFile, keyFile } = anyCertificate();
        const tls = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, HTTP2: 'true' };
        await using command = await start({ WORKERS, ...tls });
        const pending = connect(command.port, '127.0.0.1');
        await once(pending, 'connect');
        await using streams = await FrameClient.begin(command.port);
        streams.send(headers(1, requestFields('GET', list)));
        await streams.replies(1);
        await begun(command, tokens(keys));
        const calls = backend.requests.length;
        await using shaken = await RawClient.openSecure(command.port, { socket: pending, rejectUnauthorized: false });
        assertNoToken(await shaken.call('GET', list));
        for (let stream = 3; stream < 63 && streams.isOpen; stream += 2) {
          await streams.sent(headers(stream, requestFields('GET', list)));
          const hasReply = () => streams.frames.some((each) => each.stream === stream);
          // After its second GOAWAY the gateway ignores new streams.
          const isIgnored = () => (streams.goAway?.lastStream ?? stream) < stream;
          await poll(() => !streams.isOpen || hasReply() || isIgnored(), 'the end of the stream');
        }
        assert.equal(backend.requests.length, calls);
      },
    );

    test('a call, a write too, is not cut when it takes longer than SHUTDOWN_TIMEOUT_MS after the reload [D65]', async () => {
      await using command = await start({ WORKERS, SHUTDOWN_TIMEOUT_MS: '100' });
      const held = [
        await holdCall(backend, command),
        await holdCall(backend, command, requestBytes('POST', list, { body: '{"title":"x"}' })),
      ];
      await begun(command, ['REQUEST_BYTES_MAX=10']);
      await new Promise((resolve) => setTimeout(resolve, 400));
      for (const { open } of held) open();
      const replies = await Promise.all(held.map(async ({ client }) => await client.reply()));
      assert.deepEqual(
        replies.map(({ status }) => status),
        [200, 201],
      );
      assert.equal(backend.requests.length, held.length);
      await command.log(isReloaded, 'the reload ends');
    });

    test('while a call is in flight, further reloads take effect, and each ends when its calls have ended', async () => {
      await using command = await start({ WORKERS });
      const first = await holdCall(backend, command);
      await begun(command, ['REQUEST_BYTES_MAX=30']);
      const second = await holdCall(backend, command);
      await begun(command, ['REQUEST_BYTES_MAX=10']);
      assert.equal(await postsALongItem(command), 413);
      assert.ok(!command.logs.some(isReloaded));
      await begun(command, []);
      assert.equal(await postsALongItem(command), 201);
      for (const { client, open } of [second, first]) {
        open();
        assertReply(await client.reply(), 200, '{"id":5}');
        client.destroy();
      }
      await poll(() => command.logs.filter(isReloaded).length === 3, 'each reload ends');
    });

    test('a rate limit with the same window keeps its count, and a limit with a new window starts at zero; a refused reload changes no limit', async () => {
      await using command = await start({ WORKERS }, 'RATE_LIMIT=20/1h');
      const statuses = async (calls: number): Promise<number[]> => {
        const all: number[] = [];
        for (let count = 0; count < calls; count += 1) all.push((await command.call('GET', list)).status);
        return all;
      };
      assert.deepEqual(await statuses(5), [200, 200, 200, 200, 200]);
      command.write('RATE_LIMIT=3/1h');
      await reload(command);
      assert.deepEqual(await statuses(4), [429, 429, 429, 429]);
      command.write('RATE_LIMIT=9/1h', ...tokens('/no/keys'));
      await refusal(command);
      assert.deepEqual(await statuses(2), [429, 429]);
      command.write('RATE_LIMIT=7/1h');
      await reload(command);
      assert.deepEqual(await statuses(3), [200, 200, 429]);
      command.write('RATE_LIMIT=7/1h', 'DOCS=true');
      await reload(command);
      assert.deepEqual(await statuses(1), [429]);
      assert.equal((await command.call('GET', '/openapi.json')).status, 200);
      command.write('RATE_LIMIT=4/2h');
      await reload(command);
      assert.deepEqual(await statuses(1), [200]);
      assert.equal((await command.call('GET', '/openapi.json')).status, 404);
      assert.ok(!command.logs.some(({ msg }) => String(msg).startsWith('the primary process does not answer')));
    });

    test('after SIGTERM during a reload, the call in flight finishes, and the exit code is 0 [D33]', async () => {
      await using command = await start({ WORKERS });
      const held = await holdCall(backend, command);
      command.write('REQUEST_BYTES_MAX=10');
      command.signal('SIGHUP');
      await poll(async () => (await postsALongItem(command)) === 413, 'the new limit is in force');
      command.signal('SIGTERM');
      await isDraining(command);
      held.open();
      assertReply(await held.client.reply(), 200, '{"id":5}');
      held.client.destroy();
      assert.equal(await command.exitCode(), 0, command.output);
      assert.ok(!command.logs.some(({ level }) => level === 'error'), command.output);
    });

    test('a reload in progress at SIGTERM takes effect, and the log says so [D33, D65]', async () => {
      await using command = await start({ WORKERS, SHUTDOWN_DELAY_MS: '60000' });
      using pipe = new KeyPipe(join(folder, `${(files += 1)}.json`));
      const { pid = 0 } = command.process;
      const readers = WORKERS === '1' ? [pid] : [...(childrenOf(pid) ?? [])];
      command.write(...tokens(pipe.path));
      command.signal('SIGHUP');
      let reader = await pipe.readerAmong(readers);
      command.signal('SIGTERM');
      await isDraining(command);
      for (let left = readers.length; left > 0; left -= 1) {
        pipe.end(keySetOf(createPair('one', 'ES256')));
        await pipe.reopen(reader);
        if (left > 1) reader = await pipe.readerAmong(readers);
      }
      await logged(command, /^SIGHUP: new connections use the new settings/);
      for (const reply of await Promise.all(readers.map(() => command.call('GET', list)))) {
        assertNoToken(reply);
        assert.equal(reply.header('connection'), 'close');
      }
      assert.equal(await shownSetting(command, 'AUTH_AUDIENCE'), 'api');
      command.signal('SIGTERM');
      assert.equal(await command.exitCode(), 1);
    });

    test('the key file is read again', async () => {
      const keys = join(folder, `${(files += 1)}.json`);
      writeFileSync(keys, keySetOf(createPair('one', 'ES256')));
      await using command = await start({ WORKERS }, ...tokens(keys));
      writeFileSync(keys, 'garbage');
      assert.match(JSON.stringify(await refusal(command)), /AUTH_JWKS_FILE \(.+\) cannot be used/);
    });

    test('a reload keeps the counters and changes LOG_FORMAT, LOG_LEVEL and LOG_CLIENT', async () => {
      await using command = await start({ WORKERS, LOG_FORMAT: '' }, 'LOG_FORMAT=json');
      await command.call('GET', list);
      command.write('LOG_FORMAT=pretty', 'LOG_LEVEL=debug', 'LOG_CLIENT=false');
      command.signal('SIGHUP');
      await poll(() => command.output.includes(' INFO: reloaded'), 'a pretty line');
      await command.call('GET', list);
      await poll(() => command.output.includes('list /api/work-items 200 ok ('), 'the pretty line of a call');
      const metrics = await command.metrics();
      assert.match(metrics, /^work_item_gateway_requests_total\{operation="list",status="200"\} 2$/m);
    });

    test('invalid settings change nothing, and one error line has every problem; a changed secret is not shown', async () => {
      await using command = await start({ WORKERS });
      for (const [problem, ...lines] of [
        [
          /"TYPO in the settings file is.*IN_FLIGHT_MAX in the settings file is/,
          'IN_FLIGHT_MAX=none',
          'TYPO=1',
          'REQUEST_BYTES_MAX=10',
        ],
        [/TLS_CERT_FILE/, 'TLS_CERT_FILE=/no/cert', 'TLS_KEY_FILE=/no/key'],
        [/AUTH_JWKS_FILE \(.+\) cannot be used/, ...tokens('/no/keys')],
      ] as [RegExp, ...string[]][]) {
        const before = command.logs.filter(isRefusal).length;
        command.write(...lines);
        assert.match(JSON.stringify(await refusal(command)), problem);
        assert.equal(await postsALongItem(command), 201);
        assert.equal(command.logs.filter(isRefusal).length, before + 1);
      }
      command.write('REQUEST_BYTES_MAX=10', 'OTEL_EXPORTER_OTLP_HEADERS=key=hunter2');
      const { changed } = await reload(command);
      assert.deepEqual(changed, { requestBytesMax: '10485760 → 10', otelExporterOtlpHeaders: ' → (not shown)' });
      assert.equal(await postsALongItem(command), 413);
      assert.doesNotMatch(command.output, /hunter2/);
    });

    test('a reload can change plain http to https and back', { skip: noOpenssl }, async () => {
      using certificates = new CertificateFolder();
      const authority = certificates.authority('authority');
      const issued = certificates.issue(authority, 'first');
      const tls = [
        `TLS_CERT_FILE=${certificates.write('tls.crt', issued.cert)}`,
        `TLS_KEY_FILE=${certificates.write('tls.key', issued.key)}`,
      ];
      await using command = await start({ WORKERS });
      command.write(...tls);
      await reload(command);
      const options = { ca: authority.cert, servername: 'localhost' };
      await using client = await RawClient.openSecure(command.port, options);
      assertReply(await client.call('GET', list), 200, '[]');
      assert.match(await command.metrics(), /certificate_days_left\{use="clients"\} \d/);
      command.write();
      await reload(command);
      assertReply(await command.call('GET', list), 200, '[]');
      assert.doesNotMatch(await command.metrics(), /certificate_days_left\{use="clients"\} \d/);
    });

    test('if a reload changes only settings that do not concern connections, the connections stay open', async () => {
      await using command = await start({ WORKERS }, 'LOG_LEVEL=error');
      await using one = await command.connect();
      await using other = await command.connect();
      for (const client of [one, other]) assertReply(await client.call('GET', list), 200, '[]');
      command.write('LOG_LEVEL=info', 'INSTANCE_NAME=another', 'SHUTDOWN_TIMEOUT_MS=5000');
      const line = await reload(command);
      assert.deepEqual(line['changed'], {
        instanceName: ' → another',
        shutdownTimeoutMs: '10000 → 5000',
        logLevel: 'error → info',
      });
      for (const client of [one, other]) {
        const reply = await client.call('GET', list);
        assertReply(reply, 200, '[]');
        assert.equal(reply.header('connection'), 'keep-alive');
      }
      assert.equal(await shownSetting(command, 'LOG_LEVEL'), 'info');
      await logged(command, 'request');
    });
  });
}

describe('SIGHUP with one process', () => {
  test('a call that began after one reload, on a connection from before it, is not cut by the next reload', async () => {
    await using command = await start({ WORKERS: '1' });
    await using client = await command.connect();
    const bytes = requestBytes('POST', list, { body: '{"title":"x"}' });
    const [half, body] = [bytes.indexOf('\r\n') + 5, bytes.indexOf('{')];
    client.send(bytes.subarray(0, half));
    await begun(command, ['REQUEST_BYTES_MAX=100']);
    await command.call('GET', '/nothing');
    client.send(bytes.subarray(half, body));
    await command.call('GET', '/nothing');
    await begun(command, ['REQUEST_BYTES_MAX=10']);
    // A time in which settings without a call would end.
    await new Promise((resolve) => setTimeout(resolve, 200));
    client.send(bytes.subarray(body));
    assert.equal((await client.reply()).status, 201);
  });

  test('with a new BACKEND_URL, new calls go to the new backend, and the old backend answers the call in flight', async () => {
    const other = await ScriptedBackend.start();
    after(() => other.stop());
    other.answers(answer('["other"]'));
    await using command = await start({ WORKERS: '1', BACKEND_URL: '' }, `BACKEND_URL=${backend.url}`);
    const held = await holdCall(backend, command);
    command.write(`BACKEND_URL=${other.url}`);
    command.signal('SIGHUP');
    await poll(async () => (await command.call('GET', list)).text === '["other"]', 'the new backend answers');
    held.open();
    assertReply(await held.client.reply(), 200, '{"id":5}');
    held.client.destroy();
    await command.log(isReloaded, 'the reload ends');
    const before = backend.requests.length;
    for (let calls = 0; calls < 8; calls += 1) {
      assertReply(await command.call('GET', list), 200, '["other"]');
    }
    assert.equal(backend.requests.length, before);
    assert.match((await command.admin('/readyz')).text, /"reachable":true/);
  });

  test('settings that need a restart are logged with old and new value, and the other settings take effect', async () => {
    await using command = await start({ WORKERS: '', PORT: '', HOST: '' }, 'HOST=127.0.0.1', 'PORT=0');
    command.write('HOST=localhost', 'PORT=1', 'REQUEST_BYTES_MAX=10', 'WORKERS=2');
    const { changed } = await reload(command);
    assert.deepEqual(changed, { requestBytesMax: '10485760 → 10' });
    const line = command.logs.find(({ notApplied }) => notApplied !== undefined);
    assert.deepEqual(
      [line?.['level'], line?.['msg'], line?.['notApplied']],
      [
        'warn',
        'SIGHUP: new values of these settings need a restart; the old values stay in force',
        { host: '127.0.0.1 → localhost', port: '0 → 1', workers: '1 → 2' },
      ],
    );
    assert.equal(await postsALongItem(command), 413);
    assert.equal(await shownSetting(command, 'PORT'), '0');
  });

  test('an idle connection stays open for a second after SIGHUP; its next call gets the new settings and is its last', async () => {
    await using command = await start({ WORKERS: '1' });
    await using client = await command.connect();
    await using quiet = await command.connect();
    for (const each of [client, quiet]) assertReply(await each.call('GET', list), 200, '[]');
    await begun(command, ['REQUEST_BYTES_MAX=10']);
    const reply = await client.call('POST', list, { body: '{"title":"long"}' });
    assert.deepEqual([reply.status, reply.header('connection')], [413, 'close']);
    await quiet.closed();
    await command.log(isReloaded, 'the reload ends');
  });

  test('CONNECTIONS_MAX counts the connections from before the reload', async () => {
    await using command = await start({ WORKERS: '1' }, 'CONNECTIONS_MAX=2');
    const held = [await holdCall(backend, command), await holdCall(backend, command)];
    await begun(command, ['CONNECTIONS_MAX=2', 'REQUEST_BYTES_MAX=10']);
    await using refused = await command.connect();
    await refused.closed();
    await begun(command, ['CONNECTIONS_MAX=3', 'REQUEST_BYTES_MAX=10']);
    await using third = await command.connect();
    assertReply(await third.call('GET', list), 200, '[]');
    for (const { client, open } of held) {
      open();
      assertReply(await client.reply(), 200, '{"id":5}');
      client.destroy();
    }
  });

  test('IN_FLIGHT_MAX counts the calls from before the reload', async () => {
    await using command = await start({ WORKERS: '1' }, 'IN_FLIGHT_MAX=1');
    const held = await holdCall(backend, command);
    await begun(command, ['IN_FLIGHT_MAX=1', 'REQUEST_BYTES_MAX=10']);
    assert.equal((await command.call('GET', list)).status, 503);
    held.open();
    assertReply(await held.client.reply(), 200, '{"id":5}');
    held.client.destroy();
    assertReply(await command.call('GET', list), 200, '[]');
  });

  test('BUFFERED_BYTES_MAX counts the bodies from before the reload, and a reload can change it', async () => {
    const body = JSON.stringify('x'.repeat(60_000));
    await using command = await start({ WORKERS: '1' }, 'BUFFERED_BYTES_MAX=100000');
    const held = await holdCall(backend, command, requestBytes('POST', list, { body }));
    const held503 = async () => (await command.call('POST', list, { body })).status;
    await begun(command, ['BUFFERED_BYTES_MAX=100000', 'DOCS=true']);
    assert.equal(await held503(), 503);
    const shown = /^work_item_gateway_buffered_bytes (\d+)$/m.exec(await command.metrics())?.[1];
    // The body counts as allocated: it fills most of a read of 64 KiB [D69].
    assert.ok(Number(shown) >= body.length && Number(shown) <= 65_536, String(shown));
    await begun(command, ['BUFFERED_BYTES_MAX=150000', 'DOCS=true']);
    assert.equal(await held503(), 201);
    held.open();
    assert.equal((await held.client.reply()).status, 201);
    held.client.destroy();
    await poll(async () => (await figureOf(command, 'buffered_bytes')) === 0, 'no body is held');
  });

  test('fifty reloads leave no descriptor or connection open', async () => {
    await using command = await start({ WORKERS: '1' });
    const round = async (limit: number): Promise<void> => {
      command.write(`REQUEST_BYTES_MAX=${limit}`);
      await reload(command);
      assertReply(await command.call('GET', list), 200, '[]');
    };
    await round(100);
    const before = countDescriptors(command.process.pid) ?? 0;
    for (let limit = 101; limit <= 150; limit += 1) {
      await round(limit);
    }
    await poll(
      () => (countDescriptors(command.process.pid) ?? 0) <= before + 2 && backend.connectionsOpen <= 2,
      'descriptors and connections of earlier settings are closed',
    );
  });
});

test('a worker that was starting during a reload serves no call with the old settings', async () => {
  const keys = join(folder, `${(files += 1)}.json`);
  writeFileSync(keys, keySetOf(createPair('one', 'ES256')));
  // Without an answer of Redis, a worker needs a longer time for the new settings.
  const silent = createServer().listen(0, '127.0.0.1');
  after(() => silent.close());
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  await using command = await start({ WORKERS: '2' });
  const [victim = 0, other] = childrenOf(command.process.pid) ?? [];
  process.kill(victim, 'SIGKILL');
  const successor = (): number | undefined =>
    childrenOf(command.process.pid)?.find((pid) => pid !== victim && pid !== other);
  await poll(() => successor() !== undefined, 'the successor exists');
  const pid = successor() ?? 0;
  // A process that is stopped before its `exec` would block the primary process.
  assert.equal((await command.admin('/livez')).status, 200);
  process.kill(pid, 'SIGSTOP');
  await begun(command, [...tokens(keys), 'RATE_LIMIT=100000/1h', `RATE_LIMIT_REDIS_URL=redis://127.0.0.1:${port}`]);
  process.kill(pid, 'SIGCONT');
  await command.log(isReloaded, 'the reload ends');
  await poll(async () => {
    assertNoToken(await command.call('GET', list));
    return command.logs.some((line) => line['status'] === 401 && line['pid'] === pid);
  }, 'the successor serves');
});
