// The log lines of requests, in JSON and pretty, and the escapes of control characters [D52, D62].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CallRecord } from '../../packages/core/call/call-record.ts';
import { operations } from '../../packages/core/operations.ts';
import { logCall } from '../../packages/command/log/call-line.ts';
import { createLog, createLogger } from '../../packages/command/log/log.ts';
import { createPrettyFormat } from '../../packages/command/log/pretty-log.ts';
import { createCallRecord } from '../helpers/call-record.ts';

/** The lines of four calls, each a millisecond after the last, around midnight. */
function linesOf(record: CallRecord, showsClient = true, level = 'info'): string[] {
  let ms = Date.UTC(2026, 10, 21, 23, 59, 59, 997);
  const lines: string[] = [];
  // The logger reads the time when it is created, and for each line.
  const logger = createLogger(level, { write: (line) => void lines.push(line) }, () => (ms += 1));
  for (let line = 0; line < 4; line += 1) logCall(logger, record, showsClient);
  return lines;
}

const read = createCallRecord({
  operation: operations.find(({ name }) => name === 'read'),
  agent: 'curl/8.5.0',
  status: 200,
  outcome: 'ok',
  durationMs: 12.34567,
  backendOutcome: 'ok',
  backendDurationMs: 11,
  replyBytes: 432,
});
const whole = {
  ...{ level: 'info', time: '2026-11-21T23:59:59.999Z', pid: process.pid, requestId: 'the-id', operation: 'read' },
  ...{ method: 'GET', path: '/api/work-items/5', http: '1.1', client: '127.0.0.1', agent: 'curl/8.5.0', status: 200 },
  ...{ outcome: 'ok', durationMs: 12.346, backendMs: 11, requestBytes: 0, replyBytes: 432, msg: 'request' },
};
const odd = { path: String.raw`/a"b\c`, agent: String.raw`a"b\c`, subject: 'Zo\u00eb "\\" x' };
const failed = { status: 500, outcome: 'refused', reason: 'status', cause: 'a\n"b"' } as const;
const unknown = {
  operation: undefined,
  client: undefined,
  agent: undefined,
  status: 404,
  outcome: 'not-found',
} as const;

test('the line of a request is one line of JSON with the documented fields', () => {
  for (const [record, fields] of [
    [{}, {}],
    [unknown, unknown],
    [{ backendDurationMs: undefined }, { backendMs: undefined }],
    [failed, { ...failed, level: 'warn', msg: 'backend call failed' }],
    [odd, odd],
    [
      { durationMs: 0, backendDurationMs: 1e-7 },
      { durationMs: 0, backendMs: 0 },
    ],
    [
      { durationMs: 3.05, backendDurationMs: 2.0996 },
      { durationMs: 3.05, backendMs: 2.1 },
    ],
  ] as const) {
    const lines = linesOf({ ...read, ...record });
    for (const line of lines) assert.match(line, /^\{[ -~\u00eb]+\}\n$/);
    assert.deepEqual(JSON.parse(lines[0] ?? ''), JSON.parse(JSON.stringify({ ...whole, ...fields })));
    const times = lines.map((line) => (JSON.parse(line) as { time: string }).time.slice(8, 23));
    assert.deepEqual(times, ['21T23:59:59.999', '22T00:00:00.000', '22T00:00:00.001', '22T00:00:00.002']);
  }
  assert.deepEqual(linesOf(read, true, 'warn'), []);
});

test('the line of a bug has the stack of its error', () => {
  const [line = ''] = linesOf({ ...read, status: 500, outcome: 'bug', cause: new TypeError('a\nb') });
  const { err, ...others } = JSON.parse(line) as { err: { type: string; message: string; stack: string } };
  assert.deepEqual(others, { ...whole, level: 'error', status: 500, outcome: 'bug', msg: 'internal error' });
  assert.deepEqual([err.type, err.message], ['TypeError', 'a\nb']);
  assert.match(err.stack, /^TypeError: a\nb\n +at /);
});

test('with LOG_CLIENT=false the line has neither client, subject nor agent [D62]', () => {
  for (const outcome of ['ok', 'refused', 'bug'] as const) {
    const [line = ''] = linesOf({ ...read, outcome, subject: 'Ada' }, false);
    assert.doesNotMatch(line, /"(?:client|subject|agent)"/);
    assert.match(line, /"path":.*"http":"1.1"/);
  }
});

/** The logger's output, as JSON and pretty. */
function write(log: (logger: ReturnType<typeof createLogger>) => void, hasColours = false) {
  let json = '';
  log(createLogger('info', { write: (line) => void (json += line) }));
  return { json, pretty: createPrettyFormat(hasColours)?.(json) ?? '' };
}

const call = { requestId: 'id', method: 'GET', status: 500, outcome: 'unreachable', durationMs: 1, replyBytes: 2 };

test('a control character is escaped in every place, in JSON and pretty; other text is unchanged', () => {
  const ranges = [[0x00, 0x1f], [0x7f, 0x9f], [0x61c, 0x61c], [0x200e, 0x200f], [0x2028, 0x202e], [0x2066, 0x2069]]; // prettier-ignore
  const controls = ranges.flatMap(([from = 0, to = 0]) =>
    Array.from({ length: to - from + 1 }, (_, index) => String.fromCharCode(from + index)),
  );
  for (const character of controls) {
    const text = `a${character}b`;
    const shown = `a\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}b`;
    for (const { json, pretty } of [
      write((logger) => logger.warn({ ...call, cause: text }, 'backend call failed')),
      write((logger) => logCall(logger, { ...read, status: 500, outcome: 'unreachable', cause: text }, true)),
      write((logger) => logger.warn(text)),
      write((logger) => logger.warn({ settings: { deep: [text] } }, 'text')),
      write((logger) => logger.warn({ [text]: 1 }, 'text')),
      write((logger) => logger.error({ err: new TypeError(text, { cause: new Error(text) }) }, 'text')),
    ]) {
      assert.ok(pretty.includes(shown) && pretty.endsWith('\n'), JSON.stringify(pretty));
      const lines = [json.trimEnd(), ...pretty.split('\n')];
      assert.ok(!lines.some((line) => controls.some((each) => line.includes(each))), shown);
      assert.doesNotThrow(() => JSON.parse(json));
    }
  }
  const { json, pretty } = write((logger) => logger.warn({ ...call, cause: 'größer "als" \\ 東京 🙂' }, 'failed'));
  assert.ok(json.includes(String.raw`"cause":"größer \"als\" \\ 東京 🙂"`));
  assert.ok(pretty.includes('größer "als" \\ 東京 🙂'));
});

test('a pretty stack keeps its lines; a line break in the message of its error is escaped', () => {
  const { pretty } = write((logger) => logger.error({ err: new Error('one\n[12:00:00.000] INFO: fake') }, 'text'));
  const [, ...lines] = pretty.trimEnd().split('\n');
  assert.ok(lines.some((line) => line.trim() === String.raw`Error: one\u000a[12:00:00.000] INFO: fake`));
  assert.ok(lines.some((line) => /^ +at .*log\.test\.ts/.test(line)));
  assert.ok(lines.every((line) => line.startsWith('    ')));
});

test('a pretty line has path, status, outcome, cause, times, client and id; in colour, 4xx is yellow and 5xx red [D52]', () => {
  const line = { ...call, path: '/api/work-items/5', backendMs: 0.5, client: '127.0.0.1', operation: 'read' };
  const rest = '(1 ms, backend 0.5 ms, 2 bytes) 127.0.0.1 id';
  for (const [fields, hasColours, expected] of [
    [line, false, `read /api/work-items/5 500 unreachable ${rest}`],
    [{ ...line, cause: 'refused' }, false, `read /api/work-items/5 500 unreachable: refused ${rest}`],
    [
      { ...call, path: '/a"b', status: 404, outcome: 'no-operation' },
      false,
      'GET /a"b 404 no-operation (1 ms, 2 bytes) id',
    ],
    [{ requestId: 'id', status: 400, client: '::1', code: 'x' }, false, 'request: 400 ::1 id {"code":"x"}'],
    [{ ...call, status: 200, outcome: 'ok' }, true, 'GET 200 ok ('],
    [{ ...call, status: 0, outcome: 'client-gone' }, true, 'GET 0 client-gone ('],
    [{ ...call, status: 404, outcome: 'not-found' }, true, 'GET \u001b[33m404 not-found\u001b[36m ('],
    [{ ...call, status: 500, outcome: 'timed-out' }, true, 'GET \u001b[31m500 timed-out\u001b[36m ('],
    [{ requestId: 'id', status: 400 }, true, 'request: \u001b[33m400\u001b[36m id'],
  ] as const) {
    const { pretty } = write((logger) => logger.info(fields, 'request'), hasColours);
    if (hasColours) assert.ok(pretty.includes(expected), JSON.stringify(pretty));
    else assert.match(pretty, /^\[\d\d:\d\d:\d\d\.\d{3}\] INFO: /);
    if (!hasColours) assert.equal(pretty.trimEnd().split(' INFO: ')[1], expected);
  }
});

test('a reload changes the level', async () => {
  const log = createLog({ logLevel: 'silent', logFormat: 'json' });
  log.apply({ logLevel: 'debug', logFormat: 'json' });
  assert.equal(log.logger.level, 'debug');
  await log.end();
});
