// `check --contract` as a command: what it prints, with which code it exits, and what a signal does [D61].

import assert from 'node:assert/strict';
import { writeFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer } from 'node:tls';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';

import { startEmbeddedBackend } from '../../packages/stand-in-backend/server.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { ItemBackend, type Item } from '../helpers/item-backend.ts';
import { answer, type Answer } from '../helpers/scripted-backend.ts';
import { runCommand } from '../helpers/targets.ts';
import { assertOthersUntouched, leftIn } from './run.ts';

// So that the command does not watch an idle connection for long.
const shortIdle = { BACKEND_IDLE_TIMEOUT_MS: '1' };

async function check(flags: readonly string[], environment: Record<string, string>) {
  await using command = runCommand(['check', ...flags], { ...shortIdle, ...environment });
  const { code, signal } = await command.exited;
  return { code, signal, stdout: command.stdout, stderr: command.stderr };
}

/** The embedded backend over SQLite, with one item of somebody else. */
async function startSqlite() {
  const backend = await startEmbeddedBackend({ host: 'localhost', port: 0, database: ':memory:' });
  const url = `${backend.url}/api/WorkItem`;
  await fetch(url, {
    method: 'POST',
    body: '{"title":"of somebody else"}',
    headers: { 'content-type': 'application/json' },
  });
  return {
    url: backend.url,
    list: async () => await (await fetch(url)).text(),
    [Symbol.asyncDispose]: () => backend.stop(),
  };
}

describe('with the embedded backend over SQLite', () => {
  test('everything works, nothing is left, exit code 0 [D61]', async () => {
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
      /^ +connection: HTTP\/1\.1, still open after \d+ ms idle; it promises 130 s; BACKEND_IDLE_TIMEOUT_MS is 1$/,
    );
    assert.deepEqual(lines.slice(6), ['', 'contract: 0 broken, 0 warnings', '']);
    assert.equal(await backend.list(), before);
  });

  test('--body gives the item, as JSON or as a file [D61]', async () => {
    await using backend = await startSqlite();
    const before = await backend.list();
    const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-body-'));
    const file = join(folder, 'item.json');
    writeFileSync(file, '\ufeff{"number":12345678901234567890,"state":"New","name":"x"}');
    try {
      for (const body of [file, '{"state":"New","number":1.5}']) {
        const flags = ['--contract', '--write', '--body', body];
        const { code, stdout, stderr } = await check(flags, { BACKEND_URL: backend.url });
        assert.equal(code, 0, stdout + stderr);
        assert.equal(await backend.list(), before);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe('what a program reads', () => {
  test('--json prints one document of a fixed form, and nothing else [D61]', async () => {
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
      schema: 'string',
      version: 'string',
      backend: 'string',
      write: 'boolean',
      exitCode: 'number',
      interrupted: 'boolean',
      operations: { list: 'string', create: 'string', read: 'string', update: 'string', delete: 'string' },
      findings: [
        {
          code: 'string',
          severity: 'string',
          operations: ['string'],
          title: 'string',
          asked: 'string',
          came: 'string',
          clients: 'string',
          advice: 'string',
        },
      ],
      leftBehind: [{ id: 'string', marker: 'string', why: 'string', remove: 'string' }],
      connection: {
        httpVersion: 'string',
        closesAlways: 'boolean',
        keepAliveSeconds: 'null',
        watchedMs: 'number',
        closedAfterMs: 'null',
        idleTimeoutMs: 'number',
        idleTimeoutMsMax: 'null',
      },
      calls: [
        {
          operation: 'string',
          method: 'string',
          path: 'string',
          backendStatus: 'number',
          framing: 'string',
          outcome: 'string',
          cause: 'null',
          clientStatus: 'number',
          durationMs: 'number',
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

/** The type of each value; of an array that of its first. */
function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.slice(0, 1).map(shapeOf);
  }
  return value === null
    ? 'null'
    : typeof value === 'object'
      ? Object.fromEntries(Object.entries(value).map(([name, each]) => [name, shapeOf(each)]))
      : typeof value;
}

describe('exit codes', { concurrency: 2 }, () => {
  test('0 with warnings alone, and only reads without --write [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = { list: () => answer('\ufeff[]') };
    const { code, stdout } = await check(['--contract'], { BACKEND_URL: backend.scripted.url });
    assert.equal(code, 0, stdout);
    assert.match(stdout, /^warning list: the JSON begins with a byte-order mark$/m);
    assert.match(stdout, /^ {2}create {2}not tried \(--write tries it with an item of its own\)$/m);
    assert.ok(backend.scripted.requests.every(({ method }) => method === 'GET'));
  });

  test('1 where an operation is broken; what the backend says cannot move a terminal [D61]', async () => {
    await using backend = await ItemBackend.start();
    const evil = `\u001b[2J\u009b31m${'x'.repeat(5_000)}`;
    backend.instead = {
      list: () =>
        answer('', {
          status: 302,
          headers: [
            ['Location', Buffer.from(evil, 'latin1').toString('latin1').replaceAll('\u001b', '\u0085')],
          ],
        }),
      read: () => answer('<p>', { status: 200, headers: [['Server', '\u009b31m']] }),
    };
    const { code, stdout } = await check(['--contract', '--write'], { BACKEND_URL: backend.scripted.url });
    assert.equal(code, 1, stdout);
    assert.match(stdout, /^BROKEN list: the backend redirects/m);
    assert.doesNotMatch(stdout, /(?!\n)\p{Cc}/u);
    assert.ok(stdout.length < 5_000, `${stdout.length} characters`);
    assert.match(stdout, /\ncontract: \d broken, 0 warnings\n$/);
  });

  test('what a backend allows cannot move a terminal either, nor fill it [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = {
      update: () => answer('', { status: 405, headers: [['Allow', `\u009b31m${'x'.repeat(5_000)}`]] }),
    };
    const { stdout } = await check(['--contract', '--write'], { BACKEND_URL: backend.scripted.url });
    assert.match(stdout, /^BROKEN update: this backend wants PATCH/m);
    assert.doesNotMatch(stdout, /(?!\n)\p{Cc}/u);
    assert.ok(stdout.length < 5_000, `${stdout.length} characters`);
  });

  const wrong: [title: string, flags: string[], environment: Record<string, string>, says: RegExp[]][] = [
    ['a setting', ['--contract'], { BACKEND_URL: 'y' }, [/BACKEND_URL/]],
    [
      'flags without --contract',
      ['--write', '--json'],
      {},
      [/--write needs --contract/, /--json needs --contract/],
    ],
    ['a body for nothing', ['--contract', '--body', '{"title":"x"}'], {}, [/--body needs --write/]],
    [
      'a body with an id',
      ['--contract', '--write', '--body', '{"ID":1,"title":"x"}'],
      {},
      [/must not have "ID"/],
    ],
    ['a body without a text', ['--contract', '--write', '--body', '{"a":1}'], {}, [/must have a text/]],
    ['a body that is no object', ['--contract', '--write', '--body', '{"a":'], {}, [/must be a JSON object/]],
    ['a file that is not there', ['--contract', '--write', '--body', 'nowhere.json'], {}, [/ENOENT/]],
    [
      'a file without an end',
      ['--contract', '--write', '--body', '/dev/zero'],
      {},
      [/must be at most 1048576 bytes/],
    ],
    ['no body', ['--contract', '--write', '--body'], {}, [/--body needs a value/]],
    ['a slip', ['--contract', '--wirte'], {}, [/--wirte is not a flag of check: did you mean --write\?/]],
  ];
  for (const [title, flags, environment, says] of wrong) {
    test(`2 for ${title}, and nothing is called [D61]`, async () => {
      await using backend = await ItemBackend.start();
      const { code, stdout, stderr } = await check(flags, {
        BACKEND_URL: backend.scripted.url,
        ...environment,
      });
      assert.equal(code, 2, stdout + stderr);
      assert.equal(stdout, '');
      for (const pattern of says) {
        assert.match(stderr, pattern);
      }
      assert.equal(backend.scripted.connectionsTaken, 0);
    });
  }

  test('1 where nobody answers, after one call [D61]', async () => {
    const backend = await ItemBackend.start();
    await backend.scripted.stop();
    const { code, stdout } = await check(['--contract', '--write'], { BACKEND_URL: backend.scripted.url });
    assert.equal(code, 1, stdout);
    assert.match(stdout, /^BROKEN list: the backend gives no answer at all$/m);
    assert.match(stdout, /ECONNREFUSED/);
  });

  test('1 where TLS does not come about, with the reason [D61]', { skip: noOpenssl }, async () => {
    using folder = new CertificateFolder();
    const authority = folder.authority('nobody-trusts-me');
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

describe('what is wrong with the list is said in the same words by check', () => {
  const field = (status: number, name: string, value: string): Answer =>
    answer('{}', { status, headers: [[name, value]] });
  for (const [what, code, given] of [
    ['401', 'wants-authentication', field(401, 'WWW-Authenticate', 'Negotiate')],
    ['302', 'redirect', field(302, 'Location', '/login')],
    ['404', 'no-such-path', answer('{}', { status: 404 })],
    ['503', 'behind-is-away', answer('{}', { status: 503 })],
    ['a page', 'html', answer('<html>', { headers: [['Content-Type', 'text/html']] })],
  ] as const) {
    test(`${what}: ${code}, asked for below the base path [D61]`, async () => {
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

  test('a redirect to another address, base paths on both sides: which BACKEND_URL is right [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = { list: () => field(301, 'Location', 'https://items.example.com/v1/api/WorkItem') };
    const { stderr } = await check([], { BACKEND_URL: `${backend.scripted.url}/base` });
    assert.match(stderr, /^ {2}Set BACKEND_URL to https:\/\/items\.example\.com\/v1\.$/m);
  });

  test('a success has its status, its size and its time', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = { list: () => answer('[{}]') };
    const { code, stdout } = await check([], { BACKEND_URL: backend.scripted.url });
    assert.equal(code, 0);
    assert.match(stdout, /^backend: http:\S+\/api\/WorkItem answered 200 with 4 bytes of JSON in \d+ ms$/m);
    assert.deepEqual(backend.asked, ['list']);
  });
});

describe('an end in the middle', { concurrency: 2 }, () => {
  for (const operation of ['create', 'update', 'delete'] as const) {
    for (const [signal, exitCode] of [
      ['SIGINT', 130],
      ['SIGTERM', 143],
    ] as const) {
      test(`${signal} as it waits for ${operation}: it cleans up, and exits with ${exitCode} [D61]`, async () => {
        await using backend = await ItemBackend.start();
        const gate = Promise.withResolvers<undefined>();
        let isHeld = false;
        const held = Promise.withResolvers<undefined>();
        backend.instead = {
          [operation]: (
            exchange: { request: { body: Buffer } },
            _backend: ItemBackend,
            id: string,
          ): Answer | undefined => {
            if (isHeld) {
              return undefined;
            }
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
        assert.match(command.stdout, /^interrupted: not everything was tried$/m);
        assertOthersUntouched(backend);
      });
    }
  }

  test('a reader that has gone changes nothing: it cleans up and exits with its code [D61]', async () => {
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

test('the help has the flags', async () => {
  const { stdout } = await check(['--help'], {});
  for (const flag of ['--contract', '--write', '--body', '--json']) {
    assert.ok(stdout.includes(flag), flag);
  }
});
