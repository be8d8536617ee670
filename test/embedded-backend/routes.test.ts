// Every route and status of the embedded backend.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';
import { buffer } from 'node:stream/consumers';
import { pino } from 'pino';
import { assertJson, assertNoContent, assertProblem, databaseFile, send, startBackend } from './backend.ts';

const invalid = 'One or more validation errors occurred.';

describe('the routes of the embedded backend', () => {
  test('the list of an empty store is an empty array; POST answers 201 with the created item and its Location', async (t) => {
    const { url } = await startBackend(t);
    assertJson(await send(url, 'GET', '/api/WorkItem'), 200, '[]');
    const reply = await send(url, 'POST', '/api/WorkItem', '{"title":"a"}');
    assertJson(reply, 201, '{"id":1,"title":"a"}');
    assert.equal(reply.headers.get('location'), `${url}/api/WorkItem/1`);
    assertJson(await send(url, 'GET', '/api/WorkItem/1'), 200, '{"id":1,"title":"a"}');
  });

  test('the list has every item byte for byte, ordered by id', async (t) => {
    const { url } = await startBackend(t);
    await send(url, 'POST', '/api/WorkItem', '{"n":1.0}');
    await send(url, 'POST', '/api/WorkItem', ' { "n" : 1e400 } ');
    await send(url, 'PUT', '/api/WorkItem/1', '{"n":12345678901234567890}');
    assertJson(
      await send(url, 'GET', '/api/WorkItem'),
      200,
      '[{"id":1,"n":12345678901234567890},{"id":2, "n" : 1e400 }]',
    );
  });

  test('PUT replaces the whole item and answers 204', async (t) => {
    const { url } = await startBackend(t);
    await send(url, 'POST', '/api/WorkItem', '{"title":"a","state":"New"}');
    assertNoContent(await send(url, 'PUT', '/api/WorkItem/1', '{"title":"b"}'));
    assertJson(await send(url, 'GET', '/api/WorkItem/1'), 200, '{"id":1,"title":"b"}');
    assertNoContent(await send(url, 'PUT', '/api/WorkItem/1', '{"title":"c", "id": 1}'));
    assertJson(await send(url, 'GET', '/api/WorkItem/1'), 200, '{"title":"c", "id": 1}');
  });

  test('ids ascend from 1; DELETE answers 204, a second DELETE answers 404, and the id is not reused', async (t) => {
    const { url } = await startBackend(t);
    for (const id of [1, 2, 3]) assertJson(await send(url, 'POST', '/api/WorkItem', '{}'), 201, `{"id":${id}}`);
    assertNoContent(await send(url, 'DELETE', '/api/WorkItem/3'));
    assertProblem(await send(url, 'DELETE', '/api/WorkItem/3'), 404, 'Not Found', '15.5.5');
    assertJson(await send(url, 'POST', '/api/WorkItem', '{"id":1}'), 201, '{"id":4}');
    assertJson(await send(url, 'GET', '/api/WorkItem'), 200, '[{"id":1},{"id":2},{"id":4}]');
  });

  test('paths are case-insensitive, may end in a slash, and may have a query', async (t) => {
    const { url } = await startBackend(t);
    assertJson(await send(url, 'POST', '/API/workitem/?x=1', '{}'), 201, '{"id":1}');
    assertJson(await send(url, 'GET', '/api/WORKITEM/1/?x=/2'), 200, '{"id":1}');
    assertJson(await send(url, 'GET', '/api/workItem'), 200, '[{"id":1}]');
  });

  test('an unknown id is 404 for GET, PUT and DELETE, and an unknown path is 404', async (t) => {
    const { url } = await startBackend(t);
    for (const id of ['1', '0', '-1', '2147483647', '-2147483648']) {
      for (const [method, body] of [['GET'], ['PUT', '{}'], ['DELETE']] as const) {
        assertProblem(await send(url, method, `/api/WorkItem/${id}`, body), 404, 'Not Found', '15.5.5');
      }
    }
    for (const path of ['/', '/api', '/api/WorkItems', '/api/WorkItem/1/2', '/v1/api/WorkItem']) {
      assertProblem(await send(url, 'GET', path), 404, 'Not Found', '15.5.5');
    }
  });

  test('an id that is not a 32-bit integer is 400, for GET, PUT and DELETE', async (t) => {
    const { url } = await startBackend(t);
    const others = ['abc', '1.0', '1e3', '0x1', '12%ff', '2147483648', '-2147483649', '9'.repeat(20)];
    for (const [segment, value = segment] of [
      ['%20', ' '],
      ['12%61', '12a'],
      ...others.map((each) => [each] as const),
    ] as const) {
      // prettier-ignore
      for (const method of ['GET', 'PUT', 'DELETE']) {
        const body = method === 'PUT' ? '{}' : undefined;
        const reply = await send(url, method, `/api/WorkItem/${segment}`, body);
        assert.deepEqual(assertProblem(reply, 400, invalid, '15.5.1'), {
          id: [`The value '${value}' is not valid.`],
        });
      }
    }
  });

  test('an id may have leading zeros, a sign and white space, because .NET accepts them in an int', async (t) => {
    const { url } = await startBackend(t);
    await send(url, 'POST', '/api/WorkItem', '{}');
    for (const segment of ['1', '001', '+1', '%2b1', '%201%20']) {
      assertJson(await send(url, 'GET', `/api/WorkItem/${segment}`), 200, '{"id":1}');
    }
  });

  test('a body other than one JSON object in UTF-8 is 400, and nothing is stored', async (t) => {
    const { url } = await startBackend(t);
    await send(url, 'POST', '/api/WorkItem', '{"title":"a"}');
    const bodies = ['[]', 'null', '1', '"a"', '{', '{"a":1}{}', '{a:1}', '{"a":1,}', 'é', ' '];
    const notUtf8 = ['{"a":"\xff"}', '{"a":"\xed\xa0\x80"}'].map((text) => Buffer.from(text, 'latin1'));
    for (const body of [...bodies, ...notUtf8]) {
      for (const [method, path] of [
        ['POST', '/api/WorkItem'],
        ['PUT', '/api/WorkItem/1'],
      ] as const) {
        assert.deepEqual(assertProblem(await send(url, method, path, body), 400, invalid, '15.5.1'), {
          $: ['The body is not a JSON object.'],
        });
      }
    }
    assert.deepEqual(assertProblem(await send(url, 'POST', '/api/WorkItem', ''), 400, invalid, '15.5.1'), {
      $: ['A non-empty request body is required.'],
    });
    assertJson(await send(url, 'GET', '/api/WorkItem'), 200, '[{"id":1,"title":"a"}]');
  });

  test('PUT with an id in the body that differs from the path is 400', async (t) => {
    const { url } = await startBackend(t);
    await send(url, 'POST', '/api/WorkItem', '{"title":"a"}');
    for (const id of ['2', '"1"', 'null', '1.5', '[1]', '{}', 'true']) {
      const reply = await send(url, 'PUT', '/api/WorkItem/1', `{"id":${id}}`);
      assert.deepEqual(assertProblem(reply, 400, invalid, '15.5.1'), {
        id: ['The id in the body is not the id in the path.'],
      });
    }
    assertJson(await send(url, 'GET', '/api/WorkItem/1'), 200, '{"id":1,"title":"a"}');
  });

  test('a content type that is not JSON is 415, before the id and the body are checked', async (t) => {
    const { url } = await startBackend(t);
    for (const type of ['text/plain', 'application/jsonx', 'application/x-www-form-urlencoded', undefined]) {
      const headers: Record<string, string> = type === undefined ? {} : { 'content-type': type };
      for (const [method, path] of [
        ['POST', '/api/WorkItem'],
        ['PUT', '/api/WorkItem/abc'],
      ] as const) {
        const reply = await send(url, method, path, '{}', headers);
        assertProblem(reply, 415, 'Unsupported Media Type', '15.5.16');
      }
    }
    const types = ['application/json', 'Application/JSON; charset=utf-8', 'text/json', 'application/x+json'];
    for (const type of types) {
      assert.equal((await send(url, 'POST', '/api/WorkItem', '{}', { 'content-type': type })).status, 201);
    }
  });

  test('a wrong method is 405 with Allow', async (t) => {
    const { url } = await startBackend(t);
    for (const method of ['PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
      const reply = await send(url, method, '/api/WorkItem');
      assertProblem(reply, 405, 'Method Not Allowed', '15.5.6');
      assert.equal(reply.headers.get('allow'), 'GET, POST');
    }
    for (const method of ['POST', 'PATCH', 'OPTIONS']) {
      const reply = await send(url, method, '/api/WorkItem/1');
      assertProblem(reply, 405, 'Method Not Allowed', '15.5.6');
      assert.equal(reply.headers.get('allow'), 'GET, PUT, DELETE');
    }
  });

  test('a body of 30,000,000 bytes is accepted; a larger body is 413, with a length or in chunks', async (t) => {
    const { url, port } = await startBackend(t);
    const largest = Buffer.alloc(30_000_000, 'x');
    largest.write('{"a":"');
    largest.write('"}', largest.length - 2);
    const reply = await send(url, 'POST', '/api/WorkItem', largest);
    assert.equal(reply.status, 201);
    assert.ok(reply.body.equals(Buffer.concat([Buffer.from('{"id":1,'), largest.subarray(1)])));

    const tooLarge = Buffer.concat([largest, Buffer.from(' ')]);
    assertProblem(await send(url, 'POST', '/api/WorkItem', tooLarge), 413, 'Payload Too Large', '15.5.14');
    // The first chunk alone is too large: the answer comes before the body ends. The next request is served.
    const socket = connect(port, '127.0.0.1');
    socket.write('PUT /api/WorkItem/1 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n');
    socket.write(`Transfer-Encoding: chunked\r\n\r\n${tooLarge.length.toString(16)}\r\n`);
    socket.write(tooLarge);
    const [refusal] = (await once(socket, 'data')) as [Buffer];
    assert.match(refusal.toString(), /^HTTP\/1\.1 413 .*content-type: application\/problem\+json/is);
    socket.write(`\r\n${largest.length.toString(16)}\r\n`);
    socket.write(largest);
    socket.end('\r\n0\r\n\r\nGET /api/WorkItem/2 HTTP/1.1\r\nHost: a\r\n\r\n');
    assert.match((await buffer(socket)).toString(), /^HTTP\/1\.1 404 /);
    assert.ok((await send(url, 'GET', '/api/WorkItem/1')).body.equals(reply.body));
    assertJson(await send(url, 'POST', '/api/WorkItem', '{}'), 201, '{"id":2}');
  });

  test('after id 2147483647 a POST is 500, and other requests work', async (t) => {
    const database = databaseFile(t);
    const first = await startBackend(t, { database });
    await send(first.url, 'POST', '/api/WorkItem', '{}');
    await first.stop();
    const connection = new DatabaseSync(database);
    connection.exec('UPDATE sqlite_sequence SET seq = 2147483646');
    connection.close();

    const { url } = await startBackend(t, { database });
    assertJson(await send(url, 'POST', '/api/WorkItem', '{}'), 201, '{"id":2147483647}');
    assertProblem(await send(url, 'POST', '/api/WorkItem', '{}'), 500, 'Internal Server Error', '15.6.1');
    assertJson(await send(url, 'GET', '/api/WorkItem/2147483647'), 200, '{"id":2147483647}');
    assertJson(await send(url, 'GET', '/api/WorkItem'), 200, '[{"id":1},{"id":2147483647}]');
  });

  test("a problem's traceId continues the caller's trace", async (t) => {
    const { url } = await startBackend(t);
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const response = await fetch(`${url}/api/WorkItem/1`, { headers: { traceparent } });
    const { traceId } = (await response.json()) as { traceId: string };
    assert.match(traceId, /^00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-01$/);
    assert.notEqual(traceId, traceparent);
  });

  test('pipelined requests are answered in order, and each GET sees the previous write', async (t) => {
    const { port } = await startBackend(t);
    const socket = connect(port, '127.0.0.1');
    const put = (body: string) =>
      `PUT /api/WorkItem/1 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`;
    const get = 'GET /api/WorkItem/1 HTTP/1.1\r\nHost: a\r\n\r\n';
    socket.end(
      `POST /api/WorkItem HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"n":0}` +
        `${get}${put('{"n":1}')}${get}${put('{"n":2}')}${get}`,
    );
    const answers = (await buffer(socket)).toString();
    const shown = [...answers.matchAll(/HTTP\/1\.1 (\d+)|(\{.*?\})/g)].map(([, status, body]) => status ?? body);
    const item = (n: number) => `200 {"id":1,"n":${n}}`;
    assert.equal(shown.join(' '), `201 {"id":1,"n":0} ${item(0)} 204 ${item(1)} 204 ${item(2)}`);
  });

  test('the body of a refused request is dropped, and the next request is answered', async (t) => {
    const { port } = await startBackend(t);
    const socket = connect(port, '127.0.0.1');
    socket.end(
      'PUT /api/WorkItem/abc HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}' +
        'POST /api/WorkItem HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n' +
        'GET /api/WorkItem HTTP/1.1\r\nHost: a\r\n\r\n',
    );
    const answers = (await buffer(socket)).toString();
    const statuses = [...answers.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
    assert.deepEqual(statuses, ['400', '415', '200']);
  });

  test('a client that leaves while it sends a body causes no error, and nothing is stored', async (t) => {
    const lines: string[] = [];
    const logger = pino({ level: 'debug' }, { write: (line: string) => lines.push(line) });
    const { url, port, stop } = await startBackend(t, { logger });
    const socket = connect(port, '127.0.0.1');
    socket.write('POST /api/WorkItem HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n');
    socket.write('Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"title":');
    await once(socket, 'data');
    socket.resetAndDestroy();
    assertJson(await send(url, 'GET', '/api/WorkItem'), 200, '[]');
    await stop();
    const messages = lines.map((line) => (JSON.parse(line) as { level: number; msg: string }).msg);
    assert.deepEqual(messages, ['answered']);
  });

  test('an error of the store is 500 without details; the details are logged', async (t) => {
    const database = databaseFile(t);
    const lines: string[] = [];
    const logger = pino({ level: 'error' }, { write: (line: string) => lines.push(line) });
    const { url } = await startBackend(t, { database, logger });
    const connection = new DatabaseSync(database);
    connection.exec('DROP TABLE work_item');
    connection.close();
    const reply = await send(url, 'GET', '/api/WorkItem');
    assertProblem(reply, 500, 'Internal Server Error', '15.6.1');
    assert.doesNotMatch(reply.body.toString(), /work_item/);
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? '', /no such table: work_item/);
  });
});
