// What the check of the contract finds with each kind of backend: which operations are broken, what clients get and what to
// do [D61]. Real sockets, and the gateway's own code in between.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';

import { ItemBackend, type Instead, type Operation } from '../helpers/item-backend.ts';
import {
  answer,
  answerBytes,
  chunked,
  garbage,
  latency,
  limitData,
  noContent,
  raw,
  rawThenClose,
  timeout,
  type Answer,
} from '../helpers/scripted-backend.ts';
import type { ContractOptions } from '../../packages/contract-check/session.ts';
import { assertOthersUntouched, codesOf, leftIn, runContract, type Settings } from './run.ts';

interface Case {
  readonly title: string;
  readonly instead: Partial<Record<Operation, Instead>>;
  readonly settings?: Settings;
  readonly options?: Partial<ContractOptions>;
  /** All of them, in order. */
  readonly codes: readonly string[];
  /** Of the first finding: what it must say, each by the part of a finding. */
  readonly says?: Partial<Record<'title' | 'asked' | 'came' | 'clients' | 'advice', RegExp>>;
  /** What was asked for, where it matters. */
  readonly asked?: readonly Operation[];
  /** Items that stay behind, and are told. */
  readonly left?: number;
}

const always =
  (given: Answer): Instead =>
  () =>
    given;

/** As the backend would answer, with `fields` in the head. */
function withFields(body: (text: string) => Buffer, fields: [string, string][]): Instead {
  return (_exchange, { items }) => answer(body(JSON.stringify([...items.values()])), { headers: fields });
}

const json = (body: string, head: string): Answer =>
  raw(`HTTP/1.1 200 OK\r\n${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);

const everything = (given: Answer): Case['instead'] => ({
  list: always(given),
  read: always(given),
  create: always(given),
  update: always(given),
  delete: always(given),
});

const listItems = (items: unknown[]): Instead => always(answer(JSON.stringify(items)));

// The list without items, as `given` has it, and reads that find nothing.
const lists = (given: Answer): Case['instead'] => ({ list: always(given) });

const notWritten = 'breaks create,update,delete: write-not-safe';

const cases: Case[] = [
  { title: 'nothing of a backend that does all right', instead: {}, codes: [], left: 0 },
  {
    title: 'a create that answers with an empty 201: creates succeed but answer 500',
    instead: {
      create: ({ request }, backend) => {
        backend.add(JSON.parse(request.body.toString()) as Record<string, unknown>);
        return raw('HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n');
      },
    },
    codes: ['breaks create: empty-success'],
    says: {
      title: /^creates succeed but answer 500$/,
      asked: /^POST \/api\/WorkItem$/,
      came: /^status 201; content-length: 0: an empty body$/,
      clients: /^500 \{"error":"Failed to create work item"\}$/,
      advice: /must answer a create with the new item as JSON\.$/,
    },
    left: 0,
  },
  {
    title: 'a create that answers with a Location alone, by which the item is found',
    instead: {
      list: listItems([{ id: 1, title: 'of somebody else, 1' }]),
      create: ({ request }, backend) => {
        const { id } = backend.add(JSON.parse(request.body.toString()) as Record<string, unknown>);
        return raw(
          `HTTP/1.1 201 Created\r\nLocation: /api/WorkItem/${String(id)}\r\nContent-Length: 0\r\n\r\n`,
        );
      },
    },
    codes: ['breaks create: empty-success'],
    says: { came: /^status 201; location: \/api\/WorkItem\/4; /, advice: /does not follow its location\.$/ },
    left: 0,
  },
  {
    title: 'a create that answers with 204',
    instead: {
      create: ({ request }, backend) => {
        backend.add(JSON.parse(request.body.toString()) as Record<string, unknown>);
        return noContent;
      },
    },
    codes: ['breaks create: empty-success'],
    says: { came: /^status 204; no body: an empty body$/ },
    left: 0,
  },
  {
    title: 'a create whose answer has no id',
    instead: {
      create: ({ request }, backend) => {
        backend.add(JSON.parse(request.body.toString()) as Record<string, unknown>);
        return answer('{"ok":true}', { status: 201 });
      },
    },
    codes: ['warning create: create-without-id', 'breaks create: create-names-another'],
    left: 0,
  },
  {
    title: 'a create that wants more fields',
    instead: { create: always(answer('{"errors":{}}', { status: 400 })) },
    codes: ['breaks create: body-refused'],
    says: { advice: /--body/ },
    asked: ['list', 'read', 'read', 'create', 'list', 'list'],
    left: 0,
  },
  {
    title: 'a create that fails',
    instead: { create: always(answer('oops', { status: 500 })) },
    codes: ['breaks create: server-error'],
    left: 0,
  },
  {
    title: 'a backend that wants PATCH',
    instead: {
      update: always(answer('', { status: 405, headers: [['Allow', 'GET, PATCH, DELETE']] })),
    },
    codes: ['breaks update: method-refused'],
    says: {
      title: /^this backend wants PATCH, or takes no updates$/,
      asked: /^PUT \/api\/WorkItem\/4$/,
      came: /^status 405; .*allow: GET, PATCH, DELETE/,
      clients: /^500 \{"error":"Failed to update work item"\}$/,
      advice: /it allows GET, PATCH, DELETE/,
    },
    left: 0,
  },
  ...[400, 422].map((status): Case => ({
    title: `an update that answers ${status} to the item as it was read, and takes that of the create`,
    instead: {
      update: ({ request }) => (request.body.includes('"id"') ? answer('', { status }) : undefined),
    },
    codes: ['warning update: update-of-what-was-read'],
    left: 0,
  })),
  {
    title: 'an update that answers 409, which is not about the fields: it is not tried again',
    instead: {
      update: ({ request }) => (request.body.includes('"id"') ? answer('', { status: 409 }) : undefined),
    },
    codes: ['breaks update: body-refused'],
    left: 0,
  },
  {
    title: 'an update that does nothing',
    instead: { update: always(noContent) },
    codes: ['breaks update: update-not-seen'],
    left: 0,
  },
  {
    title: 'a delete that answers 200 with a body is fine',
    instead: {
      delete: (_exchange, { items }, id) => {
        items.delete(id);
        return answer('{"deleted":true}');
      },
    },
    codes: [],
    left: 0,
  },
  {
    title: 'a delete that does not find what is there: the item stays behind, and that is told',
    instead: { delete: always(answer('', { status: 404 })) },
    codes: ['breaks delete: item-not-found'],
    says: { clients: /^500 \{"error":"Failed to delete work item"\}$/ },
    left: 1,
  },
  {
    title: 'a delete that does nothing',
    instead: { delete: always(noContent) },
    codes: ['breaks delete: delete-not-seen'],
    left: 1,
  },
  {
    title: 'reads of what was deleted that answer 410',
    instead: {
      read: (_exchange, { items, created }, id) =>
        created.has(id) && !items.has(id) ? answer('', { status: 410 }) : undefined,
    },
    codes: ['breaks read: deleted-is-no-404'],
    says: { clients: /^500 / },
    left: 0,
  },
  {
    title: 'a wrong path',
    instead: everything(answer('<h1>Not Found</h1>', { status: 404 })),
    codes: ['breaks list: no-such-path', notWritten],
    says: { advice: /base path/ },
    asked: ['list', 'read'],
  },
  {
    title: 'a redirect to https',
    instead: everything(
      raw(
        'HTTP/1.1 301 Moved\r\nLocation: https://items.example.com/v1/api/WorkItem\r\nContent-Length: 0\r\n\r\n',
      ),
    ),
    codes: ['breaks list: redirect', 'breaks read: redirect', notWritten],
    says: {
      came: /^status 301; location: https:\/\/items\.example\.com\/v1\/api\/WorkItem/,
      advice: /^Set BACKEND_URL to https:\/\/items\.example\.com\/v1\.$/,
    },
  },
  {
    title: 'a redirect to a slash at the end',
    instead: lists(raw('HTTP/1.1 308 Moved\r\nLocation: /api/WorkItem/\r\nContent-Length: 0\r\n\r\n')),
    codes: ['breaks list: redirect', notWritten],
    says: { advice: /slash at the end/ },
  },
  {
    title: 'a redirect to a sign-in page',
    instead: lists(raw('HTTP/1.1 302 Found\r\nLocation: /login?to=x\r\nContent-Length: 0\r\n\r\n')),
    codes: ['breaks list: redirect', notWritten],
    says: { advice: /sign-in page/ },
  },
  {
    title: 'a redirect to what no gateway can call',
    instead: lists(raw('HTTP/1.1 302 Found\r\nLocation: app:/api/WorkItem\r\nContent-Length: 0\r\n\r\n')),
    codes: ['breaks list: redirect', notWritten],
    says: { advice: /sign-in page/ },
  },
  {
    title: 'a redirect to nowhere',
    instead: lists(raw('HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n')),
    codes: ['breaks list: redirect', notWritten],
    says: { advice: /Often|names no place/ },
  },
  {
    title: 'gzip, though nobody asked for it',
    instead: {
      list: withFields((text) => gzipSync(text), [['Content-Encoding', 'gzip']]),
    },
    codes: ['breaks list: compressed', notWritten],
    says: { came: /content-encoding: gzip/, clients: /^500 \{"error":"Failed to fetch work items"\}$/ },
  },
  {
    title: 'gzip that does not say so',
    instead: { list: withFields((text) => gzipSync(text), []) },
    codes: ['breaks list: compressed', notWritten],
  },
  {
    title: 'a page with status 200',
    instead: lists(json('<!doctype html><title>Sign in</title>', 'Content-Type: text/html\r\n')),
    codes: ['breaks list: html', notWritten],
    says: { came: /content-type: text\/html/ },
  },
  {
    title: 'a page that calls itself JSON, in chunks',
    instead: lists(chunked('6\r\n<html>\r\n0\r\n\r\n')),
    codes: ['breaks list: html', notWritten],
  },
  {
    title: 'JSON in UTF-16',
    instead: lists(answer(Buffer.from('\ufeff[]', 'utf16le'))),
    codes: ['breaks list: not-utf-8', notWritten],
  },
  {
    title: 'JSON in another charset',
    instead: lists(
      raw(
        Buffer.concat([
          Buffer.from(
            'HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=iso-8859-1\r\nContent-Length: 5\r\n\r\n["',
          ),
          Buffer.from([0xe9]),
          Buffer.from('"]'),
        ]),
      ),
    ),
    codes: ['breaks list: not-utf-8', notWritten],
  },
  {
    title: 'what is nearly JSON',
    instead: lists(answer('[{"id":NaN}]')),
    codes: ['breaks list: not-json', notWritten],
  },
  {
    title: 'a list with an empty body',
    instead: lists(noContent),
    codes: ['breaks list: empty-success', notWritten],
    says: { advice: /an empty list is \[\]/ },
  },
  {
    title: 'a byte-order mark',
    instead: { list: withFields((text) => Buffer.from(`\ufeff${text}`), []) },
    codes: ['warning list: byte-order-mark'],
    left: 0,
  },
  {
    title: 'JSON without a content type',
    instead: { list: always(json('[]', '')) },
    codes: ['warning list: content-type'],
    options: { write: undefined },
  },
  {
    title: 'JSON that is called text',
    instead: { list: always(json('[]', 'Content-Type: text/plain\r\n')) },
    codes: ['warning list: content-type'],
    says: { title: /text\/plain/ },
    options: { write: undefined },
  },
  {
    title: 'JSON of a kind of its own is JSON',
    instead: { list: always(json('[]', 'Content-Type: application/vnd.items.v1+json\r\n')) },
    codes: [],
    options: { write: undefined },
  },
  {
    title: 'a slow backend',
    instead: { list: always(latency(20, answer('[]'))) },
    options: { slowMs: 10, write: undefined },
    codes: ['warning list: slow'],
  },
  {
    title: 'a list that is nearly too large',
    instead: {},
    settings: { responseBytesMax: 160 },
    codes: ['warning list: near-limit'],
    options: { write: undefined },
  },
  {
    title: 'a list that is too large',
    instead: {},
    settings: { responseBytesMax: 100 },
    codes: ['breaks list: too-large', notWritten],
    says: { advice: /RESPONSE_BYTES_MAX/ },
  },
  {
    title: 'a list in an object, in which the items are found all the same',
    instead: {
      list: (_exchange, { items }) =>
        answer(JSON.stringify({ value: [...items.values()], count: items.size })),
    },
    codes: ['warning list: list-not-array'],
    left: 0,
  },
  {
    title: 'an error with status 200 instead of a list: nothing is written',
    instead: lists(answer('{"error":"no database"}')),
    codes: ['warning list: list-not-array', notWritten],
    asked: ['list', 'read', 'list'],
  },
  {
    title: 'a list of items without ids: nothing is written',
    instead: lists(answer('[{"title":"x"}]')),
    codes: ['warning list: items-without-id', notWritten],
  },
  {
    title: 'a missing item that is answered with 200 and null',
    instead: { read: (_exchange, { items }, id) => (items.has(id) ? undefined : answer('null')) },
    codes: ['warning read: missing-is-200'],
    options: { write: undefined },
  },
  {
    title: 'a missing item that is answered with 204',
    instead: { read: (_exchange, { items }, id) => (items.has(id) ? undefined : noContent) },
    codes: ['breaks read: missing-is-no-404'],
    says: { clients: /^500 \{"error":"Failed to fetch work item"\}, which is no "not found"/ },
    options: { write: undefined },
  },
  {
    title: 'a missing item that is answered with 500',
    instead: {
      read: (_exchange, { items }, id) => (items.has(id) ? undefined : answer('', { status: 500 })),
    },
    codes: ['breaks read: missing-is-no-404'],
    options: { write: undefined },
  },
  {
    title: 'a read that answers with another item',
    instead: { read: (_exchange, _backend, id) => (id === '1' ? answer('{"id":2}') : undefined) },
    codes: ['breaks read: read-of-another'],
    left: 0,
  },
  {
    title: 'a read that answers with a list',
    instead: { read: (_exchange, _backend, id) => (id === '1' ? answer('[{"id":1}]') : undefined) },
    codes: ['breaks read: read-of-another'],
    left: 0,
  },
  {
    title: 'ids that are GUIDs: clients reach another item, and nothing is written',
    instead: lists(answer('[{"id":"3f2a4c1e-7a7b-4c38-9d24-1f9a0b8e2d11"}]')),
    codes: ['breaks list: id-unusable', notWritten],
    says: { clients: /^the item 3 instead/, advice: /ITEM_ID_PARSING=whole/ },
    asked: ['list', 'read', 'list'],
  },
  {
    title: 'the same where such ids are refused',
    instead: lists(answer('[{"id":"3f2a4c1e-7a7b-4c38-9d24-1f9a0b8e2d11"}]')),
    settings: { itemIdParsing: 'whole' },
    codes: ['breaks list: id-unusable', notWritten],
    says: { clients: /^400 \{"error":"Invalid ID format"\}/ },
  },
  {
    title: 'ids beyond 2^53, asked for with every digit',
    instead: {
      list: always(answer('[{"id":9007199254740993}]')),
      read: (_exchange, _backend, id) =>
        id === '9007199254740993' ? answer('{"id":9007199254740993}') : undefined,
    },
    codes: ['warning list: id-long'],
    says: { title: /9007199254740993$/ },
    options: { write: undefined },
  },
  {
    title: 'ids that are texts of digits',
    instead: {
      list: always(answer('[{"id":"7"}]')),
      read: (_e, _b, id) => (id === '7' ? answer('{"id":"7"}') : undefined),
    },
    codes: ['warning list: id-text'],
    options: { write: undefined },
  },
  {
    title: 'ids below zero',
    instead: {
      list: always(answer('[{"Id":-7}]')),
      read: (_e, _b, id) => (id === '-7' ? answer('{"Id":-7}') : undefined),
    },
    codes: ['warning list: id-negative'],
    options: { write: undefined },
  },
  {
    title: 'a backend that wants NTLM',
    instead: everything(
      answer('', {
        status: 401,
        headers: [
          ['WWW-Authenticate', 'Negotiate'],
          ['WWW-Authenticate', 'NTLM'],
        ],
      }),
    ),
    codes: ['breaks list,read: wants-authentication', notWritten],
    says: {
      came: /www-authenticate: Negotiate, NTLM/,
      advice: /no Negotiate either.*anonymous authentication/,
    },
  },
  {
    title: 'a backend that forbids',
    instead: everything(answer('', { status: 403 })),
    codes: ['breaks list,read: forbidden', notWritten],
  },
  {
    title: 'a backend that limits',
    instead: everything(answer('', { status: 429, headers: [['Retry-After', '30']] })),
    codes: ['breaks list,read: rate-limited', notWritten],
    says: { came: /retry-after: 30/ },
  },
  {
    title: 'a proxy before a backend that is away',
    instead: everything(answer('', { status: 503 })),
    codes: ['breaks list,read: behind-is-away', notWritten],
  },
  {
    title: 'a port that wants https, as nginx answers there',
    instead: everything(rawThenClose(answerBytes('<html>', { status: 400 }))),
    codes: ['breaks list: bad-request', 'breaks read: bad-request', notWritten],
    says: { advice: /https:/ },
  },
  {
    title: 'bytes that are no HTTP',
    instead: everything(garbage),
    codes: ['breaks list,read: malformed-answer', notWritten],
  },
  {
    title: 'an answer that breaks off',
    instead: lists(limitData(80, answerBytes('[1,2,3]'))),
    codes: ['breaks list: malformed-answer', notWritten],
    says: { came: /closed before the answer was whole/ },
  },
  {
    title: 'a stalled backend, after one call',
    instead: everything(timeout),
    settings: { backendTimeoutMs: 100 },
    codes: ['breaks list: timed-out'],
    says: { came: /^no answer: no complete answer within 100 ms$/, advice: /BACKEND_TIMEOUT_MS/ },
    asked: ['list'],
  },
  {
    title: 'connections that are closed behind every answer',
    instead: Object.fromEntries(
      (['list', 'read'] as const).map((operation) => [
        operation,
        ((exchange, backend, id) => {
          const closes = answer(operation === 'read' ? '{"id":1}' : '[{"id":1}]', {
            status: operation === 'read' && !backend.items.has(id) ? 404 : 200,
            headers: [['Connection', 'close']],
          });
          return async () => {
            await closes(exchange);
            exchange.socket.end();
          };
        }) satisfies Instead,
      ]),
    ),
    codes: ['warning read: connection-closes'],
    options: { write: undefined },
  },
  {
    title: 'HTTP/1.0',
    instead: {
      list: always(rawThenClose('HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n[]')),
      read: always(rawThenClose('HTTP/1.0 404 None\r\nContent-Length: 0\r\n\r\n')),
    },
    codes: ['warning read: connection-closes'],
    says: { title: /HTTP\/1\.0/ },
    options: { write: undefined },
  },
  {
    title: 'a promise to keep connections for one second, which is none',
    instead: {
      list: always(answer('[]', { headers: [['Keep-Alive', 'timeout=1']] })),
      read: always(answer('', { status: 404, headers: [['Keep-Alive', 'timeout=1']] })),
    },
    codes: ['warning read: connection-closes'],
    options: { write: undefined },
  },
  {
    title: 'a connection that is closed when it has been idle for less than BACKEND_IDLE_TIMEOUT_MS',
    instead: {
      // The watched connection is the second.
      list: ({ request }) => (request.connection === 1 ? rawThenClose(answerBytes('[]')) : answer('[]')),
    },
    options: { write: undefined, idleWaitMsMax: 10_000 },
    codes: ['warning read: idle-too-long'],
    says: { advice: /^Set BACKEND_IDLE_TIMEOUT_MS to at most \d+ \(it is 4000\)/ },
  },
];

describe('the check of the contract finds', { concurrency: 4 }, () => {
  for (const { title, instead, settings, options, codes, says = {}, asked, left } of cases) {
    test(`${title} [D61]`, async () => {
      await using backend = await ItemBackend.start();
      backend.instead = instead;
      const report = await runContract(backend.scripted.url, settings, options);
      assert.deepEqual(codesOf(report), codes);
      for (const [part, pattern] of Object.entries(says)) {
        assert.match(String(report.findings[0]?.[part as keyof typeof says]), pattern, part);
      }
      if (asked !== undefined) {
        assert.deepEqual(backend.asked.slice(0, asked.length), asked);
      }
      if (left !== undefined) {
        assert.equal(leftIn(backend).length, left);
        assert.equal(report.leftovers.length, left, JSON.stringify(report.leftovers));
      }
      if (options !== undefined && 'write' in options) {
        assert.ok(
          backend.asked.every((each) => each === 'list' || each === 'read'),
          backend.asked.join(),
        );
      }
      assertOthersUntouched(backend);
      assert.deepEqual(backend.scripted.violations, []);
    });
  }
});
