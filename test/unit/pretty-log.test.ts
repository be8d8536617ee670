// Control characters in logged values are escaped, in pretty lines and in JSON.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createLogger } from '../../packages/command/log/log.ts';
import { createPrettyFormat } from '../../packages/command/log/pretty-log.ts';

/** The logger's output, as JSON and pretty. */
function write(log: (logger: ReturnType<typeof createLogger>) => void): { json: string; pretty: string } {
  let json = '';
  log(createLogger('info', { write: (line) => void (json += line) }));
  return { json, pretty: createPrettyFormat(false)?.(json) ?? '' };
}

const ranges = [
  [0x00, 0x1f], [0x7f, 0x9f], [0x61c, 0x61c], [0x200e, 0x200f], [0x2028, 0x202e], [0x2066, 0x2069],
] as const; // prettier-ignore
const controls = ranges.flatMap(([from, to]) =>
  Array.from({ length: to - from + 1 }, (_, index) => String.fromCharCode(from + index)),
);
const escapeOf = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
const call = { requestId: 'id', method: 'GET', status: 500, outcome: 'unreachable', durationMs: 1, replyBytes: 2 };

describe('a control character', () => {
  for (const character of controls) {
    test(`${escapeOf(character)} is escaped in every place`, () => {
      const text = `a${character}b`;
      const shown = `a${escapeOf(character)}b`;
      for (const [where, { json, pretty }] of Object.entries({
        cause: write((logger) => logger.warn({ ...call, cause: text }, 'backend call failed')),
        message: write((logger) => logger.warn(text)),
        value: write((logger) => logger.warn({ settings: { deep: [text] } }, 'text')),
        name: write((logger) => logger.warn({ [text]: 1 }, 'text')),
        error: write((logger) => logger.error({ err: new TypeError(text, { cause: new Error(text) }) }, 'text')),
      })) {
        assert.ok(pretty.includes(shown), `${where}: ${JSON.stringify(pretty)}`);
        for (const line of [json.trimEnd(), ...pretty.split('\n')]) {
          assert.ok(!controls.some((each) => line.includes(each)), `${where}: ${JSON.stringify(line)}`);
        }
        assert.ok(pretty.endsWith('\n'), where);
        assert.doesNotThrow(() => JSON.parse(json), where);
      }
    });
  }
});

test('a stack keeps its lines; a line break in the message of its error is escaped', () => {
  const { pretty } = write((logger) => logger.error({ err: new Error('one\n[12:00:00.000] INFO: fake') }, 'text'));
  const lines = pretty.trimEnd().split('\n');
  assert.ok(lines.some((line) => line.trim() === String.raw`Error: one\u000a[12:00:00.000] INFO: fake`));
  assert.ok(lines.filter((line) => /^ +at .*pretty-log\.test\.ts/.test(line)).length > 0);
  const outside = lines.slice(1).filter((line) => !line.startsWith('    '));
  assert.deepEqual(outside, []);
});

test('other text is unchanged', () => {
  const { json, pretty } = write((logger) =>
    logger.warn({ ...call, cause: 'größer "als" \\ 東京 🙂' }, 'backend call failed'),
  );
  assert.ok(json.includes(String.raw`"cause":"größer \"als\" \\ 東京 🙂"`));
  assert.ok(pretty.includes('größer "als" \\ 東京 🙂'));
});

test('the pretty line of a request has path, status, outcome, cause, times, client and id [D52]', () => {
  const line = { ...call, path: '/api/work-items/5', backendMs: 0.5, client: '127.0.0.1', operation: 'read' };
  for (const [fields, expected] of [
    [line, 'read /api/work-items/5 500 unreachable (1 ms, backend 0.5 ms, 2 bytes) 127.0.0.1 id'],
    [
      { ...line, cause: 'refused' },
      'read /api/work-items/5 500 unreachable: refused (1 ms, backend 0.5 ms, 2 bytes) 127.0.0.1 id',
    ],
    [{ ...call, path: '/a"b', status: 404, outcome: 'no-operation' }, 'GET /a"b 404 no-operation (1 ms, 2 bytes) id'],
    [{ requestId: 'id', status: 400, client: '::1', code: 'x' }, 'request: 400 ::1 id {"code":"x"}'],
  ] as const) {
    const { pretty } = write((logger) => logger.info(fields, 'request'));
    assert.match(pretty, /^\[\d\d:\d\d:\d\d\.\d{3}\] INFO: /);
    assert.equal(pretty.trimEnd().split(' INFO: ')[1], expected);
  }
});

test('with colours, status and outcome are yellow for 4xx and red for 5xx, also of a malformed request', () => {
  const written = { text: '' };
  const format = createPrettyFormat(true);
  const logger = createLogger('info', { write: (line) => void (written.text = format?.(line) ?? '') });
  for (const [fields, expected] of [
    [{ ...call, status: 200, outcome: 'ok' }, 'GET 200 ok ('],
    [{ ...call, status: 0, outcome: 'client-gone' }, 'GET 0 client-gone ('],
    [{ ...call, status: 404, outcome: 'not-found' }, 'GET \u001b[33m404 not-found\u001b[36m ('],
    [{ ...call, status: 500, outcome: 'timed-out' }, 'GET \u001b[31m500 timed-out\u001b[36m ('],
    [{ ...call, status: 503, outcome: 'overload' }, 'GET \u001b[31m503 overload\u001b[36m ('],
    [{ requestId: 'id', status: 400 }, 'request: \u001b[33m400\u001b[36m id'],
  ] as const) {
    logger.info(fields, 'request');
    assert.ok(written.text.includes(expected), JSON.stringify(written.text));
  }
});
