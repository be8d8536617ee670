// `check --contract` as a command: output, exit codes and signals [D61].

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer as createHttp2Server } from 'node:http2';
import type { AddressInfo, Server } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test, type TestContext } from 'node:test';
import { createServer, type TlsOptions } from 'node:tls';
import { startEmbeddedBackend } from '../../packages/stand-in-backend/stand-in-server.ts';
import { version } from '../../packages/core/version.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { assertOthersUntouched, type Instead, type Item, ItemBackend, leftIn } from './item-backend.ts';
import { runCommand } from '../helpers/command.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer, noContent, type Answer } from '../helpers/scripted-backend.ts';
import { useFolder } from '../helpers/suites.ts';

const folder = useFolder();

// Shortens the time for which the command watches an idle connection.
const shortIdle = { BACKEND_IDLE_TIMEOUT_MS: '1' };

const check = (flags: readonly string[], environment: Record<string, string>) =>
  runHere(['check', ...flags], { ...shortIdle, ...environment });

/** Runs `check` with `flags` against a backend that answers with `instead`. */
async function checkItems(instead: ItemBackend['instead'], flags = ['--contract', '--write'], base = '') {
  const backend = await ItemBackend.start();
  backend.instead = instead;
  try {
    return { ...(await check(flags, { BACKEND_URL: backend.scripted.url + base })), backend };
  } finally {
    await backend.scripted.stop();
  }
}

describe('check --contract with the embedded backend over SQLite', () => {
  /** The embedded backend with one item of another owner. */
  async function startSqlite(t: TestContext) {
    const backend = await startEmbeddedBackend({ host: 'localhost', port: 0, database: ':memory:' });
    t.after(() => backend.stop());
    const url = `${backend.url}/api/WorkItem`;
    const headers = { 'content-type': 'application/json' };
    await fetch(url, { method: 'POST', body: '{"title":"of another owner"}', headers });
    const list = async () => await (await fetch(url)).text();
    const before = await list();
    return { url: backend.url, assertUnchanged: async () => assert.equal(await list(), before) };
  }

  test('every operation works, no item is left, exit code 0 [D61]', async (t) => {
    const backend = await startSqlite(t);
    const { code, stdout, stderr } = await check(['--contract', '--write'], { BACKEND_URL: backend.url });
    assert.deepEqual([code, stderr], [0, ''], stdout);
    const [first, ...lines] = stdout.split('\n');
    assert.equal(first, `backend: ${backend.url}/api/WorkItem`);
    const works = ['list  ', 'create', 'read  ', 'update', 'delete'].map((name) => `  ${name}  works`);
    const [connection = ''] = lines.splice(5, 1);
    assert.deepEqual(lines, [...works, '', 'contract: 0 broken, 0 warnings', '']);
    const idle =
      /^ +connection: HTTP\/1\.1, still open after \d+ ms idle; its keep-alive timeout is 130 s; BACKEND_IDLE_TIMEOUT_MS is 1$/;
    assert.match(connection, idle);
    await backend.assertUnchanged();
  });

  test('--body sets the item, as JSON or as the name of a file [D61]', async (t) => {
    const backend = await startSqlite(t);
    const file = join(folder, 'item.json');
    writeFileSync(file, '\ufeff{"number":12345678901234567890,"state":"New","name":"x"}');
    for (const body of [file, '{"state":"New","number":1.5}']) {
      const { code, output } = await check(['--contract', '--write', '--body', body], { BACKEND_URL: backend.url });
      assert.equal(code, 0, output);
    }
    await backend.assertUnchanged();
  });

  test(
    '--body accepts a pipe, which can be read only once [D61]',
    { skip: process.platform === 'win32' },
    async (t) => {
      const backend = await startSqlite(t);
      const main = join(import.meta.dirname, '../../dist/command/main.js');
      const script = `exec '${process.execPath}' '${main}' check --contract --write --body <(echo '{"name":"x"}')`;
      const child = spawn('bash', ['-c', script], { env: { ...process.env, ...shortIdle, BACKEND_URL: backend.url } });
      const [report] = await Promise.all([text(child.stdout), once(child, 'close')]);
      assert.match(report, /^ {2}create {2}works$/m);
      assert.equal(child.exitCode, 0, report);
    },
  );
});

const shape = (names: string, type = 'string') => Object.fromEntries(names.split(' ').map((name) => [name, type]));

/** Replaces each value by the name of its type. An array keeps only its first element. */
function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, 1).map(shapeOf);
  if (value === null) return 'null';
  if (typeof value !== 'object') return typeof value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, shapeOf(each)]));
}

test('check --contract --json prints one JSON document with a fixed set of fields [D61]', async () => {
  const { code, stdout, stderr, backend } = await checkItems(
    {
      create: ({ request }, each) => {
        each.add(JSON.parse(request.body.toString()) as Item);
        return answer('', { status: 201 });
      },
      delete: () => answer('', { status: 403 }),
    },
    ['--contract', '--write', '--json'],
  );
  assert.deepEqual([code, stderr], [1, '']);
  const report = JSON.parse(stdout) as Record<string, unknown>;
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
  assert.partialDeepStrictEqual(report, {
    ...{ schema: 'work-item-gateway/contract/1', exitCode: 1 },
    operations: { list: 'works', create: 'broken', read: 'works', update: 'works', delete: 'broken' },
    leftBehind: [{ id: '4', remove: `curl -X DELETE ${backend.scripted.url}/api/WorkItem/4` }],
  });
});

describe('the report', { concurrency: 2 }, () => {
  test('exit code 0 if there are only warnings; without --write, only GET requests are sent [D61]', async () => {
    const { code, stdout, backend } = await checkItems({ list: () => answer('\ufeff[]') }, ['--contract']);
    assert.equal(code, 0, stdout);
    assert.match(stdout, /^warning list: the JSON begins with a byte-order mark$/m);
    assert.match(stdout, /^ {2}create {2}not tried \(--write tries it with a new item\)$/m);
    assert.ok(backend.scripted.requests.every(({ method }) => method === 'GET'));
  });

  test('no control character from the backend is printed, and long texts are cut [D61]', async () => {
    const evil = `\u001b[2J\u009b31m\nline two ${'x'.repeat(5_000)}`;
    const field = `\u009b31m${'x'.repeat(5_000)}`;
    const errors = { [`\u001b[2J${'y'.repeat(5_000)}`]: [] };
    const cases: [instead: ItemBackend['instead'], shown: RegExp][] = [
      [
        { list: () => answer('', { status: 302, headers: [['Location', field]] }) },
        /^BROKEN list: the backend answers with a redirect/m,
      ],
      [
        { read: () => answer('<p>', { headers: [['Server', '\u009b31m']] }) },
        /^BROKEN read: the answer is a page, not JSON$/m,
      ],
      [
        { update: () => answer('', { status: 405, headers: [['Allow', field]] }) },
        /^BROKEN update: the backend requires PATCH/m,
      ],
      [
        { create: () => answer(JSON.stringify({ title: evil, errors }), { status: 400 }) },
        /; title: \\u001b\[2J\\u009b31m\\u000aline two x{50,100}\.\.\.; errors in: \\u001b\[2Jy+\.\.\.$/m,
      ],
    ];
    for (const [instead, shown] of cases) {
      const { code, stdout } = await checkItems(instead);
      assert.equal(code, 1);
      assert.match(stdout, shown);
      assert.doesNotMatch(stdout, /(?!\n)\p{Cc}/u);
      assert.ok(stdout.length < 5_000, `${stdout.length} characters`);
    }
  });

  test('an operation that was not tried is not BROKEN, and the report says why it was not tried [D61]', async () => {
    const { code, stdout } = await checkItems({ list: () => answer('{"error":"no database"}') });
    assert.equal(code, 1, stdout);
    for (const name of ['create', 'update', 'delete']) {
      assert.match(stdout, new RegExp(`^ {2}${name} +not tried$`, 'm'));
    }
    assert.match(stdout, /^not tried create, update, delete: nothing was written/m);
    assert.doesNotMatch(stdout, /BROKEN/);
  });

  test('the advice on an item that is left can help, whether DELETE has no effect, 405 or 503 [D61]', async () => {
    const tools = /^ {2}remove {3}remove item 4 with the backend's own tools/m;
    for (const [given, advice] of [
      [noContent, tools],
      [answer('', { status: 405 }), tools],
      [answer('', { status: 503 }), /^ {2}remove {3}curl -X DELETE http\S+\/api\/WorkItem\/4$/m],
    ] as const) {
      const { code, stdout } = await checkItems({ delete: () => given });
      assert.equal(code, 1);
      assert.match(stdout, /^LEFT BEHIND at the backend: item 4$/m);
      assert.match(stdout, advice);
    }
  });

  const write = ['--contract', '--write'];
  const wrong: [flags: string[], says: RegExp, environment?: Record<string, string>][] = [
    [['--contract'], /BACKEND_URL/, { BACKEND_URL: 'y' }],
    [['--write'], /--write needs --contract/],
    [['--audit', '--contract'], /--audit and --contract cannot be combined/],
    [['--severity', 'low'], /--severity needs --audit/],
    [['--audit', '--severity', 'bad'], /--severity must be low, medium or high/],
    [['--contract', '--body', '{"title":"x"}'], /--body needs --write/],
    [[...write, '--body', '{"ID":1,"title":"x"}'], /must not have "ID"/],
    [[...write, '--body', '{"a":1}'], /must have a string/],
    [[...write, '--body', '{"a":'], /must be a JSON object/],
    [[...write, '--body', 'nowhere.json'], /ENOENT/],
    [[...write, '--body', '/dev/zero'], /must have at most 1048576 bytes/],
    [[...write, '--body'], /--body needs a value/],
    [['--contract', '--wirte'], /--wirte is not a flag of check: did you mean --write\?/],
  ];
  test('exit code 2 for invalid flags, as text and as JSON, and the backend is not called [D61]', async () => {
    await using backend = await ItemBackend.start();
    for (const [flags, says, environment] of wrong) {
      const variables = { BACKEND_URL: backend.scripted.url, ...environment };
      const plain = await check(flags, variables);
      assert.deepEqual([plain.code, plain.stdout], [2, ''], plain.stderr);
      const json = await check(['--json', ...flags], variables);
      assert.deepEqual([json.code, json.stderr], [2, ''], json.stdout);
      const { problems, ...others } = JSON.parse(json.stdout) as { problems: string[] };
      assert.deepEqual(others, { schema: 'work-item-gateway/problems/1', version, exitCode: 2 });
      assert.ok(plain.stderr.startsWith(problems.map((problem) => `error: ${problem}\n`).join('')), plain.stderr);
      assert.match(problems.join('\n'), says);
    }
    assert.equal(backend.scripted.connectionsTaken, 0);
  });
});

describe('a backend that cannot be called', () => {
  async function portOf(t: TestContext, server: Server): Promise<number> {
    t.after(() => server.close());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return (server.address() as AddressInfo).port;
  }

  function tlsServer(options: TlsOptions): Server {
    const server = createServer(options, (socket) => socket.end());
    return server.on('tlsClientError', () => undefined);
  }

  test('exit code 1 for a refused connection, with the reason [D61]', async () => {
    const backend = await ItemBackend.start();
    await backend.scripted.stop();
    const { code, stdout } = await check(['--contract', '--write'], { BACKEND_URL: backend.scripted.url });
    assert.equal(code, 1, stdout);
    assert.match(stdout, /^BROKEN list: the backend does not answer at all$/m);
    assert.match(stdout, /ECONNREFUSED/);
    // The check of one call says it once.
    const { stderr } = await check([], { BACKEND_URL: backend.scripted.url });
    const refused = `connect ECONNREFUSED ${new URL(backend.scripted.url).host}`;
    assert.match(stderr, new RegExp(`/api/WorkItem: the backend does not answer at all: ${refused}\n`));
  });

  test('exit code 1 for a failed TLS handshake, with the reason [D61]', { skip: noOpenssl }, async (t) => {
    using certificates = new CertificateFolder();
    const authority = certificates.authority('untrusted');
    const { cert, key } = certificates.issue(authority, 'elsewhere', { names: ['DNS:elsewhere.example.com'] });
    const url = { BACKEND_URL: `https://127.0.0.1:${await portOf(t, tlsServer({ cert, key }))}` };
    for (const [more, reason] of [
      [{}, /./],
      [{ BACKEND_CA_FILE: authority.certFile }, /does not match|altnames/],
    ] as const) {
      const { code, stdout } = await check(['--contract'], { ...url, ...more });
      assert.equal(code, 1, stdout);
      assert.match(stdout, /^BROKEN list: no TLS connection to the backend$/m);
      assert.match(stdout, reason);
    }
  });

  test('one that speaks only HTTP/2 is named as such, over TCP and TLS [D61]', { skip: noOpenssl }, async (t) => {
    using certificates = new CertificateFolder();
    const authority = certificates.authority('own');
    const { cert, key } = certificates.issue(authority, 'backend', { names: ['IP:127.0.0.1'] });
    const tls = await portOf(t, tlsServer({ cert, key, ALPNProtocols: ['h2'] }));
    for (const environment of [
      { BACKEND_URL: `http://127.0.0.1:${await portOf(t, createHttp2Server())}` },
      { BACKEND_URL: `https://127.0.0.1:${tls}`, BACKEND_CA_FILE: authority.certFile },
    ]) {
      const { code, stderr } = await check([], environment);
      assert.equal(code, 1);
      assert.match(stderr, /: the backend speaks only HTTP\/2: /);
    }
  });
});

describe('check reports the call of the list', () => {
  const field = (status: number, name: string, value: string): Answer =>
    answer('{}', { status, headers: [[name, value]] });

  test('a failure has the texts of check --contract; the request has the base path of BACKEND_URL [D61]', async () => {
    const away = 'a proxy answers, but not the backend behind it';
    for (const [code, given, words] of [
      ['wants-authentication', field(401, 'WWW-Authenticate', 'Negotiate'), ''],
      ['redirect', field(302, 'Location', '/login'), ''],
      [
        'redirect',
        field(301, 'Location', 'https://items.example.com/v1/api/WorkItem'),
        'Set BACKEND_URL to https://items.example.com/v1.',
      ],
      ['no-such-path', answer('{}', { status: 404 }), ''],
      ['proxy-alone', answer('{}', { status: 502 }), away],
      ['behind-is-away', answer('{}', { status: 503 }), 'the backend, or a proxy in front of it, is unavailable'],
      ['proxy-alone', answer('{}', { status: 504 }), away],
      ['html', answer('<html>', { headers: [['Content-Type', 'text/html']] }), ''],
    ] as const) {
      const contract = await checkItems({ list: () => given }, ['--contract', '--json'], '/base/');
      const { findings, calls } = JSON.parse(contract.stdout) as {
        findings: Record<'code' | 'title' | 'asked' | 'came' | 'advice', string>[];
        calls: { path: string }[];
      };
      const { title, asked, came, advice, ...others } = findings[0] ?? assert.fail();
      assert.deepEqual([others.code, asked], [code, 'GET /base/api/WorkItem']);
      const target = contract.backend.scripted.requests[0]?.target;
      assert.deepEqual([calls[0]?.path, target], ['/base/api/WorkItem', '/base/api/WorkItem']);
      const plain = await checkItems({ list: () => given }, [], '/base/');
      assert.equal(plain.code, 1);
      const place = `backend: ${plain.backend.scripted.url}/base/api/WorkItem`;
      assert.equal(plain.stderr, `${place}: ${title}: ${came}\n  ${advice}\n`);
      assert.ok(plain.stderr.includes(words), plain.stderr);
    }
  });

  test('a success is reported with status, size and time', async () => {
    const { code, stdout, backend } = await checkItems({ list: () => answer('[{}]') }, []);
    assert.equal(code, 0);
    assert.match(stdout, /^backend: http:\S+\/api\/WorkItem answered 200 with 4 bytes of JSON in \d+ ms$/m);
    assert.deepEqual(backend.asked, ['list']);
  });
});

describe('an interruption of check --contract', { concurrency: 2 }, () => {
  const start = (backend: ItemBackend) =>
    runCommand(['check', '--contract', '--write'], { ...shortIdle, BACKEND_URL: backend.scripted.url });

  for (const [signal, operation, exitCode] of [
    ['SIGINT', 'create', 130],
    ['SIGTERM', 'update', 143],
  ] as const) {
    test(`${signal} during ${operation}: the check deletes its item and exits with ${exitCode} [D61]`, async () => {
      await using backend = await ItemBackend.start();
      const [gate, held] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
      const hold: Instead = (exchange, _backend, id) => {
        backend.instead = {};
        const usual = backend.usual(operation, exchange.request.body, id);
        held.resolve(undefined);
        return async (each) => {
          await gate.promise;
          await usual(each);
        };
      };
      backend.instead = { [operation]: hold };
      await using command = start(backend);
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
    await using command = start(backend);
    command.process.stdout?.destroy();
    const { code, signal } = await command.exited;
    assert.deepEqual([code, signal, leftIn(backend)], [0, null, []]);
    assert.ok(backend.asked.includes('delete'));
  });
});
