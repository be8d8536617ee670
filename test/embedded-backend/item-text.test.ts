// An item keeps all its bytes except its id: tested with examples and with generated JSON objects.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { readItemText } from '../../packages/stand-in-backend/item-text.ts';
import { startBackend } from './backend.ts';

function withId(text: string, id: number): string {
  const item = readItemText(Buffer.from(text));
  assert.ok(item, text);
  return `${item.beforeId}${id}${item.afterId}`;
}

// The JSON text is generated in pieces, so that the expected text can be made without a parser.
const space = fc.constantFrom('', '', '', ' ', '\n  ', '\t', '\r\n');
const key = fc.oneof(
  fc.constantFrom('"id"', '"\\u0069d"', '"i\\u0064"', '"\\u0069\\u0064"', '"Id"', '"id "', '"i\\\\d"', '"__proto__"'),
  fc.string({ unit: 'binary' }).map((text) => JSON.stringify(text)),
);
const scalar = fc.oneof(
  fc.constantFrom(
    ...['1.0', '1e400', '-0', '12345678901234567890', 'null', 'true'],
    ...['"\\ud800"', '"\\\\"', '"\\""', '"}{,"'],
  ),
  fc.json(),
);
const { value } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    scalar,
    fc
      .array(fc.tuple(space, tie('value'), space), { maxLength: 3 })
      .map((items) => `[${items.map((i) => i.join('')).join()}]`),
    fc
      .array(fc.tuple(space, key, space, fc.constant(':'), tie('value'), space), { maxLength: 3 })
      .map((members) => `{${members.map((m) => m.join('')).join()}}`),
  ),
}));
const members = fc.array(fc.record({ before: space, key, colon: fc.tuple(space, space), value, after: space }), {
  maxLength: 6,
});
type Member = typeof members extends fc.Arbitrary<(infer M)[]> ? M : never;

function objectText(given: Member[]): string {
  return `{${given.map((m) => `${m.before}${m.key}${m.colon.join(':')}${m.value}${m.after}`).join()}}`;
}

/** The expected item: the first id has the new value, later ids are removed, the rest is unchanged. */
function expectedText(given: Member[], id: number): string {
  const isId = (m: Member) => JSON.parse(m.key) === 'id';
  const first = given.findIndex(isId);
  if (first === -1) return `{"id":${id}${given.length > 0 ? ',' : ''}${objectText(given).slice(1)}`;
  const kept = given.filter((m, index) => !isId(m) || index === first);
  const texts = kept.map((m) => `${m.before}${m.key}${m.colon.join(':')}${isId(m) ? id : m.value}${m.after}`);
  return `{${texts.join()}}`;
}

describe('the text of an item', () => {
  for (const [given, expected] of [
    ['{}', '{"id":7}'],
    ['{ }', '{"id":7 }'],
    [' \r\n{"a":1}\t', '{"id":7,"a":1}'],
    ['\ufeff{"a":1}', '{"id":7,"a":1}'],
    ['{"id":1}', '{"id":7}'],
    ['{"a":1,"id":null,"b":2}', '{"a":1,"id":7,"b":2}'],
    ['{"a":1,"\\u0069\\u0064" : {"id":[3]} }', '{"a":1,"\\u0069\\u0064" : 7 }'],
    ['{"id":1,"id":2}', '{"id":7}'],
    ['{"id":1 , "a":2 , "id":3 , "id":4 , "b":5}', '{"id":7 , "a":2 , "b":5}'],
    ['{"a":{"id":1},"b":[{"id":2}]}', '{"id":7,"a":{"id":1},"b":[{"id":2}]}'],
    ['{"a":"\\"id\\":1","b":"\\\\"}', '{"id":7,"a":"\\"id\\":1","b":"\\\\"}'],
    ['{"Id":1,"ID":2}', '{"id":7,"Id":1,"ID":2}'],
    ['{"a":1,"a":2}', '{"id":7,"a":1,"a":2}'],
    ['{"z":1.0,"b":1e400,"a":12345678901234567890}', '{"id":7,"z":1.0,"b":1e400,"a":12345678901234567890}'],
  ] as const) {
    test(`${JSON.stringify(given)} becomes ${expected}`, () => assert.equal(withId(given, 7), expected));
  }

  test('any object keeps its members byte for byte, except its id', () => {
    fc.assert(
      fc.property(members, fc.integer({ min: 1, max: 2_147_483_647 }), (given, id) => {
        const text = objectText(given);
        const item = withId(text, id);
        assert.equal(item, expectedText(given, id));
        assert.deepEqual(JSON.parse(item), { ...(JSON.parse(text) as object), id });
      }),
      { numRuns: 1_000 },
    );
  });

  test('any object comes back from the server byte for byte', async (t) => {
    const { expect } = await startBackend(t);
    let id = 0;
    await fc.assert(
      fc.asyncProperty(members, async (given) => {
        id++;
        const text = expectedText(given, id);
        await expect('POST', objectText(given), 201, text);
        await expect(`GET /${id}`, undefined, 200, text);
        await expect(`PUT /${id}`, text, 204);
        await expect(`GET /${id}`, undefined, 200, text);
      }),
      { numRuns: 50 },
    );
  });

  test('a million nested arrays and a million ids are accepted', () => {
    const deep = `{"a":${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}}`;
    assert.ok(withId(deep, 7) === `{"id":7,${deep.slice(1)}`);
    assert.equal(withId(`{${'"id":1,'.repeat(1_000_000)}"a":2}`, 7), '{"id":7,"a":2}');
  });
});
