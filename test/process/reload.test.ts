// SIGHUP: every setting that does not change a listener's address or whether there are workers [D65].

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, beforeEach, describe, test } from 'node:test';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { assertReply } from '../helpers/expected.ts';
import { holdCall } from '../helpers/held-call.ts';
import { createPair, keySetOf } from '../helpers/issuer.ts';
import { countDescriptors } from '../helpers/process-figures.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command, type LogLine } from '../helpers/targets.ts';
import { Viewer } from '../helpers/viewer.ts';

const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-'));
after(() => {
  rmSync(folder, { recursive: true });
});

let backend: ScriptedBackend;
beforeEach(async () => {
  backend = await ScriptedBackend.start();
  backend.answers(answer('[]'));
});
afterEach(() => backend.stop());

const list = '/api/work-items';
let files = 0;

/** A gateway with a settings file of these lines, and what writes others in their place. */
async function start(environment: NodeJS.ProcessEnv, ...lines: readonly string[]) {
  const file = join(folder, `${(files += 1)}.env`);
  const write = (...next: readonly string[]): void => {
    writeFileSync(file, next.map((line) => `${line}\n`).join(''));
  };
  write(...lines);
  const command = await startCommand({ SETTINGS_FILE: file, BACKEND_URL: backend.url, ...environment });
  return { command, write, [Symbol.asyncDispose]: async () => command[Symbol.asyncDispose]() };
}

function isReloaded({ msg }: LogLine): boolean {
  return String(msg).startsWith('reloaded');
}

/** Sends SIGHUP; the line that says that the reload has ended. */
async function reload(command: Command): Promise<LogLine> {
  const before = command.logs.filter(isReloaded).length;
  command.signal('SIGHUP');
  return await command.log((line) => command.logs.filter(isReloaded)[before] === line, 'the reload ends');
}

function isRefusal({ level, msg }: LogLine): boolean {
  return level === 'error' && /^(?:SIGHUP|reload)/.test(String(msg));
}

/** Sends SIGHUP; the line that says why nothing has changed. */
async function refusal(command: Command): Promise<LogLine> {
  command.signal('SIGHUP');
  return await command.log(isRefusal, 'the line of a refusal');
}

async function shownSetting(command: Command, name: string): Promise<string | undefined> {
  await using viewer = await Viewer.open(command.adminPort);
  const { facts } = await viewer.message((message) => message.facts !== undefined, 'the settings');
  return facts?.settings.find(({ variable }) => variable === name)?.value;
}

async function postsALongItem(command: Command): Promise<number> {
  return (await command.call('POST', list, { body: '{"title":"long"}' })).status;
}

for (const WORKERS of ['1', '2']) {
  describe(`SIGHUP with WORKERS=${WORKERS}`, () => {
    test('new settings serve new connections, and a call under way ends by the old ones', async () => {
      await using gateway = await start({ WORKERS });
      const { command, write } = gateway;
      const held = await holdCall(backend, command);
      write('REQUEST_BYTES_MAX=10', 'ITEM_ID_PARSING=whole');
      command.signal('SIGHUP');
      await poll(async () => (await postsALongItem(command)) === 413, 'the new limit is in force');
      assert.ok(!command.logs.some(isReloaded), 'the reload waits for the call under way');
      if (WORKERS === '1') {
        assert.equal(await shownSetting(command, 'REQUEST_BYTES_MAX'), '10');
        await command.log(
          ({ msg }) => String(msg).startsWith('SIGHUP: new connections'),
          'the line that says so',
        );
      }
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

    test('with another BACKEND_URL new calls go there, and one under way has its answer from the old one', async () => {
      const other = await ScriptedBackend.start();
      after(() => other.stop());
      other.answers(answer('["other"]'));
      await using gateway = await start({ WORKERS, BACKEND_URL: '' }, `BACKEND_URL=${backend.url}`);
      const { command, write } = gateway;
      const held = await holdCall(backend, command);
      write(`BACKEND_URL=${other.url}`);
      command.signal('SIGHUP');
      await poll(async () => (await command.call('GET', list)).text === '["other"]', 'new calls go there');
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

    test('what the rate limit has counted stays, and its new rate begins anew', async () => {
      await using gateway = await start({ WORKERS }, 'RATE_LIMIT=2/1h');
      const { command, write } = gateway;
      const status = async () => (await command.call('GET', list)).status;
      assert.deepEqual([await status(), await status(), await status()], [200, 200, 429]);
      write('RATE_LIMIT=2/1h', 'DOCS=true');
      await reload(command);
      assert.equal(await status(), 429);
      assert.equal((await command.call('GET', '/openapi.json')).status, 200);
      write('RATE_LIMIT=4/2h');
      await reload(command);
      assert.equal(await status(), 200);
      assert.equal((await command.call('GET', '/openapi.json')).status, 404);
    });

    test('a lower limit counts what a client has had before', async () => {
      await using gateway = await start({ WORKERS }, 'RATE_LIMIT=20/1h');
      const { command, write } = gateway;
      const statuses = async (calls: number): Promise<number[]> => {
        const all: number[] = [];
        for (let count = 0; count < calls; count += 1) all.push((await command.call('GET', list)).status);
        return all;
      };
      assert.deepEqual(await statuses(5), [200, 200, 200, 200, 200]);
      write('RATE_LIMIT=3/1h');
      await reload(command);
      assert.deepEqual(await statuses(4), [429, 429, 429, 429]);
      write(
        'RATE_LIMIT=9/1h',
        'AUTH_ISSUER=https://issuer.test',
        'AUTH_AUDIENCE=api',
        'AUTH_JWKS_FILE=/no/keys',
      );
      await refusal(command);
      assert.deepEqual(await statuses(2), [429, 429]);
      write('RATE_LIMIT=7/1h');
      await reload(command);
      assert.deepEqual(await statuses(3), [200, 200, 429]);
      assert.ok(
        !command.logs.some(({ msg }) => String(msg).startsWith('the primary process does not count')),
      );
    });

    test('a file of keys with others under the same name is read again', async () => {
      const keys = join(folder, `${(files += 1)}.json`);
      writeFileSync(keys, keySetOf(createPair('one', 'ES256')));
      await using gateway = await start(
        { WORKERS },
        'AUTH_ISSUER=https://issuer.test',
        'AUTH_AUDIENCE=api',
        `AUTH_JWKS_FILE=${keys}`,
      );
      writeFileSync(keys, 'garbage');
      assert.match(JSON.stringify(await refusal(gateway.command)), /AUTH_JWKS_FILE has no keys/);
    });

    test('counted figures stay, and LOG_FORMAT, LOG_LEVEL and LOG_CLIENT change', async () => {
      await using gateway = await start({ WORKERS, LOG_FORMAT: '' }, 'LOG_FORMAT=json');
      const { command, write } = gateway;
      await command.call('GET', list);
      write('LOG_FORMAT=pretty', 'LOG_LEVEL=debug', 'LOG_CLIENT=false');
      command.signal('SIGHUP');
      await poll(() => command.output.includes(' INFO: reloaded'), 'a line for people');
      await command.call('GET', list);
      await poll(
        () => command.output.includes('list /api/work-items 200 ok ('),
        'the line of a call for people',
      );
      const metrics = await command.metrics();
      assert.match(metrics, /^work_item_gateway_requests_total\{operation="list",status="200"\} 2$/m);
    });

    test('settings that need a restart are named with old and new value, and the others change', async () => {
      await using gateway = await start({ WORKERS, PORT: '', HOST: '' }, 'HOST=127.0.0.1', 'PORT=0');
      const { command, write } = gateway;
      write('HOST=localhost', 'PORT=1', 'REQUEST_BYTES_MAX=10', 'PORT_SHARING=cluster');
      const { changed } = await reload(command);
      assert.deepEqual(changed, { requestBytesMax: '10485760 → 10' });
      const line = command.logs.find(({ notApplied }) => notApplied !== undefined);
      assert.deepEqual(
        [line?.['level'], line?.['msg'], line?.['notApplied']],
        [
          'warn',
          'new values of these settings need a restart: the old ones stay',
          { host: '127.0.0.1 → localhost', port: '0 → 1', portSharing: 'auto → cluster' },
        ],
      );
      assert.equal(await postsALongItem(command), 413);
      assert.equal(await shownSetting(command, 'PORT'), '0');
    });

    test('a secret that changes is not shown', async () => {
      await using gateway = await start({ WORKERS });
      const { command, write } = gateway;
      write('OTEL_EXPORTER_OTLP_HEADERS=key=hunter2');
      const { changed } = await reload(command);
      assert.deepEqual(changed, { otelExporterOtlpHeaders: ' → (not shown)' });
      assert.doesNotMatch(command.output, /hunter2/);
    });

    for (const [what, problem, ...lines] of [
      ['a mistake', /IN_FLIGHT_MAX in the settings file is/, 'IN_FLIGHT_MAX=none', 'REQUEST_BYTES_MAX=10'],
      ['a certificate that is not there', /TLS_CERT_FILE/, 'TLS_CERT_FILE=/no/cert', 'TLS_KEY_FILE=/no/key'],
      [
        'a file of keys that is not there',
        /AUTH_JWKS_FILE has no keys/,
        'AUTH_ISSUER=https://issuer.test',
        'AUTH_AUDIENCE=api',
        'AUTH_JWKS_FILE=/no/keys',
      ],
    ] as const) {
      test(`${what} changes nothing, and is one error line`, async () => {
        await using gateway = await start({ WORKERS });
        const { command, write } = gateway;
        write(...lines);
        const line = await refusal(command);
        assert.match(JSON.stringify(line), problem);
        assert.equal(await postsALongItem(command), 201);
        assert.equal(command.logs.filter(isRefusal).length, 1);
        write('REQUEST_BYTES_MAX=10');
        await reload(command);
        assert.equal(await postsALongItem(command), 413);
      });
    }

    test('SIGTERM in a reload: the call under way ends, nothing is left, exit code 0 [D33]', async () => {
      await using gateway = await start({ WORKERS });
      const { command, write } = gateway;
      const held = await holdCall(backend, command);
      write('REQUEST_BYTES_MAX=10');
      command.signal('SIGHUP');
      await poll(async () => (await postsALongItem(command)) === 413, 'the new limit is in force');
      command.signal('SIGTERM');
      await poll(async () => (await command.admin('/readyz')).status === 503, 'it drains');
      held.open();
      assertReply(await held.client.reply(), 200, '{"id":5}');
      held.client.destroy();
      assert.equal(await command.exitCode(), 0, command.output);
      assert.ok(!command.logs.some(({ level }) => level === 'error'), command.output);
    });

    test('plain http becomes https, and back', { skip: noOpenssl }, async () => {
      using certificates = new CertificateFolder();
      const authority = certificates.authority('authority');
      const issued = certificates.issue(authority, 'first');
      const tls = [
        `TLS_CERT_FILE=${certificates.write('tls.crt', issued.cert)}`,
        `TLS_KEY_FILE=${certificates.write('tls.key', issued.key)}`,
      ];
      await using gateway = await start({ WORKERS });
      const { command, write } = gateway;
      write(...tls);
      await reload(command);
      const options = { ca: authority.cert, servername: 'localhost' };
      await using client = await RawClient.openSecure(command.port, options);
      assertReply(await client.call('GET', list), 200, '[]');
      assert.match(await command.metrics(), /certificate_days_left\{use="clients"\} \d/);
      write();
      await reload(command);
      assertReply(await command.call('GET', list), 200, '[]');
      assert.doesNotMatch(await command.metrics(), /certificate_days_left\{use="clients"\} \d/);
    });
  });
}

describe('SIGHUP with one process', () => {
  test('does not make several of it', async () => {
    await using gateway = await start({ WORKERS: '' }, 'WORKERS=1');
    const { command, write } = gateway;
    write('WORKERS=2');
    const { changed } = await reload(command);
    assert.deepEqual(changed, {});
    assert.deepEqual(command.logs.find(({ level }) => level === 'warn')?.['notApplied'], {
      workers: '1 → 2',
    });
    assertReply(await command.call('GET', list), 200, '[]');
  });

  test('a setting that no connection depends on closes none', async () => {
    await using gateway = await start({ WORKERS: '1' }, 'LOG_LEVEL=error');
    const { command, write } = gateway;
    await using client = await command.connect();
    assertReply(await client.call('GET', list), 200, '[]');
    write('LOG_LEVEL=info', 'INSTANCE_NAME=another', 'SHUTDOWN_TIMEOUT_MS=5000');
    const line = await reload(command);
    assert.deepEqual(line['changed'], {
      instanceName: ' → another',
      shutdownTimeoutMs: '10000 → 5000',
      logLevel: 'error → info',
    });
    const reply = await client.call('GET', list);
    assertReply(reply, 200, '[]');
    assert.equal(reply.header('connection'), 'keep-alive');
    assert.equal(await shownSetting(command, 'LOG_LEVEL'), 'info');
    await command.log(({ msg }) => msg === 'request', 'the line of the call');
  });

  test('an idle connection is closed once it has been quiet, and what it sends before is answered', async () => {
    await using gateway = await start({ WORKERS: '1' });
    const { command, write } = gateway;
    await using client = await command.connect();
    assertReply(await client.call('GET', list), 200, '[]');
    write('REQUEST_BYTES_MAX=10');
    command.signal('SIGHUP');
    await poll(async () => (await postsALongItem(command)) === 413, 'the new limit is in force');
    client.send(requestBytes('POST', list, { body: '{"title":"long"}' }));
    const reply = await client.reply();
    assert.deepEqual([reply.status, reply.header('connection')], [201, 'close']);
    await command.log(isReloaded, 'the reload ends');
  });

  test('a call that takes longer than SHUTDOWN_TIMEOUT_MS is cut, and the gateway goes on', async () => {
    await using gateway = await start({ WORKERS: '1' }, 'SHUTDOWN_TIMEOUT_MS=200');
    const { command, write } = gateway;
    const held = await holdCall(backend, command);
    write('SHUTDOWN_TIMEOUT_MS=200', 'REQUEST_BYTES_MAX=10');
    await reload(command);
    await held.client.closed();
    assert.ok(command.logs.some(({ msg }) => String(msg).startsWith('the shutdown timeout has passed')));
    assertReply(await command.call('GET', list), 200, '[]');
  });

  test('fifty reloads leave no descriptor and no connection behind', async () => {
    await using gateway = await start({ WORKERS: '1' });
    const { command, write } = gateway;
    const round = async (limit: number): Promise<void> => {
      write(`REQUEST_BYTES_MAX=${limit}`);
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
      'what the servings before had is closed',
    );
  });
});
