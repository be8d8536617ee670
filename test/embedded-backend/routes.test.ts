// Every route and status of the embedded backend.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { DatabaseSync } from 'node:sqlite';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { pino } from 'pino';
import { databaseFile, startBackend } from './backend.ts';

type Row = Parameters<Awaited<ReturnType<typeof startBackend>>['expect']>;

const post = 'POST /api/WorkItem HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';
const no = undefined;

/** Requests of one client, and their answers. The path follows `/api/WorkItem`. */
const tables: Record<string, Row[]> = {
  'the list of an empty store is an empty array; PUT replaces the whole item; ids ascend from 1 and are not reused': [
    ['GET', no, 200, '[]'],
    ['POST', '{"title":"a","state":"New"}', 201, '{"id":1,"title":"a","state":"New"}'],
    ['GET /1', no, 200, '{"id":1,"title":"a","state":"New"}'],
    ['PUT /1', '{"title":"b"}', 204],
    ['GET /1', no, 200, '{"id":1,"title":"b"}'],
    ['PUT /1', '{"title":"c", "id": 1}', 204],
    ['GET /1', no, 200, '{"title":"c", "id": 1}'],
    ['PUT /1', '{"n":12345678901234567890}', 204],
    ['POST', ' { "n" : 1e400 } ', 201, '{"id":2, "n" : 1e400 }'],
    ['POST', '{}', 201, '{"id":3}'],
    ['DELETE /3', no, 204],
    ['DELETE /3', no, 404],
    ['POST', '{"id":1}', 201, '{"id":4}'],
    ['GET', no, 200, '[{"id":1,"n":12345678901234567890},{"id":2, "n" : 1e400 },{"id":4}]'],
  ],
  'paths may end in a slash and have a query; an id may have leading zeros, a sign and white space, as in .NET': [
    ['POST /?x=1', '{}', 201, '{"id":1}'],
    ...['1', '1/?x=/2', '001', '+1', '%2b1', '%201%20'].map((id): Row => [`GET /${id}`, no, 200, '{"id":1}']),
  ],
  'an unknown id or path is 404; an id that is not a 32-bit integer is 400': [
    ...['1', '0', '-1', '2147483647', '-2147483648'].flatMap((id): Row[] => [
      [`GET /${id}`, no, 404], [`PUT /${id}`, '{}', 404], [`DELETE /${id}`, no, 404],
    ]),
    ...['s', '/1/2'].map((path): Row => [`GET ${path}`, no, 404]),
    ...[
      ['%20', ' '], ['12%61', '12a'],
      ...['abc', '1.0', '1e3', '0x1', '12%ff', '2147483648', '-2147483649', '9'.repeat(20)].map((each) => [each, each]),
    ].flatMap(([id = '', value = '']): Row[] => {
      const errors = { id: [`The value '${value}' is not valid.`] };
      return [[`GET /${id}`, no, 400, errors], [`PUT /${id}`, '{}', 400, errors], [`DELETE /${id}`, no, 400, errors]];
    }),
  ],
  'a body other than one JSON object in UTF-8, or with the id of another item, is 400, and nothing is stored': [
    ['POST', '{"title":"a"}', 201, '{"id":1,"title":"a"}'],
    ...[
      ...['[]', 'null', '1', '"a"', '{', '{"a":1}{}', '{a:1}', '{"a":1,}', 'é', ' '],
      ...['{"a":"\xff"}', '{"a":"\xed\xa0\x80"}'].map((text) => Buffer.from(text, 'latin1')),
    ].flatMap((body): Row[] => ['POST', 'PUT /1'].map((line) => [line, body, 400, { $: ['The body is not a JSON object.'] }])),
    ['POST', '', 400, { $: ['A non-empty request body is required.'] }],
    ...['2', '"1"', 'null', '1.5', '[1]', '{}', 'true'].map((id): Row =>
      ['PUT /1', `{"id":${id}}`, 400, { id: ['The id in the body is not the id in the path.'] }]),
    ['GET', no, 200, '[{"id":1,"title":"a"}]'],
  ],
  'a content type that is not JSON is 415, before the id and the body are checked': [
    ...['text/plain', 'application/jsonx', 'application/x-www-form-urlencoded', ''].flatMap((type): Row[] =>
      ['POST', 'PUT /abc'].map((line) => [line, '{}', 415, no, { 'content-type': type }])),
    ...['application/json', 'Application/JSON; charset=utf-8', 'text/json', 'application/x+json'].map((type, index): Row =>
      ['POST', '{}', 201, `{"id":${index + 1}}`, { 'content-type': type }]),
  ],
}; // prettier-ignore

for (const [title, rows] of Object.entries(tables)) {
  test(title, async (t) => {
    const backend = await startBackend(t);
    for (const row of rows) await backend.expect(...row);
  });
}

test('POST answers with a Location, and a wrong method is 405 with Allow; paths are case-insensitive', async (t) => {
  const { url, expect } = await startBackend(t);
  assert.equal((await expect('POST', '{}', 201, '{"id":1}')).get('location'), `${url}/api/WorkItem/1`);
  for (const [path, allow, ...methods] of [
    ['', 'GET, POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'],
    ['/1', 'GET, PUT, DELETE', 'POST', 'PATCH', 'OPTIONS'],
  ] as const) {
    for (const method of methods) assert.equal((await expect(`${method} ${path}`, no, 405)).get('allow'), allow);
  }
  for (const [path, status] of [['/API/workitem', 200], ['/api/WORKITEM/1/', 200], ['/', 404], ['/api', 404], ['/v1/api/WorkItem', 404]] as const) {
    assert.equal((await fetch(url + path)).status, status, path);
  } // prettier-ignore
});

test('a body of 30,000,000 bytes is accepted; a larger body is 413, with a length or in chunks', async (t) => {
  const { expect, open } = await startBackend(t);
  const largest = Buffer.alloc(30_000_000, 'x');
  largest.write('{"a":"');
  largest.write('"}', largest.length - 2);
  const stored = `{"id":1,${largest.toString().slice(1)}`;
  await expect('POST', largest, 201, stored);
  const tooLarge = Buffer.concat([largest, Buffer.from(' ')]);
  await expect('POST', tooLarge, 413);
  // The first chunk alone is too large: the answer comes before the body ends. The next request is served.
  const socket = await open();
  socket.write('PUT /api/WorkItem/1 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n');
  socket.write(`Transfer-Encoding: chunked\r\n\r\n${tooLarge.length.toString(16)}\r\n`);
  socket.write(tooLarge);
  const [refusal] = (await once(socket, 'data')) as [Buffer];
  assert.match(refusal.toString(), /^HTTP\/1\.1 413 .*content-type: application\/problem\+json/is);
  socket.write(`\r\n${largest.length.toString(16)}\r\n`);
  socket.write(largest);
  socket.end('\r\n0\r\n\r\nGET /api/WorkItem/2 HTTP/1.1\r\nHost: a\r\n\r\n');
  assert.match((await buffer(socket)).toString(), /^HTTP\/1\.1 404 /);
  await expect('GET /1', no, 200, stored);
  await expect('POST', '{}', 201, '{"id":2}');
});

test('after id 2147483647 a POST is 500, and other requests work', async (t) => {
  const database = databaseFile(t);
  const first = await startBackend(t, { database });
  await first.expect('POST', '{}', 201, '{"id":1}');
  await first.stop();
  const connection = new DatabaseSync(database);
  connection.exec('UPDATE sqlite_sequence SET seq = 2147483646');
  connection.close();

  const { expect } = await startBackend(t, { database });
  await expect('POST', '{}', 201, '{"id":2147483647}');
  await expect('POST', '{}', 500);
  await expect('GET /2147483647', no, 200, '{"id":2147483647}');
  await expect('GET', no, 200, '[{"id":1},{"id":2147483647}]');
});

test("a problem's traceId continues the caller's trace", async (t) => {
  const { url } = await startBackend(t);
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  const response = await fetch(`${url}/api/WorkItem/1`, { headers: { traceparent } });
  const { traceId } = (await response.json()) as { traceId: string };
  assert.match(traceId, /^00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-01$/);
  assert.notEqual(traceId, traceparent);
});

test('pipelined requests are answered in order, each GET sees the previous write, and bodies of refused requests are dropped', async (t) => {
  const { exchange } = await startBackend(t);
  const request = (line: string, body: string) =>
    `${line} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const get = 'GET /api/WorkItem/1 HTTP/1.1\r\nHost: a\r\n\r\n';
  const answers = await exchange(
    [
      request('POST /api/WorkItem', '{"n":0}') + get,
      request('PUT /api/WorkItem/1', '{"n":1}') + get,
      request('PUT /api/WorkItem/abc', '{}'),
      'POST /api/WorkItem HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
      request('PUT /api/WorkItem/1', '{"n":2}') + get,
    ].join(''),
  );
  const shown = [...answers.matchAll(/HTTP\/1\.1 (\d+)|(\{"id":1.*?\})/g)].map(([, status, body]) => status ?? body);
  const item = (n: number) => `200 {"id":1,"n":${n}}`;
  assert.equal(shown.join(' '), `201 {"id":1,"n":0} ${item(0)} 204 ${item(1)} 400 415 204 ${item(2)}`);
});

test('a client that leaves while it sends a body causes no error, and nothing is stored', async (t) => {
  const lines: string[] = [];
  const logger = pino({ level: 'debug' }, { write: (line: string) => lines.push(line) });
  const { expect, open, stop } = await startBackend(t, { logger });
  const socket = await open();
  socket.write(`${post}Expect: 100-continue\r\nContent-Length: 100\r\n\r\n{"title":`);
  await once(socket, 'data');
  socket.resetAndDestroy();
  await expect('GET', no, 200, '[]');
  await stop();
  assert.deepEqual(lines.map((line) => (JSON.parse(line) as { msg: string }).msg), ['answered']); // prettier-ignore
});

test('an error of the store is 500 without details; the details are logged', async (t) => {
  const database = databaseFile(t);
  const lines: string[] = [];
  const logger = pino({ level: 'error' }, { write: (line: string) => lines.push(line) });
  const { expect } = await startBackend(t, { database, logger });
  const connection = new DatabaseSync(database);
  connection.exec('DROP TABLE work_item');
  connection.close();
  await expect('GET', no, 500);
  assert.equal(lines.length, 1);
  assert.match(lines[0] ?? '', /no such table: work_item/);
});
