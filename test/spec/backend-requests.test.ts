// Headers of requests to the backend: specification 1 and 5; D12, D23 and D25.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { operations, sorted } from '../helpers/expected.ts';
import type { Headers } from '../helpers/raw-client.ts';
import { forEachTarget } from '../helpers/targets.ts';

const requestId = ['X-Request-Id', 'id-1'] as const;
const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;

/** Headers that clients and proxies send. */
const clientHeaders: Headers = [
  ['Accept', 'application/json'], ['Accept-Encoding', 'gzip, br'],
  ['Accept-Language', 'en'], ['Authorization', 'Bearer secret'], ['Proxy-Authorization', 'Basic c2VjcmV0'],
  ['Cookie', 'a=1; b=2'], ['Cache-Control', 'no-cache'], ['Pragma', 'no-cache'],
  ['Connection', 'keep-alive, X-Named, X-Request-Id, Content-Type, Host'], ['Keep-Alive', 'timeout=5'],
  ['Proxy-Connection', 'keep-alive'], ['TE', 'trailers'], ['X-Named', 'yes'],
  ['Content-Type', 'text/plain; charset=latin1'], ['Content-Encoding', 'identity'], ['Content-MD5', 'x'],
  ['Digest', 'x'], ['Origin', 'https://gateway.localhost'], ['Referer', 'https://elsewhere.test/'],
  ['User-Agent', 'test'], ['Range', 'bytes=0-1'],
  ['Prefer', 'return=minimal'], ['Forwarded', 'for=192.0.2.1;host=elsewhere.test;proto=https'],
  ['Via', '1.1 elsewhere'], ['X-Forwarded-For', '192.0.2.1'], ['X-Forwarded-Host', 'elsewhere.test'],
  ['X-Forwarded-Proto', 'https'], ['X-Real-IP', '192.0.2.1'], ['X-Original-URL', '/admin'],
  ['X-Rewrite-URL', '/admin'], ['X-HTTP-Method-Override', 'DELETE'], ['X-Api-Key', 'secret'],
  ['Baggage', 'user=1'], ['Max-Forwards', '1'],
]; // prettier-ignore

const longest = `a=${'x'.repeat(253)},b=${'x'.repeat(254)}`;
const most = Array.from({ length: 32 }, (_, index) => `k${index}=v`).join(',');
const passed: [what: string, parent: string, states: string[], flags: string, state?: string][] = [
  ['a state of two members', traceparent, ['vendor=value,other=1'], '01', 'vendor=value,other=1'],
  ['ids that begin with a zero', `00-0${traceId.slice(1)}-0${'1'.repeat(15)}-01`, [], '01'],
  ['ids that end with a zero', `00-${traceId.slice(1)}0-${'1'.repeat(15)}0-00`, [], '00'],
  ['a later version with one more field', `01-${traceId}-00f067aa0ba902b7-01-more`, [], '01'],
  ['the flag `random`', `00-${traceId}-00f067aa0ba902b7-03`, [], '03'],
  ['the flag `random` without `sampled`', `00-${traceId}-00f067aa0ba902b7-02`, [], '02'],
  ['unknown flags', `00-${traceId}-00f067aa0ba902b7-fd`, [], '01'],
  ['unknown flags without `sampled`', `00-${traceId}-00f067aa0ba902b7-fe`, [], '02'],
  ['flags of a later version', `42-${traceId}-00f067aa0ba902b7-ff`, [], '01'],
  ['a state in two lines', traceparent, ['a=1', 'b=2'], '01', 'a=1,b=2'],
  ['a state of 512 characters', traceparent, [longest], '01', longest],
  ['a state of 513 characters', traceparent, [`${longest}x`], '01'],
  ['a state of 32 members', traceparent, [most], '01', most],
  ['a state of 33 members', traceparent, [`${most},k=v`], '01'],
  ['a state with an empty member', traceparent, ['a=1,,b=2'], '01', 'a=1,,b=2'],
  ['a state with a member that has no value', traceparent, ['a=1,b'], '01'],
  ['a state with a key in capitals', traceparent, ['A=1'], '01'],
]; // prettier-ignore

const malformed: [what: string, ...parents: string[]][] = [
  ['a traceparent without a version', `${traceId}-00f067aa0ba902b7-01`],
  ['a traceparent in capitals', traceparent.toUpperCase()],
  ['a trace id of zeros', `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`],
  ['a parent id of zeros', `00-${traceId}-${'0'.repeat(16)}-01`],
  ['the version ff', traceparent.replace(/^00/, 'ff')],
  ['a version 00 with one more field', `${traceparent}-extra`],
  ['a short trace id', `00-${traceId.slice(1)}-00f067aa0ba902b7-01`],
  ['a word', 'garbage'],
  ['an empty traceparent', ''],
  ['two traceparent headers', traceparent, traceparent],
  ['no traceparent'],
];

forEachTarget(
  (target) => {
    /** Makes a call, and returns the backend's request and its header lines without those of connections. */
    const backendGets = async (method: string, path: string, options: { body?: string | Uint8Array }, headers: Headers) => {
      await target().call(method, path, { ...options, headers: [requestId, ...headers] });
      const call = await target().backend.nextRequest();
      return { call, lines: sorted(call.headers).filter((line) => line !== 'connection: keep-alive') };
    }; // prettier-ignore
    const own = (body?: string | Uint8Array) => [
      ...(body === undefined ? [] : [`content-length: ${body.length}`]),
      ...['content-type: application/json', `host: 127.0.0.1:${target().backend.port}`, 'x-request-id: id-1'],
    ];

    for (const { name, method, path, options } of operations) {
      test(`operation ${name}: of the client's headers, only request id, trace context, and a write's conditions reach the backend [D12, D23, D67]`, async () => {
        const conditions: Headers = [['if-match', '"1"'], ['if-none-match', '"1"']]; // prettier-ignore
        const trace: Headers = [['traceparent', traceparent], ['tracestate', 'vendor=value']]; // prettier-ignore
        const all = [...conditions, ...clientHeaders];
        const more = method === 'GET' ? [] : sorted(conditions);
        const { lines } = await backendGets(method, path, options, all);
        assert.deepEqual(lines, [...own(options.body), ...more].sort());
        const traced = await backendGets(method, path, options, [...trace, ...all]);
        assert.deepEqual(traced.lines, [...own(options.body), ...more, ...sorted(trace)].sort());
      });
    }

    for (const [what, ...parents] of malformed) {
      test(`a malformed trace context does not reach the backend: ${what} [D12]`, async () => {
        const headers = [['tracestate', 'a=1'], ...parents.map((each) => ['traceparent', each])] as unknown as Headers;
        assert.deepEqual((await backendGets('GET', '/api/work-items', {}, headers)).lines, own());
      });
    }

    for (const [what, parent, states, flags, state] of passed) {
      test(`a trace context with ${what} reaches the backend in version 00, and with its state only if the state is well formed [D12]`, async (context) => {
        if (states.length > 1 && target().kind === 'fetch') {
          context.skip('a Request cannot express it: repeated headers are joined by a comma and a space');
          return;
        }
        const headers: Headers = [['traceparent', parent], ...states.map((each) => ['tracestate', each] as const)];
        const { call } = await backendGets('GET', '/api/work-items', {}, headers);
        assert.equal(call.header('traceparent'), `00-${parent.slice(3, 52)}-${flags}`);
        assert.equal(call.header('tracestate'), state);
      });
    }

    test('a chunked request reaches the backend with content-length and without transfer-encoding [D23]', async () => {
      await using client = await target().connect();
      client.send('POST /api/work-items HTTP/1.1\r\nHost: x\r\nX-Request-Id: id-1\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n');
      client.send('3;ext=1\r\n[1,\r\n2\r\n2]\r\n0\r\nX-T: 1\r\nAuthorization: secret\r\n\r\n');
      await client.reply();
      const { headers, body } = await target().backend.nextRequest();
      assert.deepEqual([String(body), sorted(headers).filter((line) => !line.startsWith('connection'))], ['[1,2]', own(body)]);
    }); // prettier-ignore

    test('a valid request id is used in the reply and in the backend request [D25]', async () => {
      for (const id of ['a', '0', 'a'.repeat(128), 'A-Z.a_z~0-9', '7d1c2b1e-6f9c-4f5e-9d53-0a1b2c3d4e5f', '...', '__proto__']) {
        for (const path of ['/api/work-items', '/api/work-items/abc', '/nowhere']) {
          const reply = await target().call('GET', path, { headers: [['X-Request-Id', id]] });
          assert.equal(reply.header('x-request-id'), id);
        }
        assert.equal((await target().backend.nextRequest()).header('x-request-id'), id);
      }
    }); // prettier-ignore

    test('without a valid request id, the gateway creates one for the reply and the backend request [D25]', async () => {
      const made = new Set<string>();
      const given = [[], [''], ['a'.repeat(129)], ['a b'], ['a/b'], ['a,b'], ['<script>'], ['a%0d%0a'], ['\xe9'], ['a\tb'], ['a', 'b']];
      for (const ids of given) {
        for (let count = 0; count < 3; count += 1) {
          const headers = ids.map((id) => ['X-Request-Id', id] as const);
          const id = (await target().call('GET', '/api/work-items', { headers })).header('x-request-id') ?? '';
          assert.match(id, /^[A-Za-z0-9._~-]{1,128}$/);
          assert.ok(!ids.includes(id));
          assert.equal((await target().backend.nextRequest()).header('x-request-id'), id);
          made.add(id);
        }
      }
      assert.equal(made.size, 3 * given.length, 'each call has its own id');
    }); // prettier-ignore
  },
  {},
  { kinds: ['in-process', 'fetch'] },
);
