// The JSON checker against the texts of json-vectors.ts [D13].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isJson } from '../../packages/core/json/json.ts';
import { isJsonByOracle, isJsonByteByByte, isJsonInPieces } from '../helpers/json-oracle.ts';
import { jsonVectors } from '../helpers/json-vectors.ts';

test('every text gets its expected result: whole, byte by byte, and split at any byte [D13]', () => {
  for (const { name, bytes, isValid } of jsonVectors) {
    if (name.endsWith('.json')) assert.match(name, /^[yn]_/);
    assert.equal(isJsonByOracle(bytes), isValid, `${name}: the oracle`);
    assert.equal(isJson(bytes), isValid, `${name}: whole`);
    assert.equal(isJsonByteByByte(bytes), isValid, `${name}: byte by byte`);
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      assert.equal(isJsonInPieces(bytes, [cut]), isValid, `${name}: cut at ${cut}`);
    }
  }
});
