// Every refused request has its reason in the log and in the observer's record, as a code and in words [D27, D51].

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { startCommand } from '../helpers/command.ts';
import { hostNames, startGateway } from '../helpers/gateway.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const put = 'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\n';
const chunked = `${put}Transfer-Encoding: chunked\r\n\r\n`;

const refusals: [what: string, bytes: string, status: number, reason: string, cause: RegExp][] = [
  ['an invalid method', '\x00\r\n\r\n', 400, 'invalid-head', /method/],
  ['TLS', '\x16\x03\x01\x00\xc8', 400, 'invalid-head', /^TLS on a port without TLS$/],
  ['the PROXY protocol', 'PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n', 400, 'invalid-head', /^the PROXY protocol$/],
  ['HTTP/2 without TLS', 'PRI * HTTP/2.0\r\n\r\n', 400, 'invalid-head', /^HTTP\/2 without TLS$/],
  ['two hosts', 'GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n', 400, 'invalid-head', /host/],
  ['a large head', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`, 431, 'head-too-large', /16384 bytes/],
  ['a late head', 'GET / HTTP/1.1\r\n', 408, 'request-timeout', /timed out/],
  ['half a head', 'GET / HTTP/1.1\r\n\x04', 400, 'incomplete-request', /incomplete/],
  ['an unknown expect', `${put}Expect: tea\r\n\r\n`, 417, 'invalid-expect', /expect/],
  ['an invalid chunk size', `${chunked}z\r\n`, 400, 'invalid-chunks', /chunk size/],
  ['a chunk without its end', `${chunked}1\r\n1x`, 400, 'invalid-chunks', /longer than its size/],
  ['an invalid trailer', `${chunked}1\r\n1\r\n0\r\n: x\r\n\r\n`, 400, 'invalid-chunks', /field name/],
  ['large trailers', `${chunked}1\r\n1\r\n0\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`, 431, 'head-too-large', /16384 bytes/],
  ['a cut body', `${put}Content-Length: 5\r\n\r\n1\x04`, 400, 'incomplete-request', /incomplete/],
  ['a cut chunk', `${chunked}5\r\n1\x04`, 400, 'incomplete-request', /incomplete/],
  ['a late body', `${put}Content-Length: 5\r\n\r\n1`, 408, 'request-timeout', /timed out/],
  ['an invalid condition', `${put}If-Match:\r\nContent-Length: 1\r\n\r\n1`, 400, 'invalid-condition', /if-match/],
  ['a content-range', `${put}Content-Range: bytes 0-0/1\r\nContent-Length: 1\r\n\r\n1`, 400, 'invalid-condition', /content-range/],
]; // prettier-ignore

describe('the line in the log', { concurrency: true }, async () => {
  const backend = await useBackend();
  const command = await startCommand({
    BACKEND_URL: backend.url,
    REQUEST_HEADERS_TIMEOUT_MS: '1500',
    REQUEST_TIMEOUT_MS: '1500',
  });
  after(() => command[Symbol.asyncDispose]());

  for (const [what, text, status, reason, cause] of refusals) {
    test(`of ${what} has the reason ${reason}`, async () => {
      await using client = await command.connect();
      // The byte 4 stands for the end of the client's side.
      const [bytes = '', end] = text.split('\x04');
      client.send(bytes);
      if (end !== undefined) client.end();
      const reply = await client.reply();
      assert.equal(reply.status, status);
      const id = reply.header('x-request-id');
      const line = await command.log(({ requestId }) => requestId === id, 'its line');
      assert.deepEqual([line['status'], line['outcome'], line['reason']], [status, 'bad-request', reason]);
      assert.match(String(line['cause']), cause);
    });
  }

  test('of a failed call has the reason, too', async () => {
    backend.answersOnce(answer('{}', { status: 503 }));
    const reply = await command.call('POST', '/api/work-items', { body: '{}' });
    const id = reply.header('x-request-id');
    const line = await command.log(({ requestId }) => requestId === id, 'its line');
    assert.deepEqual([line['outcome'], line['reason']], ['refused', 'status']);
  });
});

for (const host of hostNames) {
  test(`in the host ${host}, the record of an invalid condition has its reason`, async () => {
    await using gateway = await startGateway({ host });
    const reply = await gateway.call('PUT', '/api/work-items/5', { headers: [['If-Match', '']], body: '{}' });
    assert.equal(reply.status, 400);
    const [record] = gateway.told.ended;
    const { outcome, reason, cause } = record ?? assert.fail('no record');
    assert.deepEqual([outcome, reason, cause], ['bad-request', 'invalid-condition', 'an invalid if-match']);
  });
}
