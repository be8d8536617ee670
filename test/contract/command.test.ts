// `check --contract` as a command: output, exit codes and signals [D61].

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { createServer as createHttp2Server } from 'node:http2';
import { createServer } from 'node:tls';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import { startEmbeddedBackend } from '../../packages/stand-in-backend/stand-in-server.ts';
import { version } from '../../packages/core/version.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { ItemBackend, type Item } from './item-backend.ts';
import { runCommand } from '../helpers/command.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer, noContent, type Answer, type Exchange } from '../helpers/scripted-backend.ts';
import { useFolder } from '../helpers/suites.ts';
import { assertOthersUntouched, leftIn } from './run.ts';

const folder = useFolder();

// Shortens the time for which the command watches an idle connection.
const shortIdle = { BACKEND_IDLE_TIMEOUT_MS: '1' };

const check = (flags: readonly string[], environment: Record<string, string>) =>
  runHere(['check', ...flags], { ...shortIdle, ...environment });

/** The embedded backend over SQLite, with one item of another owner. */
async function startSqlite() {
  const backend = await startEmbeddedBackend({ host: 'localhost', port: 0, database: ':memory:' });
  const url = `${backend.url}/api/WorkItem`;
  const headers = { 'content-type': 'application/json' };
  await fetch(url, { method: 'POST', body: '{"title":"of another owner"}', headers });
  return {
    url: backend.url,
    list: async () => await (await fetch(url)).text(),
    [Symbol.asyncDispose]: () => backend.stop(),
  };
}

describe('check --contract with the embedded backend over SQLite', () => {
  test('every operation works, no item is left, exit code 0 [D61]', async () => {
    await using backend = await startSqlite();
    const before = await backend.list();
    const { code, stdout, stderr } = await check(['--contract', '--write'], { BACKEND_URL: backend.url });
    assert.equal(code, 0, stdout + stderr);
    assert.equal(stderr, '');
    const [first, ...lines] = stdout.split('\n');
    assert.equal(first, `backend: ${backend.url}/api/WorkItem`);
    assert.deepEqual(lines.slice(0, 5), [
      '  list    works',
      '  create  works',
      '  read    works',
      '  update  works',
      '  delete  works',
    ]);
    assert.match(
      lines[5] ?? '',
      /^ +connection: HTTP\/1\.1, still open after \d+ ms idle; its keep-alive timeout is 130 s; BACKEND_IDLE_TIMEOUT_MS is 1$/,
    );
    assert.deepEqual(lines.slice(6), ['', 'contract: 0 broken, 0 warnings', '']);
    assert.equal(await backend.list(), before);
  });

  test('--body sets the item, as JSON or as the name of a file [D61]', async () => {
    await using backend = await startSqlite();
    const before = await backend.list();
    const file = join(folder, 'item.json');
    writeFileSync(file, '\ufeff{"number":12345678901234567890,"state":"New","name":"x"}');
    for (const body of [file, '{"state":"New","number":1.5}']) {
      const flags = ['--contract', '--write', '--body', body];
      const { code, stdout, stderr } = await check(flags, { BACKEND_URL: backend.url });
      assert.equal(code, 0, stdout + stderr);
      assert.equal(await backend.list(), before);
    }
  });

  test('--body accepts a pipe, which can be read only once [D61]', { skip: process.platform === 'win32' }, async () => {
    await using backend = await startSqlite();
    const main = join(import.meta.dirname, '../../dist/command/main.js');
    const script = `exec '${process.execPath}' '${main}' check --contract --write --body <(echo '{"name":"x"}')`;
    const child = spawn('bash', ['-c', script], { env: { ...process.env, ...shortIdle, BACKEND_URL: backend.url } });
    const [report] = await Promise.all([text(child.stdout), once(child, 'close')]);
    assert.match(report, /^ {2}create {2}works$/m);
    assert.equal(child.exitCode, 0, report);
  });
});

describe('check --contract --json', () => {
  test('prints one JSON document with a fixed set of fields [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = {
      create: ({ request }, each) => {
        each.add(JSON.parse(request.body.toString()) as Item);
        return answer('', { status: 201 });
      },
      delete: () => answer('', { status: 403 }),
    };
    const { code, stdout, stderr } = await check(['--contract', '--write', '--json'], {
      BACKEND_URL: backend.scripted.url,
    });
    assert.equal(stderr, '');
    assert.equal(code, 1);
    const report = JSON.parse(stdout) as Record<string, never>;
    assert.deepEqual(shapeOf(report), {
      ...shape('schema version backend'),
      ...{ write: 'boolean', exitCode: 'number', interrupted: 'boolean' },
      operations: shape('list create read update delete'),
      findings: [{ ...shape('code severity title asked came clients advice'), operations: ['string'] }],
      leftBehind: [shape('id marker why remove')],
      connection: {
        ...{ httpVersion: 'string', closesAlways: 'boolean' },
        ...shape('watchedMs idleTimeoutMs', 'number'),
        ...shape('keepAliveSeconds closedAfterMs idleTimeoutMsMax', 'null'),
      },
      calls: [
        {
          ...shape('operation method path framing outcome'),
          ...shape('backendStatus clientStatus durationMs', 'number'),
          cause: 'null',
        },
      ],
    });
    assert.equal(report['schema'], 'work-item-gateway/contract/1');
    assert.equal(report['exitCode'], 1);
    assert.deepEqual(report['operations'], {
      list: 'works',
      create: 'broken',
      read: 'works',
      update: 'works',
      delete: 'broken',
    });
    const [left] = report['leftBehind'] as unknown as { id: string; remove: string }[];
    assert.equal(left?.id, '4');
    assert.equal(left.remove, `curl -X DELETE ${backend.scripted.url}/api/WorkItem/4`);
  });
});

const shape = (names: string, type = 'string') => Object.fromEntries(names.split(' ').map((name) => [name, type]));

/** Replaces each value by the name of its type. An array keeps only its first element. */
function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, 1).map(shapeOf);
  if (value === null) return 'null';
  if (typeof value !== 'object') return typeof value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, shapeOf(each)]));
}

describe('exit codes', { concurrency: 2 }, () => {
  test('exit code 0 if there are only warnings; without --write, only GET requests are sent [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = { list: () => answer('\ufeff[]') };
    const { code, stdout } = await check(['--contract'], { BACKEND_URL: backend.scripted.url });
    assert.equal(code, 0, stdout);
    assert.match(stdout, /^warning list: the JSON begins with a byte-order mark$/m);
    assert.match(stdout, /^ {2}create {2}not tried \(--write tries it with a new item\)$/m);
    assert.ok(backend.scripted.requests.every(({ method }) => method === 'GET'));
  });

  /** Asserts that no control character is printed, and that long texts are cut. */
  function assertPlain(stdout: string): void {
    assert.doesNotMatch(stdout, /(?!\n)\p{Cc}/u);
    assert.ok(stdout.length < 5_000, `${stdout.length} characters`);
  }

  test('exit code 1 for a broken operation; control characters from the backend are not printed [D61]', async () => {
    await using backend = await ItemBackend.start();
    const evil = `\u001b[2J\u009b31m${'x'.repeat(5_000)}`;
    backend.instead = {
      list: () => answer('', { status: 302, headers: [['Location', evil.replaceAll('\u001b', '\u0085')]] }),
      read: () => answer('<p>', { status: 200, headers: [['Server', '\u009b31m']] }),
    };
    const { code, stdout } = await check(['--contract', '--write'], { BACKEND_URL: backend.scripted.url });
    assert.equal(code, 1, stdout);
    assert.match(stdout, /^BROKEN list: the backend answers with a redirect/m);
    assertPlain(stdout);
    assert.match(stdout, /\ncontract: \d broken, 0 warnings\n$/);
  });

  test('control characters in the title of a problem are not printed, and a long title is cut [D61]', async () => {
    await using backend = await ItemBackend.start();
    const title = `\u001b[2J\u009b31m\nline two ${'x'.repeat(5_000)}`;
    const errors = { [`\u001b[2J${'y'.repeat(5_000)}`]: [] };
    backend.instead = { create: () => answer(JSON.stringify({ title, errors }), { status: 400 }) };
    const { stdout } = await check(['--contract', '--write'], { BACKEND_URL: backend.scripted.url });
    assert.match(
      stdout,
      /; title: \\u001b\[2J\\u009b31m\\u000aline two x{50,100}\.\.\.; errors in: \\u001b\[2Jy+\.\.\.$/m,
    );
    assertPlain(stdout);
  });

  test('an operation that was not tried is not BROKEN, and the report says why it was not tried [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = { list: () => answer('{"error":"no database"}') };
    const { code, stdout } = await check(['--contract', '--write'], { BACKEND_URL: backend.scripted.url });
    assert.equal(code, 1, stdout);
    for (const name of ['create', 'update', 'delete']) {
      assert.match(stdout, new RegExp(`^ {2}${name} +not tried$`, 'm'));
    }
    assert.match(stdout, /^not tried create, update, delete: nothing was written/m);
    assert.doesNotMatch(stdout, /BROKEN/);
  });

  for (const [title, status, advice] of [
    ['without effect', 204, /^ {2}remove {3}remove item 4 with the backend's own tools/m],
    ['with 405', 405, /^ {2}remove {3}remove item 4 with the backend's own tools/m],
    ['with 503', 503, /^ {2}remove {3}curl -X DELETE http\S+\/api\/WorkItem\/4$/m],
  ] as const) {
    test(`the advice on an item whose DELETE is answered ${title} can help [D61]`, async () => {
      await using backend = await ItemBackend.start();
      backend.instead = { delete: () => (status === 204 ? noContent : answer('', { status })) };
      const { code, stdout } = await check(['--contract', '--write'], { BACKEND_URL: backend.scripted.url });
      assert.equal(code, 1);
      assert.match(stdout, /^LEFT BEHIND at the backend: item 4$/m);
      assert.match(stdout, advice);
    });
  }

  test('control characters in Allow are not printed, and a long Allow is cut [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = {
      update: () => answer('', { status: 405, headers: [['Allow', `\u009b31m${'x'.repeat(5_000)}`]] }),
    };
    const { stdout } = await check(['--contract', '--write'], { BACKEND_URL: backend.scripted.url });
    assert.match(stdout, /^BROKEN update: the backend requires PATCH/m);
    assertPlain(stdout);
  });

  const write = ['--contract', '--write'];
  const wrong: [title: string, flags: string[], says: RegExp[], environment?: Record<string, string>][] = [
    ['an invalid setting', ['--contract'], [/BACKEND_URL/], { BACKEND_URL: 'y' }],
    ['--write without --contract', ['--write'], [/--write needs --contract/]],
    ['--audit with --contract', ['--audit', '--contract'], [/--audit and --contract cannot be combined/]],
    ['--severity without --audit', ['--severity', 'low'], [/--severity needs --audit/]],
    ['an unknown severity', ['--audit', '--severity', 'bad'], [/--severity must be low, medium or high/]],
    ['a body without --write', ['--contract', '--body', '{"title":"x"}'], [/--body needs --write/]],
    ['a body with an id', [...write, '--body', '{"ID":1,"title":"x"}'], [/must not have "ID"/]],
    ['a body without a string value', [...write, '--body', '{"a":1}'], [/must have a string/]],
    ['a body that is not an object', [...write, '--body', '{"a":'], [/must be a JSON object/]],
    ['a missing file', [...write, '--body', 'nowhere.json'], [/ENOENT/]],
    ['an endless file', [...write, '--body', '/dev/zero'], [/must have at most 1048576 bytes/]],
    ['--body without a value', [...write, '--body'], [/--body needs a value/]],
    ['a misspelt flag', ['--contract', '--wirte'], [/--wirte is not a flag of check: did you mean --write\?/]],
  ]; // prettier-ignore
  for (const [title, flags, says, environment] of wrong) {
    test(`exit code 2 for ${title}, as text and as JSON, and the backend is not called [D61]`, async () => {
      await using backend = await ItemBackend.start();
      const variables = { BACKEND_URL: backend.scripted.url, ...environment };
      const text = await check(flags, variables);
      assert.deepEqual([text.code, text.stdout], [2, ''], text.stderr);
      const json = await check(['--json', ...flags], variables);
      assert.deepEqual([json.code, json.stderr], [2, ''], json.stdout);
      const { problems, ...others } = JSON.parse(json.stdout) as { problems: string[] };
      assert.deepEqual(others, { schema: 'work-item-gateway/problems/1', version, exitCode: 2 });
      assert.ok(text.stderr.startsWith(problems.map((problem) => `error: ${problem}\n`).join('')), text.stderr);
      for (const pattern of says) assert.match(problems.join('\n'), pattern);
      assert.equal(backend.scripted.connectionsTaken, 0);
    });
  }

  test('exit code 1 for a refused connection, with the reason [D61]', async () => {
    const backend = await ItemBackend.start();
    await backend.scripted.stop();
    const { code, stdout } = await check(['--contract', '--write'], { BACKEND_URL: backend.scripted.url });
    assert.equal(code, 1, stdout);
    assert.match(stdout, /^BROKEN list: the backend does not answer at all$/m);
    assert.match(stdout, /ECONNREFUSED/);
  });

  test('exit code 1 for a failed TLS handshake, with the reason [D61]', { skip: noOpenssl }, async () => {
    using folder = new CertificateFolder();
    const authority = folder.authority('untrusted');
    const { cert, key } = folder.issue(authority, 'elsewhere', { names: ['DNS:elsewhere.example.com'] });
    const server = createServer({ cert, key }, (socket) => socket.end());
    server.on('tlsClientError', () => undefined);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    try {
      const url = { BACKEND_URL: `https://127.0.0.1:${port}` };
      const { code, stdout } = await check(['--contract'], url);
      assert.equal(code, 1, stdout);
      assert.match(stdout, /^BROKEN list: no TLS connection to the backend$/m);
      const named = await check(['--contract'], { ...url, BACKEND_CA_FILE: authority.certFile });
      assert.match(named.stdout, /^BROKEN list: no TLS connection to the backend$/m);
      assert.match(named.stdout, /does not match|altnames/);
    } finally {
      server.close();
    }
  });
});

describe('a backend that speaks only HTTP/2 is named as such', () => {
  test('over TCP [D61]', async () => {
    const server = createHttp2Server().listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const { port } = server.address() as AddressInfo;
      const { code, stderr } = await check([], { BACKEND_URL: `http://127.0.0.1:${port}` });
      assert.equal(code, 1);
      assert.match(stderr, /: the backend speaks only HTTP\/2: /);
    } finally {
      server.close();
    }
  });

  test('over TLS, where ALPN refuses HTTP/1.1 [D61]', { skip: noOpenssl }, async () => {
    using folder = new CertificateFolder();
    const authority = folder.authority('own');
    const { cert, key } = folder.issue(authority, 'backend', { names: ['IP:127.0.0.1'] });
    const server = createServer({ cert, key, ALPNProtocols: ['h2'] }, (socket) => socket.end());
    server.on('tlsClientError', () => undefined);
    await once(server.listen(0, '127.0.0.1'), 'listening');
    try {
      const { port } = server.address() as AddressInfo;
      const environment = { BACKEND_URL: `https://127.0.0.1:${port}`, BACKEND_CA_FILE: authority.certFile };
      const { code, stderr } = await check([], environment);
      assert.equal(code, 1);
      assert.match(stderr, /: the backend speaks only HTTP\/2: /);
    } finally {
      server.close();
    }
  });
});

describe('if the call of the list fails, check reports the failure with the same texts as check --contract', () => {
  const field = (status: number, name: string, value: string): Answer =>
    answer('{}', { status, headers: [[name, value]] });
  for (const [what, code, given] of [
    ['401', 'wants-authentication', field(401, 'WWW-Authenticate', 'Negotiate')],
    ['302', 'redirect', field(302, 'Location', '/login')],
    ['404', 'no-such-path', answer('{}', { status: 404 })],
    ['503', 'behind-is-away', answer('{}', { status: 503 })],
    ['an HTML page', 'html', answer('<html>', { headers: [['Content-Type', 'text/html']] })],
  ] as const) {
    test(`${what} is reported as ${code}; the request has the base path of BACKEND_URL [D61]`, async () => {
      await using backend = await ItemBackend.start();
      backend.instead = { list: () => given };
      const environment = { BACKEND_URL: `${backend.scripted.url}/base/` };
      const contract = await check(['--contract', '--json'], environment);
      const { findings, calls } = JSON.parse(contract.stdout) as {
        findings: Record<'code' | 'title' | 'asked' | 'came' | 'advice', string>[];
        calls: { path: string }[];
      };
      const [finding] = findings;
      assert.equal(finding?.code, code);
      assert.equal(finding.asked, 'GET /base/api/WorkItem');
      assert.equal(calls[0]?.path, '/base/api/WorkItem');
      assert.equal(backend.scripted.requests[0]?.target, '/base/api/WorkItem');
      const plain = await check([], environment);
      assert.equal(plain.code, 1);
      const { title, came, advice } = finding;
      assert.equal(
        plain.stderr,
        `backend: ${backend.scripted.url}/base/api/WorkItem: ${title}: ${came}\n  ${advice}\n`,
      );
    });
  }

  for (const [status, title] of [
    [502, 'a proxy answers, but not the backend behind it'],
    [503, 'the backend, or a proxy in front of it, is unavailable'],
    [504, 'a proxy answers, but not the backend behind it'],
  ] as const) {
    test(`status ${status} is reported as "${title}" [D61]`, async () => {
      await using backend = await ItemBackend.start();
      backend.instead = { list: () => answer('{}', { status }) };
      const { stderr } = await check([], { BACKEND_URL: backend.scripted.url });
      assert.ok(stderr.includes(`/api/WorkItem: ${title}: status ${status}`), stderr);
    });
  }

  test('after a redirect to another address with a base path, the advice names the right BACKEND_URL [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = { list: () => field(301, 'Location', 'https://items.example.com/v1/api/WorkItem') };
    const { stderr } = await check([], { BACKEND_URL: `${backend.scripted.url}/base` });
    assert.match(stderr, /^ {2}Set BACKEND_URL to https:\/\/items\.example\.com\/v1\.$/m);
  });

  test('a success is reported with status, size and time', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = { list: () => answer('[{}]') };
    const { code, stdout } = await check([], { BACKEND_URL: backend.scripted.url });
    assert.equal(code, 0);
    assert.match(stdout, /^backend: http:\S+\/api\/WorkItem answered 200 with 4 bytes of JSON in \d+ ms$/m);
    assert.deepEqual(backend.asked, ['list']);
  });
});

describe('an interruption of check --contract', { concurrency: 2 }, () => {
  for (const [signal, operation, exitCode] of [
    ['SIGINT', 'create', 130],
    ['SIGTERM', 'update', 143],
  ] as const) {
    test(`${signal} during ${operation}: the check deletes its item and exits with ${exitCode} [D61]`, async () => {
      await using backend = await ItemBackend.start();
      const gate = Promise.withResolvers<undefined>();
      let isHeld = false;
      const held = Promise.withResolvers<undefined>();
      backend.instead = {
        [operation]: (exchange: Exchange, _backend: ItemBackend, id: string): Answer | undefined => {
          if (isHeld) return undefined;
          isHeld = true;
          const usual = backend.usual(operation, exchange.request.body, id);
          held.resolve(undefined);
          return async (each) => {
            await gate.promise;
            await usual(each);
          };
        },
      };
      await using command = runCommand(['check', '--contract', '--write'], {
        ...shortIdle,
        BACKEND_URL: backend.scripted.url,
      });
      await held.promise;
      command.signal(signal);
      gate.resolve(undefined);
      const { code } = await command.exited;
      assert.equal(code, exitCode, command.output);
      assert.deepEqual(leftIn(backend), []);
      assert.match(command.stdout, /^interrupted: the check is incomplete$/m);
      assertOthersUntouched(backend);
    });
  }

  test('if standard output is closed, the check deletes its item and exits with 0 [D61]', async () => {
    await using backend = await ItemBackend.start();
    await using command = runCommand(['check', '--contract', '--write'], {
      ...shortIdle,
      BACKEND_URL: backend.scripted.url,
    });
    command.process.stdout?.destroy();
    const { code, signal } = await command.exited;
    assert.deepEqual({ code, signal }, { code: 0, signal: null });
    assert.deepEqual(leftIn(backend), []);
    assert.ok(backend.asked.includes('delete'));
  });
});

test('check --help lists the flags of --contract', async () => {
  const { stdout } = await check(['--help'], {});
  for (const flag of ['--contract', '--write', '--body', '--json']) {
    assert.ok(stdout.includes(flag), flag);
  }
});
