// Headers of requests to the backend: specification 1 and 5; D12, D23 and D25.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { operations, sorted } from '../helpers/expected.ts';
import type { Headers } from '../helpers/raw-client.ts';
import type { BackendRequest } from '../helpers/scripted-backend.ts';
import { forEachTarget, isBeyondRequest, withFetch } from '../helpers/targets.ts';

const requestId = 'id-1';
const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;

/** Headers that clients and proxies send, with a request id. */
const clientHeaders: Headers = [
  ['X-Request-Id', requestId], ['Accept', 'application/json'], ['Accept-Encoding', 'gzip, br'],
  ['Accept-Language', 'en'], ['Authorization', 'Bearer secret'], ['Proxy-Authorization', 'Basic c2VjcmV0'],
  ['Cookie', 'a=1; b=2'], ['Cache-Control', 'no-cache'], ['Pragma', 'no-cache'],
  ['Connection', 'keep-alive, X-Named, X-Request-Id, Content-Type, Host'], ['Keep-Alive', 'timeout=5'],
  ['Proxy-Connection', 'keep-alive'], ['TE', 'trailers'], ['X-Named', 'yes'],
  ['Content-Type', 'text/plain; charset=latin1'], ['Content-Encoding', 'identity'], ['Content-MD5', 'x'],
  ['Digest', 'x'], ['Origin', 'https://gateway.localhost'], ['Referer', 'https://elsewhere.test/'],
  ['User-Agent', 'test'], ['If-Match', '"1"'], ['If-None-Match', '"1"'], ['Range', 'bytes=0-1'],
  ['Prefer', 'return=minimal'], ['Forwarded', 'for=192.0.2.1;host=elsewhere.test;proto=https'],
  ['Via', '1.1 elsewhere'], ['X-Forwarded-For', '192.0.2.1'], ['X-Forwarded-Host', 'elsewhere.test'],
  ['X-Forwarded-Proto', 'https'], ['X-Real-IP', '192.0.2.1'], ['X-Original-URL', '/admin'],
  ['X-Rewrite-URL', '/admin'], ['X-HTTP-Method-Override', 'DELETE'], ['X-Api-Key', 'secret'],
  ['Baggage', 'user=1'], ['Max-Forwards', '1'],
]; // prettier-ignore

/** The header lines of a backend request, without `connection: keep-alive`, which is the default in HTTP/1.1. */
function headersOf(call: BackendRequest): string[] {
  return sorted(call.headers).filter((line) => line !== 'connection: keep-alive');
}

forEachTarget(
  (target) => {
    for (const { name, method, path, options } of operations) {
      const length = options.body === undefined ? [] : [`content-length: ${options.body.length}`];

      const conditions = method === 'GET' ? [] : ['if-match: "1"', 'if-none-match: "1"'];

      test(`operation ${name}: of the client's headers, only the request id and the conditions of a write reach the backend [D12, D23, D67]`, async () => {
        await target().call(method, path, { ...options, headers: clientHeaders });
        assert.deepEqual(headersOf(await target().backend.nextRequest()), [
        ...length,
        ...conditions,
        ...['content-type: application/json', `host: 127.0.0.1:${target().backend.port}`],
        `x-request-id: ${requestId}`,
      ].sort()); // prettier-ignore
      });

      test(`operation ${name}: a valid trace context reaches the backend [D12, D23]`, async () => {
        await target().call(method, path, {
          ...options,
          headers: [['X-Request-Id', requestId], ['traceparent', traceparent], ['tracestate', 'vendor=value,other=1']], // prettier-ignore
        });
        const call = await target().backend.nextRequest();
        assert.match(call.header('traceparent') ?? '(none)', new RegExp(`^00-${traceId}-[0-9a-f]{16}-01$`));
        assert.equal(call.header('tracestate'), 'vendor=value,other=1');
        assert.deepEqual(
          headersOf(call).filter((line) => !line.startsWith('trace')),
          [
            ...length,
            'content-type: application/json',
            `host: 127.0.0.1:${target().backend.port}`,
            `x-request-id: ${requestId}`,
          ].sort(),
        );
      });
    }

    const malformed = [
      ['a traceparent without a version', [['traceparent', `${traceId}-00f067aa0ba902b7-01`]]],
      ['a traceparent in capitals', [['traceparent', traceparent.toUpperCase()]]],
      ['a trace id of zeros', [['traceparent', `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`]]],
      ['a parent id of zeros', [['traceparent', `00-${traceId}-${'0'.repeat(16)}-01`]]],
      ['the version ff', [['traceparent', traceparent.replace(/^00/, 'ff')]]],
      ['a version 00 with one more field', [['traceparent', `${traceparent}-extra`]]],
      ['a short trace id', [['traceparent', `00-${traceId.slice(1)}-00f067aa0ba902b7-01`]]],
      ['a word', [['traceparent', 'garbage']]],
      ['an empty traceparent', [['traceparent', '']]],
      ['two traceparent headers', [['traceparent', traceparent], ['traceparent', traceparent]]],
      ['a tracestate without a traceparent', []],
    ] as [string, Headers][]; // prettier-ignore
    for (const [name, headers] of malformed) {
      // prettier-ignore
      test(`a malformed trace context does not reach the backend: ${name} [D12]`, async () => {
      await target().call('GET', '/api/work-items', {
        headers: [['X-Request-Id', requestId], ['tracestate', 'vendor=value'], ...headers],
      });
      const call = await target().backend.nextRequest();
      assert.doesNotMatch(call.head, /vendor=value|garbage|extra/);
      assert.notEqual(call.header('traceparent'), traceparent);
    });
    }

    const longest = `a=${'x'.repeat(253)},b=${'x'.repeat(254)}`;
    const most = Array.from({ length: 32 }, (_, index) => `k${index}=v`).join(',');
    for (const [name, parent, states, expected] of [
      ['ids that begin with a zero', `00-0${traceId.slice(1)}-0${'1'.repeat(15)}-01`, [], ['01']],
      ['ids that end with a zero', `00-${traceId.slice(1)}0-${'1'.repeat(15)}0-00`, [], ['00']],
      ['a later version with one more field', `01-${traceId}-00f067aa0ba902b7-01-more`, [], ['01']],
      ['the flag `random`', `00-${traceId}-00f067aa0ba902b7-03`, [], ['03']],
      ['the flag `random` without `sampled`', `00-${traceId}-00f067aa0ba902b7-02`, [], ['02']],
      ['unknown flags', `00-${traceId}-00f067aa0ba902b7-fd`, [], ['01']],
      ['unknown flags without `sampled`', `00-${traceId}-00f067aa0ba902b7-fe`, [], ['02']],
      ['flags of a later version', `42-${traceId}-00f067aa0ba902b7-ff`, [], ['01']],
      ['a state in two lines', traceparent, ['a=1', 'b=2'], ['01', 'a=1,b=2']],
      ['a state of 512 characters', traceparent, [longest], ['01', longest]],
      ['a state of 513 characters', traceparent, [`${longest}x`], ['01']],
      ['a state of 32 members', traceparent, [most], ['01', most]],
      ['a state of 33 members', traceparent, [`${most},k=v`], ['01']],
      ['a state with an empty member', traceparent, ['a=1,,b=2'], ['01', 'a=1,,b=2']],
      ['a state with a member that has no value', traceparent, ['a=1,b'], ['01']],
      ['a state with a key in capitals', traceparent, ['A=1'], ['01']],
    ] satisfies [string, string, string[], string[]][]) {
      test(`a trace context with ${name} reaches the backend in version 00, and with its state only if the state is well formed [D12]`, async (context) => {
        if (
          states.length > 1 &&
          isBeyondRequest(context, target(), 'a Request joins repeated headers with a comma and a space')
        )
          return;
        const headers: Headers = [
          ['traceparent', parent],
          ...states.map((state): [string, string] => ['tracestate', state]),
        ];
        await target().call('GET', '/api/work-items', { headers });
        const call = await target().backend.nextRequest();
        const [flags, state] = expected;
        assert.equal(call.header('traceparent'), `00-${parent.slice(3, 52)}-${flags}`);
        assert.equal(call.header('tracestate'), state);
      });
    }

    test('a chunked request reaches the backend with content-length and without transfer-encoding [D23]', async () => {
      await using client = await target().connect();
      client.send('POST /api/work-items HTTP/1.1\r\nHost: x\r\nX-Request-Id: id-1\r\nTransfer-Encoding: chunked\r\n');
      client.send(
        'Trailer: X-Trailer\r\n\r\n3;ext=1\r\n[1,\r\n2\r\n2]\r\n0\r\nX-Trailer: 1\r\nAuthorization: secret\r\n\r\n',
      );
      await client.reply();
      const call = await target().backend.nextRequest();
      assert.equal(call.body.toString(), '[1,2]');
      assert.deepEqual(headersOf(call), [
        'content-length: 5',
        'content-type: application/json',
        `host: 127.0.0.1:${target().backend.port}`,
        'x-request-id: id-1',
      ]);
    });

    const keptIds = [
      'a', '0', 'a'.repeat(128), 'A-Z.a_z~0-9', '7d1c2b1e-6f9c-4f5e-9d53-0a1b2c3d4e5f', '...', '__proto__',
    ]; // prettier-ignore
    for (const id of keptIds) {
      // prettier-ignore
      test(`the request id ${id.slice(0, 40)} is used in the reply and in the backend request [D25]`, async () => {
      for (const path of ['/api/work-items', '/api/work-items/abc', '/nowhere']) {
        const reply = await target().call('GET', path, { headers: [['X-Request-Id', id]] });
        assert.equal(reply.header('x-request-id'), id);
      }
      assert.equal((await target().backend.nextRequest()).header('x-request-id'), id);
    });
    }

    const badIds = [
      ['no request id', []],
      ['an empty request id', [['X-Request-Id', '']]],
      ['a request id of 129 characters', [['X-Request-Id', 'a'.repeat(129)]]],
      ['a request id with a space', [['X-Request-Id', 'a b']]],
      ['a request id with a slash', [['X-Request-Id', 'a/b']]],
      ['a request id with a comma', [['X-Request-Id', 'a,b']]],
      ['a request id with markup', [['X-Request-Id', '<script>']]],
      ['a request id with a percent sign', [['X-Request-Id', 'a%0d%0a']]],
      ['a request id that is not ASCII', [['X-Request-Id', '\xe9']]],
      ['a request id with a tab', [['X-Request-Id', 'a\tb']]],
      ['two request ids', [['X-Request-Id', 'a'], ['X-Request-Id', 'b']]],
    ] as [string, Headers][]; // prettier-ignore
    for (const [name, headers] of badIds) {
      // prettier-ignore
      test(`if a request has ${name}, the gateway creates an id for the reply and the backend request [D25]`, async () => {
      const sent = headers.map(([, value]) => value);
      const made = new Set<string>();
      for (let count = 0; count < 3; count += 1) {
        const reply = await target().call('GET', '/api/work-items', { headers });
        const id = reply.header('x-request-id') ?? '';
        assert.match(id, /^[A-Za-z0-9._~-]{1,128}$/);
        assert.ok(!sent.includes(id));
        assert.equal((await target().backend.nextRequest()).header('x-request-id'), id);
        made.add(id);
      }
      assert.equal(made.size, 3, 'each call has its own id');
    });
    }
  },
  {},
  { kinds: withFetch },
);
