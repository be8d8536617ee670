// `npm run secure`: a gateway with TLS, tokens, CORS and a rate limit. Checks that the printed commands work.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { poll } from '../helpers/changes.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { findProgram } from '../helpers/program.ts';

const script = resolve(import.meta.dirname, '../../examples/secure/start.ts');
const missing = ['openssl', 'curl'].find((program) => findProgram(program) === undefined);
const skip = missing !== undefined && `${missing} is not installed`;

test(
  'npm run secure: its curl commands get the printed results, and no file or process is left',
  { skip },
  async () => {
    const child = spawn(process.execPath, [script], {
      env: {
        PATH: process.env['PATH'],
        PORT: String(await findFreePort()),
        ADMIN_PORT: '0',
        EMBEDDED_BACKEND_PORT: '0',
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const exited = once(child, 'exit');
    let output = '';
    child.stdout.on('data', (data: Buffer) => (output += data.toString()));
    child.stderr.on('data', (data: Buffer) => (output += data.toString()));
    try {
      await poll(() => output.includes('may: 201') || child.exitCode !== null, 'the advice is printed', 30_000);
      const lines = [...output.matchAll(/^ {2}(curl .*)$/gm)].map(([, line = '']) => line);
      // The output has no warnings. Every curl command has --cacert, because it would fail without this flag.
      assert.doesNotMatch(output, /"level":"(?:warn|error)"|curl https/);
      assert.equal(lines.length, 3, output);
      const [, , write = ''] = lines;
      for (const [line, version, status] of [
        [lines[0], 'HTTP/2', '401'],
        [lines[1], 'HTTP/2', '200'],
        [write, 'HTTP/2', '403'],
        [write.replace('/reader ', '/writer '), 'HTTP/2', '201'],
        [`${write.replace('/reader ', '/writer ')} --http1.1`, 'HTTP/1.1', '201'],
      ] as const) {
        const { stdout } = await promisify(execFile)('sh', ['-c', line ?? '']);
        assert.deepEqual(stdout.split(' ', 2), [version, status], String(line));
      }
      const [, authority = ''] = /--cacert (\S+)/.exec(output) ?? [];
      assert.ok(existsSync(authority));
      child.kill('SIGTERM');
      assert.deepEqual(await exited, [0, null]);
      assert.equal(existsSync(dirname(authority)), false, 'the folder is gone');
    } finally {
      // The script ends the processes that it started, and then exits.
      child.kill('SIGTERM');
      await exited;
    }
  },
);

test('npm run secure refuses arguments, which it would ignore', async () => {
  await assert.rejects(promisify(execFile)(process.execPath, [script, '--help']), {
    code: 1,
    stdout: '',
    stderr: 'error: npm run secure takes no arguments: set PORT or other settings as environment variables\n',
  });
});
