// SIGHUP changes settings without a restart, except listeners' addresses and the use of workers [D65].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { anyCertificate } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { figureOf, isDraining, isReloaded, logged, type LogLine, startCommand } from '../helpers/command.ts';
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

type Variables = Readonly<Record<string, string>>;

const folder = useFolder();
const backend = await useBackend();
const list = '/api/work-items';
const post = (body: string) => requestBytes('POST', list, { body });
const small = { REQUEST_BYTES_MAX: '10' };
const keySet = keySetOf(createPair('one', 'ES256'));
const keyFile = join(folder, 'keys.json');
writeFileSync(keyFile, keySet);
const tokensOf = (file: string) => ({ AUTH_ISSUER: 'https://issuer.test', AUTH_AUDIENCE: 'api', AUTH_JWKS_FILE: file });
const tokens = tokensOf(keyFile);

const isInForce = ({ msg }: LogLine) => msg === 'SIGHUP: new connections use the new settings';
const isRefusal = ({ level, msg }: LogLine) => level === 'error' && String(msg).startsWith('SIGHUP');
let files = 0;

/** A gateway with a settings file. `send` and `reload` write the file, with `more` over the settings of the start, and send SIGHUP. */
async function start(more: Variables = {}) {
  const inFile = { HOST: '127.0.0.1', PORT: '0', LOG_FORMAT: 'json', BACKEND_URL: backend.url };
  const base = { ...inFile, ...more };
  const file = join(folder, `${(files += 1)}.env`);
  const write = (variables: Variables) => {
    const lines = Object.entries({ ...base, ...variables }).map(([name, value]) => `${name}=${value}\n`);
    writeFileSync(file, lines.join(''));
  };
  write({});
  const command = await startCommand({ SETTINGS_FILE: file, HOST: '', PORT: '', LOG_FORMAT: '' });
  const send = (variables: Variables): void => {
    write(variables);
    command.signal('SIGHUP');
  };
  return Object.assign(command, {
    send,
    /** Resolves with the first new log line that `isIt` accepts; default: the line when all old calls have ended. */
    reload: async (variables: Variables = {}, isIt = isReloaded) => {
      const old = new Set(command.logs);
      send(variables);
      return await command.log((line) => !old.has(line) && isIt(line), 'the line of the reload');
    },
    postStatus: async () => (await command.call('POST', list, { body: '{"title":"long"}' })).status,
    /** Resolves when the dashboard shows these values with their sources. */
    shows: async (values: Variables) => {
      const isShown = ({ facts }: Awaited<ReturnType<typeof readState>>) =>
        Object.entries(values).every(([name, value]) =>
          facts.settings.some((each) => each.variable === name && `${each.value} (${each.source})` === value),
        );
      await readState(command.adminPort, isShown, `the dashboard shows ${JSON.stringify(values)}`);
    },
  });
}

/** One gateway for all tests of a suite. Each test begins with the settings of the start. */
function useGateway(more: Variables) {
  let gateway: Awaited<ReturnType<typeof start>>;
  before(async () => {
    gateway = await start(more);
  });
  beforeEach(() => gateway.reload());
  after(() => gateway[Symbol.asyncDispose]());
  return () => gateway;
}

for (const WORKERS of ['1', '2']) {
  describe(`SIGHUP with WORKERS=${WORKERS}`, () => {
    const gateway = useGateway({ WORKERS });

    const moreWorkers = { workers: `${WORKERS} → 3` };
    const [changedWorkers, keptWorkers] = WORKERS === '1' ? [{}, moreWorkers] : [moreWorkers, {}];
    for (const [need, variables, changed, notApplied, next] of [
      ['nothing', { LOG_LEVEL: 'debug', INSTANCE_NAME: 'another', SHUTDOWN_TIMEOUT_MS: '5000' }, { logLevel: 'info → debug', instanceName: ' → another', shutdownTimeoutMs: '10000 → 5000' }, [], 'keep-alive'],
      ['new connections', { ...small, OTEL_EXPORTER_OTLP_HEADERS: 'key=hunter2' }, { requestBytesMax: '10485760 → 10', otelExporterOtlpHeaders: ' → (not shown)' }, [], 'close'],
      ['a restart or new workers', { ...small, HOST: 'localhost', PORT: '', WORKERS: '3' }, { requestBytesMax: '10485760 → 10', ...changedWorkers }, [{ host: '127.0.0.1 → localhost', port: '0 → 3000', ...keptWorkers }], 'close'],
    ] as const) {
      test(`changed settings that need ${need} are logged without secrets, and open connections get "${next}"`, async () => {
        await using clients = new AsyncDisposableStack();
        const opened = [clients.use(await gateway().connect()), clients.use(await gateway().connect())];
        for (const client of opened) assertReply(await client.call('GET', list), 200, '[]');
        const from = gateway().logs.length;
        const line = await gateway().reload(variables, (each) => each['changed'] !== undefined);
        assert.deepEqual(line['changed'], changed);
        const text = 'SIGHUP: new values of these settings need a restart; the old values stay in force';
        const warnings = gateway().logs.slice(from).filter(({ level }) => level === 'warn');
        assert.deepEqual(warnings.map(({ msg, notApplied: kept }) => [msg, kept]), notApplied.map((kept) => [text, kept]));
        for (const client of opened) assert.equal((await client.call('GET', list)).header('connection'), next);
        assert.equal(await gateway().postStatus(), next === 'close' ? 413 : 201);
        if (notApplied.length > 0) await gateway().shows({ PORT: '0 (file)', REQUEST_BYTES_MAX: '10 (file)' });
        assert.doesNotMatch(gateway().output, /hunter2/);
        await poll(() => gateway().logs.slice(from).some(isReloaded), 'the reload ends');
      });
    } // prettier-ignore

    test('SIGHUP without a change writes one line, at every log level', async () => {
      for (const LOG_LEVEL of ['info', 'silent']) {
        const from = gateway().logs.length;
        await gateway().reload({ ...tokens, LOG_LEVEL });
        const loaded = () =>
          gateway()
            .logs.slice(from)
            .filter(({ keys }) => keys !== undefined).length;
        if (LOG_LEVEL === 'info') await poll(() => loaded() === Number(WORKERS), 'each worker has its keys');
        const before = gateway().logs.length;
        for (let round = 1; round <= 2; round += 1) {
          assert.deepEqual((await gateway().reload({ ...tokens, LOG_LEVEL }))['changed'], {});
        }
        assert.deepEqual(gateway().logs.slice(before).map(({ msg }) => msg), ['reloaded', 'reloaded']); // prettier-ignore
      }
    });

    test('if settings are invalid or unusable, nothing changes, and one error line has every problem', async () => {
      writeFileSync(join(folder, 'garbage.json'), 'garbage');
      for (const [problem, variables] of [
        [/"TYPO in the settings file is.*IN_FLIGHT_MAX in the settings file is/, { IN_FLIGHT_MAX: 'none', TYPO: '1' }],
        [/TLS_CERT_FILE/, { TLS_CERT_FILE: '/no/cert', TLS_KEY_FILE: '/no/key' }],
        [/AUTH_JWKS_FILE \(.+\) cannot be used/, tokensOf(join(folder, 'garbage.json'))],
      ] as const) {
        const from = gateway().logs.length;
        assert.match(JSON.stringify(await gateway().reload({ ...small, ...variables }, isRefusal)), problem);
        assert.equal(await gateway().postStatus(), 201);
        assert.equal(gateway().logs.slice(from).filter(isRefusal).length, 1);
      }
    });

    test('the key file is read again, also if its name is the same', async () => {
      const file = join(folder, `changing-${WORKERS}.json`);
      writeFileSync(file, keySet);
      await gateway().reload(tokensOf(file));
      const workers = () => childrenOf(gateway().process.pid) ?? [];
      const [before, from] = [workers(), gateway().logs.length];
      for (const text of ['garbage', '{"keys":[]}']) {
        writeFileSync(file, text);
        const line = await gateway().reload({ ...small, ...tokensOf(file) }, isRefusal);
        assert.match(JSON.stringify(line), /"problems":\["AUTH_JWKS_FILE \(.+\) cannot be used/);
      }
      const errors = gateway()
        .logs.slice(from)
        .filter(({ level }) => level === 'error');
      assert.deepEqual([errors.length, workers()], [2, before]);
      if (WORKERS === '1') return;
      // A new worker gets the keys in force.
      writeFileSync(file, 'garbage');
      process.kill(before[0] ?? 0, 'SIGKILL');
      await gateway().log(
        ({ msg }) => msg === 'the keys of the issuer cannot be fetched',
        'the new worker reads the file',
      );
      await poll(() => workers().length === 2 && !workers().includes(before[0] ?? 0), 'the worker is replaced');
      writeFileSync(file, keySet);
      await gateway().reload({ ...small, ...tokensOf(file) });
    });

    test('calls in flight at several reloads end with their old settings, and then each reload ends', async () => {
      const { reload, postStatus } = gateway();
      const from = gateway().logs.length;
      const held = [await holdCall(backend, gateway())];
      await reload({ REQUEST_BYTES_MAX: '100' }, isInForce);
      held.push(await holdCall(backend, gateway(), post('{"title":"x"}')));
      await reload({ ...small, ITEM_ID_PARSING: 'whole' }, isInForce);
      assert.equal(await postStatus(), 413);
      assert.equal((await gateway().call('GET', `${list}/12abc`)).status, 400);
      await reload({ DOCS: 'true' }, isInForce);
      assert.equal(await postStatus(), 201);
      const ended = () => gateway().logs.slice(from).filter(isReloaded).length;
      assert.ok(ended() <= 1, 'the two reloads during calls have not ended');
      for (const [index, status] of [200, 201].entries()) {
        held[index]?.open();
        const reply = await held[index]?.client.reply();
        assert.ok(reply);
        assertReply(reply, status, '{"id":5}');
        assert.equal(reply.header('connection'), 'close');
        held[index]?.client.destroy();
      }
      await poll(() => ended() === 3, 'each reload ends');
    });

    test('after a reload that turns tokens on, every call needs one, and a call in flight is not cut after SHUTDOWN_TIMEOUT_MS [D65]', async () => {
      await using cleanUp = new AsyncDisposableStack();
      const connected = async () => cleanUp.use(await gateway().connect());
      const held = await holdCall(backend, gateway());
      // Sent ahead while the held call is in flight: not answered, because the reply to the held call is the last.
      held.client.send(requestBytes('GET', `${list}/6`));
      const [idle, fresh, halfway, quiet] = [
        await connected(),
        await connected(),
        await connected(),
        await connected(),
      ];
      for (const client of [idle, quiet]) assertReply(await client.call('GET', list), 200, '[]');
      const bytes = post('{"title":"x"}');
      const half = bytes.indexOf('\r\n') + 5;
      halfway.send(bytes.subarray(0, half));
      await gateway().reload({ ...tokens, SHUTDOWN_TIMEOUT_MS: '100' }, isInForce);
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
      // An idle connection stays open for a second.
      await quiet.closed();
      held.open();
      const reply = await held.client.reply();
      assertReply(reply, 200, '{"id":5}');
      assert.equal(reply.header('connection'), 'close');
      await held.client.closed();
      assert.equal(held.client.unread.length, 0);
      assert.equal(backend.requests.length, calls);
    });

    test(
      'a reload changes plain http to https; then a TLS handshake from before another reload, and streams of an HTTP/2 client that ignores GOAWAY, need a token after it [D65]',
      { skip: noHttp2OfCommand },
      async () => {
        const { certFile, keyFile } = anyCertificate();
        const tls = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, HTTP2: 'true' };
        await gateway().reload(tls);
        const pending = connect(gateway().port, '127.0.0.1');
        await once(pending, 'connect');
        await using streams = await FrameClient.begin(gateway().port);
        streams.send(headers(1, requestFields('GET', list)));
        await streams.replies(1);
        await gateway().reload({ ...tls, ...tokens }, isInForce);
        const calls = backend.requests.length;
        await using shaken = await RawClient.openSecure(gateway().port, { socket: pending, rejectUnauthorized: false });
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

    test('a rate limit with the same window keeps its count, another window starts at zero, and a refused reload changes no limit', async () => {
      for (const [variables, isIt, ...statuses] of [
        [{ RATE_LIMIT: '20/1h' }, isReloaded, 200, 200, 200, 200, 200],
        [{ RATE_LIMIT: '3/1h' }, isReloaded, 429, 429],
        [{ RATE_LIMIT: '9/1h', ...tokensOf('/no/keys') }, isRefusal, 429, 429],
        [{ RATE_LIMIT: '7/1h' }, isReloaded, 200, 200, 429],
        [{ RATE_LIMIT: '7/1h', DOCS: 'true' }, isReloaded, 429],
        [{ RATE_LIMIT: '4/2h' }, isReloaded, 200],
      ] as const) {
        await gateway().reload(variables, isIt);
        for (const status of statuses) assert.equal((await gateway().call('GET', list)).status, status, variables.RATE_LIMIT);
        const docs = (await gateway().call('GET', '/openapi.json')).status;
        assert.equal(docs, 'DOCS' in variables ? 200 : 404);
      }
      assert.doesNotMatch(gateway().output, /the primary process does not answer/);
    }); // prettier-ignore

    test('a reload keeps the counters and changes LOG_FORMAT, LOG_LEVEL and LOG_CLIENT', async () => {
      await gateway().call('GET', list);
      gateway().send({ LOG_FORMAT: 'pretty', LOG_LEVEL: 'debug', LOG_CLIENT: 'false' });
      await gateway().prints(/ INFO: reloaded/);
      await gateway().call('GET', list);
      await gateway().prints(/list \/api\/work-items 200 ok \(/);
      const metrics = await gateway().metrics();
      const [, calls] =
        /^work_item_gateway_requests_total\{operation="list",status="200"\} (\d+)$/m.exec(metrics) ?? [];
      assert.ok(Number(calls) >= 2, String(calls));
    });

    test('after SIGTERM during a reload, the call in flight finishes, and the exit code is 0 [D33]', async () => {
      const from = gateway().logs.length;
      const held = await holdCall(backend, gateway());
      await gateway().reload(small, isInForce);
      gateway().signal('SIGTERM');
      await isDraining(gateway());
      held.open();
      assertReply(await held.client.reply(), 200, '{"id":5}');
      held.client.destroy();
      assert.equal(await gateway().exitCode(), 0, gateway().output);
      assert.deepEqual(gateway().logs.slice(from).filter((line) => line['level'] === 'error' || isReloaded(line)), []); // prettier-ignore
    });
  });

  test(`with WORKERS=${WORKERS}, a reload in progress at SIGTERM takes effect, and the log says so [D33, D65]`, async () => {
    await using gateway = await start({ WORKERS, SHUTDOWN_DELAY_MS: '60000' });
    using pipe = new KeyPipe(join(folder, `pipe-${WORKERS}.json`));
    const { pid = 0 } = gateway.process;
    const readers = WORKERS === '1' ? [pid] : [...(childrenOf(pid) ?? [])];
    gateway.send(tokensOf(pipe.path));
    let reader = await pipe.readerAmong(readers);
    gateway.signal('SIGTERM');
    await isDraining(gateway);
    for (let left = readers.length; left > 0; left -= 1) {
      pipe.end(keySet);
      await pipe.reopen(reader);
      if (left > 1) reader = await pipe.readerAmong(readers);
    }
    await gateway.log(isInForce, 'the new settings are in force');
    for (const reply of await Promise.all(readers.map(() => gateway.call('GET', list)))) {
      assertNoToken(reply);
      assert.equal(reply.header('connection'), 'close');
    }
    await gateway.shows({ AUTH_AUDIENCE: 'api (file)' });
    gateway.signal('SIGTERM');
    assert.equal(await gateway.exitCode(), 1);
  });
}

describe('SIGHUP with one process', () => {
  const gateway = useGateway({ WORKERS: '1' });

  test('with a new BACKEND_URL, new calls go to the new backend, and the old backend answers the call in flight', async () => {
    const other = await ScriptedBackend.start();
    after(() => other.stop());
    other.answers(answer('["other"]'));
    const held = await holdCall(backend, gateway());
    const before = backend.requests.length;
    await gateway().reload({ BACKEND_URL: other.url }, isInForce);
    assertReply(await gateway().call('GET', list), 200, '["other"]');
    held.open();
    assertReply(await held.client.reply(), 200, '{"id":5}');
    held.client.destroy();
    await poll(() => isReloaded(gateway().logs.at(-1) ?? {}), 'the reload ends');
    for (let calls = 0; calls < 8; calls += 1) assertReply(await gateway().call('GET', list), 200, '["other"]');
    assert.equal(backend.requests.length, before);
    assert.match((await gateway().admin('/readyz')).text, /"reachable":true/);
  });

  for (const [name, low, high, expected] of [
    ['CONNECTIONS_MAX', '1', '2', 'closed'],
    ['IN_FLIGHT_MAX', '1', '2', 503],
    ['BUFFERED_BYTES_MAX', '100000', '150000', 503],
  ] as const) {
    test(`${name} counts what is left from before the reload, and a reload can change it`, async () => {
      const body = JSON.stringify('x'.repeat(60_000));
      const outcome = () =>
        gateway().call('POST', list, { body }).then(({ status }) => status, () => 'closed'); // prettier-ignore
      await gateway().reload({ [name]: low });
      const held = await holdCall(backend, gateway(), post(body));
      await gateway().reload({ [name]: low, DOCS: 'true' }, isInForce);
      assert.equal(await outcome(), expected);
      if (name === 'BUFFERED_BYTES_MAX') {
        // The body counts as allocated: it fills most of a read of 64 KiB [D69].
        const bytes = (await figureOf(gateway(), 'buffered_bytes')) ?? 0;
        assert.ok(bytes >= body.length && bytes <= 65_536, String(bytes));
      }
      await gateway().reload({ [name]: high, DOCS: 'true' }, isInForce);
      assert.equal(await outcome(), 201);
      held.open();
      assert.equal((await held.client.reply()).status, 201);
      held.client.destroy();
    });
  }

  test('twenty reloads leave no descriptor or connection open', async () => {
    const { pid } = gateway().process;
    let before = 0;
    for (let limit = 100; limit <= 120; limit += 1) {
      await gateway().reload({ REQUEST_BYTES_MAX: String(limit) });
      assertReply(await gateway().call('GET', list), 200, '[]');
      if (limit === 100) before = countDescriptors(pid) ?? 0;
    }
    const isClosed = () => (countDescriptors(pid) ?? 0) <= before + 2 && backend.connectionsOpen <= 2;
    await poll(isClosed, 'descriptors and connections of earlier settings are closed');
  });
});

test('a worker that was starting during a reload serves no call with the old settings', async () => {
  // Without an answer of Redis, a worker needs a longer time for the new settings.
  await using silent = createServer((socket) => void socket.resume()).listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const url = `redis://127.0.0.1:${(silent.address() as AddressInfo).port}`;
  await using gateway = await start({ WORKERS: '2' });
  const first = childrenOf(gateway.process.pid) ?? [];
  process.kill(first[0] ?? 0, 'SIGKILL');
  const successor = () => childrenOf(gateway.process.pid)?.find((each) => !first.includes(each));
  await poll(() => successor() !== undefined, 'the successor exists');
  const pid = successor() ?? 0;
  // A process that is stopped before its `exec` would block the primary process.
  assert.equal((await gateway.admin('/livez')).status, 200);
  process.kill(pid, 'SIGSTOP');
  await gateway.reload({ ...tokens, RATE_LIMIT: '100000/1h', RATE_LIMIT_REDIS_URL: url }, isInForce);
  process.kill(pid, 'SIGCONT');
  await logged(gateway, 'reloaded');
  await poll(async () => {
    assertNoToken(await gateway.call('GET', list));
    return gateway.logs.some((line) => line['status'] === 401 && line['pid'] === pid);
  }, 'the successor serves');
});
