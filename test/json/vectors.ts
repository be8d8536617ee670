// Texts that are valid or invalid JSON [D13]. The findings of `npm run fuzz -- json` in test/vectors/json are included:
// their file names begin with `y_` for valid and `n_` for invalid.

import { readdirSync, readFileSync } from 'node:fs';
import { bytesOf, shown } from './oracle.ts';

/**
 * One character is one byte. Parsers differ on lone surrogates, noncharacters, deep nesting and a byte-order mark: all of
 * these are valid here.
 */
const valid = [
  // Structure
  ' \t\r\n1 \t\r\n', `${' '.repeat(100)}1${'\n'.repeat(100)}`, '['.repeat(64) + ']'.repeat(64), '['.repeat(65) + ']'.repeat(65),
  '{"":'.repeat(129) + '1' + '}'.repeat(129), '[{"a":'.repeat(65) + '1' + '}]'.repeat(65), '['.repeat(500) + ']'.repeat(500),
  '\xef\xbb\xbf{}', '\xef\xbb\xbf 1',
  // Arrays
  '[]', '[null, 1, "1", {}, [], true, false]', '[[[[]]],[[]],[]]', ' [ 1 , \n2\t,\r3 ] ',
  // Objects
  '{}', '{"a":1}', '{"":0,"\\u0000":1,"\\"":2,"a b":3}', '{"a":1,"a":2}', '{"__proto__":1,"constructor":2}',
  '\t{ "a" : 1 ,\n"b"\r:\r{ } }\n', '{"a":"b","c":"d"}', '{"b":1,"a":2,"10":3,"9":4}',
  // Numbers
  '0', '-0', '0.0', '[123456789]', '1'.repeat(300), `[0.${'1'.repeat(300)}]`, '[1234567890123456789]', '[12345678901234567890,1]',
  '[-12345678901234567890.12345678901234567890]', '-1.5', '1e5', '1E5', '1e+5', '[1.5E-5]', '1e05', '[0e1,0E0,-0e-0]', '1e400',
  '-1e-400', '0.4e00669999999999999999999999999999999999999999999999999999999999999999999999999999', '42',
  '[1E5,1e+5,1E-5,-1.5e05]', '9'.repeat(1000), `0.${'3'.repeat(1000)}`,
  // Literals
  'true', 'false', 'null', '[true,false,null]',
  // Strings
  '""', `"${'a'.repeat(63)}"`,
  `"${'a'.repeat(64)}"`, `["${'a'.repeat(1000)}","${'b'.repeat(129)}"]`,
  '"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0aF9"', '"a\\""', '"\\\\\\\\"', '"\x7f"', '"\xc3\xa9"', '"\xe6\x9d\xb1"', '"\xf0\x9f\x98\x80"',
  '"\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"', '"\xed\x9f\xbf\xee\x80\x80"', '"\xef\xbb\xbf"',
  '"\xe2\x80\xa8"', '"\\u0000"', '"\\uD800"', '"\\uDC00"', '"\\uDC00\\uD800"', '"\\uD83D\\uDE00"', '"\xef\xbf\xbe"', '"text"',
  '"\\u0061\\/"', '"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf"',
]; // prettier-ignore

const invalid = [
  // Structure
  ']', '1],[2', '}', '{"":'.repeat(64) + '[' + '}'.repeat(65), '{"":' + '['.repeat(64) + ']'.repeat(65),
  '['.repeat(65) + ']'.repeat(64), '['.repeat(64) + ']'.repeat(65), '', ' \n', '{}{}', '1\x00', '\x00', '\x0c1', '[\x0b]',
  '\xc2\xa01', '[\xef\xbb\xbf]', '[\xc3\xa9]', '//\n1', ',', ':', '\x1f\x8b\x08\x00', '\xff\xfe[\x00]\x00', '[\x00]\x00',
  'a=1&b=2', '\xef\xbb\xbf', '\xef\xbb\xbf\xef\xbb\xbf1', '\xef\xbb1', '\xef\xbb', '1\xef\xbb\xbf', ' \xef\xbb\xbf1', '{}\n{}',
  '1 # a', '/* a */1', '\x001', '\xe2\x80\xa81', '\\u0031', ")]}',\n{}", '\x1e{}\n',
  // Arrays
  '[,]', '[1,]', '[,1]', '[1,,2]', '[1 2]', '["a" "b"]', '[[][]]', '[1', '[1,', '[1]]', '[1}', '["a":1]', '[1:2]', '[1]x', '[1],',
  '[1;2]', '[1]],[2', '[{]}', '[',
  // Objects
  '1},{"a":2', '{"a"}', '{"a":}', '{:1}', '{"a" 1}', '{"a"::1}', '{"a",1}', '{"a":1,}', '{,"a":1}', '{"a":1,,"b":2}',
  '{"a":1 "b":2}', '{1:1}', '{[]:1}', '{true:1}', '{a:1}', "{'a':1}", '{"a":1]', '{"a":]', '{"a":"b":"c"}', '{"a":"b","c"}',
  '{"a":1', '{"a', '{"a":1/**/}', '{', '{}x', '{}\x00', '{},',
  // Numbers
  '01', '00', '-01', '[012]', '[0111111111111111111111111111111]', '+1', '-', '[-]', '--1', '- 1', '[-a]', '.5', '1.', '[1.]',
  '1.2.3', '1e2.3', '1.e5', '-.5', '1e', '[1e]', '1e+', '[1.5e-]', '1e2e3', '1e+-2', '0x1F', 'Infinity', '-Infinity', 'NaN', '1a',
  '[12a]', '1 2', '1_000', '\xef\xbc\x91', '[1\x00]', '[123456789012345678901234567890x]', '[-Infinity]', '1n', '1 000',
  // Literals
  'True', 'tru', 'fals', 'nul', '[tru]', '[trxe]', '[falsy]', 'nullx', 'truefalse', 'undefined', 'nulll',
  // Strings
  '"a', '"', "'a'", '"a\nb"', '"a\tb"', '"a\x00b"', '"\x1f"', `"${'a'.repeat(100)}\x01"`, '"\\', '"\\"', '"\\x41"', '"\\N"',
  '"\\\'"', '"\\\xc3\xa9"', '"\\\n"', '"\\u00e"', '"\\u"', '"\\u00g0"', '"\\u 123"', '"\\U0041"', '"\\u00', '"a"b', '"a""b"',
  '"a","b"', '"\x80"', '"\xc3"', '"\xe6\x9d"', '"\xf0\x9f\x98"', '"\xc0\x80"', '"\xc1\xaf"', '"\xe0\x9f\xbf"',
  '"\xf0\x8f\xbf\xbf"', '"\xed\xa0\x80"', '"\xed\xa0\xbd\xed\xb8\x80"', '"\xf4\x90\x80\x80"', '"\xf8\x88\x80\x80\x80"', '"\xff"',
  '"\xe9"', '{"\xc3":1}', '"\r"', '{"\x01":1}', '"\xe0\x80\xaf"', '"\xf0\x80\x80\xaf"', '\xc0\xa2a\xc0\xa2', '"\xed\xbf\xbf"',
  '"\xfe"', '"\xe2\x82',
]; // prettier-ignore

const folder = new URL('../vectors/json/', import.meta.url);
const findings = readdirSync(folder).filter((name) => name.endsWith('.json'));

export const jsonVectors = [
  ...[...valid, ...invalid].map((text, index) => ({
    name: shown(bytesOf(text.slice(0, 60))),
    bytes: bytesOf(text),
    isValid: index < valid.length,
  })),
  ...findings.map((name) => ({ name, bytes: readFileSync(new URL(name, folder)), isValid: name.startsWith('y_') })),
];
