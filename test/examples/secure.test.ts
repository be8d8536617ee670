// `npm run secure`: a gateway with TLS, tokens, CORS and a rate limit. Checks that the printed commands work.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { findFreePort } from '../helpers/haproxy.ts';
import { findProgram, Program } from '../helpers/program.ts';

const script = resolve(import.meta.dirname, '../../examples/secure/start.ts');
const missing = ['openssl', 'curl'].find((program) => findProgram(program) === undefined);
const skip = missing !== undefined && `${missing} is not installed`;

test('the curl commands get the printed results, and no file is left', { skip }, async () => {
  const ports = { PORT: String(await findFreePort()), ADMIN_PORT: '0', EMBEDDED_BACKEND_PORT: '0' };
  const secure = new Program([process.execPath, script], { env: { PATH: process.env['PATH'], ...ports } });
  try {
    await secure.prints(/may: 201/, 30_000);
    const { output } = secure;
    const lines = [...output.matchAll(/^ {2}(curl .*)$/gm)].map(([, line = '']) => line);
    // The output has no warnings. Every curl command has --cacert, because it would fail without this flag.
    assert.doesNotMatch(output, /"level":"(?:warn|error)"|curl https/);
    assert.equal(lines.length, 3, output);
    const [none = '', read = '', write = ''] = lines;
    const allowed = write.replace('/reader ', '/writer ');
    for (const [line, ...expected] of [
      [none, 'HTTP/2', '401'],
      [read, 'HTTP/2', '200'],
      [write, 'HTTP/2', '403'],
      [allowed, 'HTTP/2', '201'],
      [`${allowed} --http1.1`, 'HTTP/1.1', '201'],
    ] as const) {
      const { stdout } = await promisify(execFile)('sh', ['-c', line]);
      assert.deepEqual(stdout.split(' ', 2), expected, line);
    }
    const [, authority = ''] = /--cacert (\S+)/.exec(output) ?? [];
    assert.ok(existsSync(authority));
    secure.signal('SIGTERM');
    assert.deepEqual(await secure.exited, { code: 0, signal: null });
    assert.equal(existsSync(dirname(authority)), false, 'the folder is gone');
  } finally {
    // The script ends the processes that it started, and then exits.
    secure.signal('SIGTERM');
    await secure.exited;
  }
});

test('npm run secure refuses arguments, which it would ignore', async () => {
  await assert.rejects(promisify(execFile)(process.execPath, [script, '--help']), {
    code: 1,
    stdout: '',
    stderr: 'error: npm run secure takes no arguments: set PORT or other settings as environment variables\n',
  });
});
