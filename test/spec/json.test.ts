// What is JSON and what is not, and that bytes arrive as they left, in both directions: specification 4,
// rules 5 and 6; D13 and D14.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { assertReply, operation, succeeded } from '../helpers/expected.ts';
import { chunk, requestBytes } from '../helpers/raw-client.ts';
import { answer, answerBytes, slicer } from '../helpers/scripted-backend.ts';
import { forEveryTarget } from '../helpers/targets.ts';

const bom = '\xef\xbb\xbf';

/** Each text is spelled one byte a character. */
const valid: [name: string, text: string][] = [
  ['an object', '{"a":1}'],
  ['an empty object', '{}'],
  ['an empty array', '[]'],
  ['a string at the top', '"text"'],
  ['an empty string at the top', '""'],
  ['a number at the top', '42'],
  ['zero', '0'],
  ['minus zero', '-0'],
  ['true', 'true'],
  ['false', 'false'],
  ['null', 'null'],
  ['a fraction that is an integer', '1.0'],
  ['a number beyond a double', '1e400'],
  ['a number below a double', '1e-400'],
  ['every sign of an exponent', '[1E5,1e+5,1E-5,-1.5e05]'],
  ['a number of 20 digits', '12345678901234567890'],
  ['a number of 1,000 digits', '9'.repeat(1000)],
  ['a fraction of 1,000 digits', `0.${'3'.repeat(1000)}`],
  ['duplicate keys', '{"a":1,"a":2}'],
  ['keys in no order', '{"b":1,"a":2,"10":3,"9":4}'],
  ['a key named __proto__', '{"__proto__":{"admin":true},"constructor":null}'],
  ['an empty key', '{"":0}'],
  ['every escape', '"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u00E9"'],
  ['an escaped NUL', '"\\u0000"'],
  ['a pair of surrogate escapes', '"\\ud83d\\ude00"'],
  ['a lone high surrogate escape', '"\\ud800"'],
  ['a lone low surrogate escape', '"\\udc00"'],
  ['surrogate escapes in the wrong order', '"\\udc00\\ud800"'],
  ['escapes where plain characters would do', '"\\u0061\\/"'],
  ['two bytes a character', '"\xc3\xa9"'],
  ['three bytes a character', '"\xe2\x82\xac"'],
  ['four bytes a character', '"\xf0\x9f\x98\x80"'],
  ['the last code point', '"\xf4\x8f\xbf\xbf"'],
  ['noncharacters', '"\xef\xbf\xbe\xef\xbf\xbf"'],
  ['the edges around the surrogates', '"\xed\x9f\xbf\xee\x80\x80"'],
  ['line separators as they are', '"\xe2\x80\xa8\xe2\x80\xa9"'],
  ['DEL in a string', '"\x7f"'],
  ['a byte-order mark in front', `${bom}{"a":1}`],
  ['a byte-order mark and white space', `${bom} \r\n[1]`],
  ['a byte-order mark in a string', `"${bom}"`],
  ['white space in front', ' \t\r\n{"a":1}'],
  ['white space behind', '{"a":1} \t\r\n'],
  ['white space everywhere', ' { "a" : [ 1 , 2 ] , "b" : { } } '],
  ['a long string', `"${'a'.repeat(100_000)}"`],
  ['a long array', `[${'0,'.repeat(50_000)}0]`],
  ['much white space', `${' '.repeat(100_000)}1`],
  ['arrays 100,000 deep', `${'['.repeat(100_000)}${']'.repeat(100_000)}`],
  ['objects 100,000 deep', `${'{"a":'.repeat(100_000)}0${'}'.repeat(100_000)}`],
  ['arrays 1,000,000 deep', `${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}`],
];

const invalid: [name: string, text: string][] = [
  ['white space alone', ' \r\n\t'],
  ['a byte-order mark alone', bom],
  ['two byte-order marks', `${bom}${bom}1`],
  ['a byte-order mark behind', `1${bom}`],
  ['a byte-order mark after white space', ` ${bom}1`],
  ['half a byte-order mark', '\xef\xbb1'],
  ['a UTF-16 text', '\xff\xfe{\x00}\x00'],
  ['a UTF-16 text without a mark', '{\x00}\x00'],
  ['an open object', '{'],
  ['an open array', '['],
  ['an open string', '"a'],
  ['a close without an open', ']'],
  ['crossed brackets', '[{]}'],
  ['one bracket too many', '[]]'],
  ['one bracket too few', '[[]'],
  ['two texts', '1 2'],
  ['two objects', '{}{}'],
  ['two texts on two lines', '{}\n{}'],
  ['something behind', '{}x'],
  ['a NUL behind', '{}\x00'],
  ['a comma behind', '{},'],
  ['a trailing comma in an array', '[1,]'],
  ['a trailing comma in an object', '{"a":1,}'],
  ['a leading comma', '[,1]'],
  ['two commas', '[1,,2]'],
  ['no comma', '[1 2]'],
  ['no colon', '{"a" 1}'],
  ['two colons', '{"a"::1}'],
  ['no value', '{"a":}'],
  ['no key', '{:1}'],
  ['a number as a key', '{1:1}'],
  ['a bare key', '{a:1}'],
  ['a colon in an array', '[1:2]'],
  ['a key alone', '{"a"}'],
  ['single quotes', "'a'"],
  ['a line comment', '// a\n1'],
  ['a block comment', '/* a */1'],
  ['a hash comment', '1 # a'],
  ['a literal in capitals', 'True'],
  ['half a literal', 'tru'],
  ['a literal and a half', 'nulll'],
  ['undefined', 'undefined'],
  ['NaN', 'NaN'],
  ['Infinity', '[-Infinity]'],
  ['a plus sign', '+1'],
  ['a minus sign alone', '-'],
  ['two minus signs', '--1'],
  ['a leading zero', '01'],
  ['a leading zero after the sign', '-01'],
  ['hexadecimal', '0x1F'],
  ['no digit before the point', '.5'],
  ['no digit behind the point', '1.'],
  ['no digit between point and exponent', '1.e1'],
  ['no digit in the exponent', '1e'],
  ['no digit after the exponent sign', '1e+'],
  ['two points', '1.2.3'],
  ['a digit separator', '1_000'],
  ['a big integer suffix', '1n'],
  ['a space in a number', '1 000'],
  ['full-width digits', '\xef\xbc\x91'],
  ['a tab in a string', '"\t"'],
  ['a line feed in a string', '"\n"'],
  ['a carriage return in a string', '"\r"'],
  ['a NUL in a string', '"\x00"'],
  ['a control character in a string', '"\x1f"'],
  ['a control character in a key', '{"\x01":1}'],
  ['an unknown escape', '"\\x41"'],
  ['an escaped quote mark of the wrong kind', '"\\\'"'],
  ['an escape in capitals', '"\\N"'],
  ['a capital U escape', '"\\U0041"'],
  ['three digits in an escape', '"\\u123"'],
  ['a letter in an escape', '"\\u12g4"'],
  ['an escape cut off', '"\\u00'],
  ['a backslash at the end', '"\\'],
  ['an escape outside a string', '\\u0031'],
  ['a no-break space outside a string', '\xc2\xa01'],
  ['a line separator outside a string', '\xe2\x80\xa81'],
  ['a form feed outside a string', '\x0c1'],
  ['a vertical tab outside a string', '\x0b1'],
  ['a NUL in front', '\x001'],
  ['Latin-1', '"\xe9"'],
  ['a lone continuation byte', '"\x80"'],
  ['a character cut off by the quote', '"\xe2\x82"'],
  ['a character cut off by the end', '"\xe2\x82'],
  ['an overlong slash in two bytes', '"\xc0\xaf"'],
  ['an overlong NUL', '"\xc0\x80"'],
  ['an overlong slash in three bytes', '"\xe0\x80\xaf"'],
  ['an overlong slash in four bytes', '"\xf0\x80\x80\xaf"'],
  ['an overlong quote', '\xc0\xa2a\xc0\xa2'],
  ['an encoded high surrogate', '"\xed\xa0\x80"'],
  ['an encoded low surrogate', '"\xed\xbf\xbf"'],
  ['an encoded pair of surrogates', '"\xed\xa0\xbd\xed\xb8\x80"'],
  ['a code point above the last', '"\xf4\x90\x80\x80"'],
  ['a five-byte form', '"\xf8\x88\x80\x80\x80"'],
  ['the byte FE', '"\xfe"'],
  ['the byte FF', '"\xff"'],
  ['invalid UTF-8 in a key', '{"\xff":1}'],
  ['1,000,000 open brackets', '['.repeat(1_000_000)],
  ['brackets 100,000 deep and one too many', `${'['.repeat(100_000)}${']'.repeat(100_001)}`],
  ['an anti-hijacking prefix', ")]}',\n{}"],
  ['a text sequence', '\x1e{}\n'],
];

const update = operation(4);
const read = operation(3);

forEveryTarget((target) => {
  for (const [name, text] of valid) {
    test(`valid: ${name} arrives byte for byte, as request and as answer [D13, D14]`, async () => {
      const bytes = Buffer.from(text, 'latin1');
      await using client = await target().connect();
      assertReply(await client.call('PUT', update.path, { body: bytes }), 200, succeeded);
      assert.ok((await target().backend.nextRequest()).body.equals(bytes), 'the request body is unchanged');
      target().backend.answers(answer(bytes));
      assertReply(await client.call('GET', read.path), 200, bytes);
      if (bytes.length > 10_000) return;
      assertReply(await client.call('POST', '/api/work-items', { body: bytes }), 201, bytes);
    });
  }

  for (const [name, text] of invalid) {
    test(`not valid: ${name} gets the operation's 500, as request and as answer [D13]`, async () => {
      const bytes = Buffer.from(text, 'latin1');
      await using client = await target().connect();
      await target().withoutBackendCall(async () => {
        assertReply(await client.call('PUT', update.path, { body: bytes }), 500, update.failure);
        if (bytes.length > 10_000) return;
        const create = await client.call('POST', '/api/work-items', { body: bytes });
        assertReply(create, 500, operation(2).failure);
      });
      target().backend.answers(answer(bytes));
      assertReply(await client.call('GET', read.path), 500, read.failure);
    });
  }

  test('a text of every kind of token, cut in two at every place, is one text: request in two chunks [D13]', async () => {
    const bytes = Buffer.from(
      `${bom} {"\xc3\xa9\\u00e9\\n":[-1.5e+3,true,null,"\xf0\x9f\x98\x80"]} `,
      'latin1',
    );
    await using client = await target().connect();
    for (let cut = 1; cut < bytes.length; cut += 1) {
      client.send(requestBytes('PUT', update.path, { headers: [['Transfer-Encoding', 'chunked']] }));
      await client.sendPieces([chunk(bytes.subarray(0, cut)), chunk(bytes.subarray(cut)), '0\r\n\r\n']);
      assertReply(await client.reply(), 200, succeeded);
      assert.ok((await target().backend.nextRequest()).body.equals(bytes), `cut at ${cut}`);
    }
  });

  test('every truncation of a text is not valid [D13]', async () => {
    const text = '{"\xc3\xa9":[-1.5e+3,true,"\\u00e9"]}';
    await using client = await target().connect();
    await target().withoutBackendCall(async () => {
      for (let length = 0; length < text.length; length += 1) {
        const body = Buffer.from(text.slice(0, length), 'latin1');
        assertReply(await client.call('PUT', update.path, { body }), 500, update.failure);
      }
    });
  });

  test('an answer that comes in single bytes arrives byte for byte [D14]', async () => {
    const text = '{"id":5,"title":"\u00e9\u{1f600}","n":[1.0,1e400]}';
    target().backend.answers(slicer(answerBytes(text)));
    assertReply(await target().call('GET', read.path), 200, text);
  });

  /** Texts that are JSON, that nearly are, and bytes that never were. */
  const anyBytes = fc.oneof(
    fc.json().map((text) => Buffer.from(text)),
    fc.jsonValue().map((value) => Buffer.from(JSON.stringify(value, undefined, 2))),
    fc.tuple(fc.json(), fc.nat(), fc.integer({ min: 0, max: 255 })).map(([text, at, byte]) => {
      const bytes = Buffer.from(text);
      bytes[at % bytes.length] = byte;
      return bytes;
    }),
    fc.tuple(fc.json(), fc.nat()).map(([text, at]) => {
      const bytes = Buffer.from(text);
      return bytes.subarray(0, at % (bytes.length + 1));
    }),
    fc.string({ unit: 'binary' }).map((text) => Buffer.from(JSON.stringify(text))),
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
    fc.array(fc.constantFrom(...Array.from('{}[]:,"\\ue1.-+0truefalsn \n\xc3\xa9')), { maxLength: 12 }).map((tokens) => Buffer.from(tokens.join(''), 'latin1')), // prettier-ignore
  );
  const cuts = fc.array(fc.nat(), { maxLength: 4 });
  const parameters = { seed: Number(process.env['FAST_CHECK_SEED'] ?? 20240501), numRuns: 400 };

  test('any bytes that a client sends arrive at the backend identical or not at all [D13, D14]', async () => {
    await using client = await target().connect();
    await fc.assert(
      fc.asyncProperty(anyBytes, cuts, async (bytes, places) => {
        target().backend.reset();
        client.send(requestBytes('PUT', update.path, { headers: [['Transfer-Encoding', 'chunked']] }));
        for (const piece of cut(bytes, places)) client.send(chunk(piece));
        client.send('0\r\n\r\n');
        const reply = await client.reply();
        if (isJson(bytes)) {
          assertReply(reply, 200, succeeded);
          assert.deepEqual(target().backend.requests.map((call) => call.body), [bytes]); // prettier-ignore
        } else {
          assertReply(reply, 500, update.failure);
          assert.deepEqual(target().backend.requests, []);
        }
      }),
      parameters,
    );
  });

  test('any bytes that the backend answers arrive at the client identical or not at all [D13, D14]', async () => {
    await using client = await target().connect();
    await fc.assert(
      fc.asyncProperty(anyBytes, cuts, async (bytes, places) => {
        target().backend.answers(async (exchange) => {
          await exchange.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
          for (const piece of cut(bytes, places)) await exchange.write(chunk(piece));
          await exchange.write('0\r\n\r\n');
        });
        const reply = await client.call('GET', read.path);
        if (isJson(bytes)) assertReply(reply, 200, bytes);
        else assertReply(reply, 500, read.failure);
      }),
      parameters,
    );
  });
});

/** The oracle: strict decoding and the platform's own parser. */
function isJson(bytes: Uint8Array): boolean {
  try {
    JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
    return true;
  } catch {
    return false;
  }
}

/** The bytes in pieces, none of them empty: an empty chunk would end the body. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [0, ...places.map((place) => place % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  return at
    .map((start, index) => bytes.subarray(start, at[index + 1] ?? start))
    .filter((piece) => piece.length > 0);
}
