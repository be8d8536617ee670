// The findings of the contract check with each kind of backend, over real sockets [D61].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import {
  assertOthersUntouched,
  codesOf,
  type Instead,
  type Item,
  ItemBackend,
  leftIn,
  type Operation,
  runContract,
  type Settings,
} from './item-backend.ts';
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
  resetPeer,
  slicer,
  timeout,
  type Answer,
} from '../helpers/scripted-backend.ts';
import type { ContractOptions } from '../../packages/contract-check/session.ts';

interface Case {
  readonly title: string;
  readonly instead: Partial<Record<Operation, Instead>>;
  readonly settings?: Settings;
  readonly options?: Partial<ContractOptions>;
  /** All findings, in order. */
  readonly codes: readonly string[];
  /** The texts of the first finding. */
  readonly says?: Partial<Record<'title' | 'asked' | 'came' | 'clients' | 'advice', RegExp>>;
  /** The first requests of the check. */
  readonly asked?: readonly Operation[];
  /** The number of items that the check leaves. Its report must list them. */
  readonly left?: number;
}

const always = (given: Answer): Instead => { return () => given; }; // prettier-ignore

/** Makes the answer to a list: the usual items, encoded by `body`, with the header fields `fields`. */
function withFields(body: (text: string) => Buffer, fields: [string, string][]): Instead {
  return (_exchange, { items }) => answer(body(JSON.stringify([...items.values()])), { headers: fields });
}

const json = (body: string, head: string): Answer =>
  raw(`HTTP/1.1 200 OK\r\n${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);

const closing = (body: string, status: number): Answer =>
  rawThenClose(answerBytes(body, { status, headers: [['Connection', 'close']] }));

const redirect = (status: number, head: string): Answer =>
  raw(`HTTP/1.1 ${status} Elsewhere\r\n${head}Content-Length: 0\r\n\r\n`);

const everything = (given: Answer): Case['instead'] => ({
  list: always(given),
  read: always(given),
  create: always(given),
  update: always(given),
  delete: always(given),
});

/** Each create stores the item and answers with the result of `given` for the item's id. */
const creates = (given: (id: string) => Answer): Case['instead'] => ({
  create: ({ request }, backend) => given(String(backend.add(JSON.parse(request.body.toString()) as Item)['id'])),
});

const listItems = (items: unknown[]): Instead => always(answer(JSON.stringify(items)));

// Only a request for the list gets the answer `given`.
const lists = (given: Answer): Case['instead'] => ({ list: always(given) });

// ProblemDetails of ASP.NET Core, with texts that must not be quoted.
const problem = JSON.stringify({
  type: 'https://tools.ietf.org/html/rfc9110#section-15.5.1',
  title: 'One or more validation errors occurred.',
  status: 400,
  detail: 'Server=db;Password=secret',
  errors: { State: ['The value "secret" is not valid.'], '$.price': ['secret'] },
  exception: { headers: { Authorization: ['secret'] } },
});

const notWritten = 'breaks create,update,delete: write-not-safe';

const cases: Case[] = [
  { title: 'nothing for a correct backend', instead: {}, codes: [], left: 0 },
  { title: 'a create that answers with an empty 201: the backend creates items, but clients get 500',
    instead: creates(() => raw('HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n')),
    codes: ['breaks create: empty-success'],
    says: {
      title: /^the backend creates items, but clients get 500$/, asked: /^POST \/api\/WorkItem$/,
      came: /^status 201; content-length: 0$/,
      clients: /^500 \{"error":"Failed to create work item"\}$/,
      advice: /must answer a create with the new item as JSON\.$/,
    }, left: 0 },
  { title: 'a create that answers with only a Location, which the check follows',
    instead: { list: listItems([{ id: 1, title: 'of another owner, 1' }]),
      ...creates((id) => raw(`HTTP/1.1 201 Created\r\nLocation: /api/WorkItem/${id}\r\nContent-Length: 0\r\n\r\n`)) },
    codes: ['breaks create: empty-success'],
    says: { came: /^status 201; location: \/api\/WorkItem\/4; /, advice: /does not follow its location header\.$/ }, left: 0 },
  { title: 'a create that answers with 204', instead: creates(() => noContent),
    codes: ['breaks create: empty-success'], says: { came: /^status 204; no body$/ }, left: 0 },
  { title: 'a create whose answer has no id', instead: creates(() => answer('{"ok":true}', { status: 201 })),
    codes: ['breaks create: create-without-id'], left: 0 },
  ...['{id}', '"{id}"'].map((body): Case => ({
    title: `a create that answers with the id alone, ${body}: one finding`,
    instead: creates((id) => answer(body.replace('{id}', id))), codes: ['breaks create: create-without-id'],
    says: { title: /^a create answers with the id alone, not with the item: 4$/ }, left: 0,
  })),
  { title: 'a create that answers with the number of created items, which is also the id of an item',
    instead: creates(() => answer('1')), codes: ['breaks create: create-without-id'],
    says: { title: /^the answer to a create has no id$/ }, left: 0 },
  { title: 'a create that requires more fields',
    instead: { create: always(answer('{"errors":{}}', { status: 400 })) }, codes: ['breaks create: body-refused'],
    says: { advice: /--body/ }, asked: ['list', 'read', 'read', 'create', 'list', 'list'], left: 0 },
  { title: 'a create that fails', instead: { create: always(answer('oops', { status: 500 })) },
    codes: ['breaks create: server-error'], left: 0 },
  ...([
    ['at once', (bytes) => raw(bytes)], ['in small pieces', (bytes) => slicer(bytes, 7)],
    ['in chunks', () => chunked(`5\r\n{"tit\r\n${(problem.length - 5).toString(16)}\r\n${problem.slice(5)}\r\n0\r\n\r\n`, { status: 400 })],
  ] as readonly (readonly [string, (bytes: Buffer) => Answer])[]).map(([title, given]): Case => ({
    title: `the title of a problem that arrives ${title}, and the names of the refused fields, but no other text`,
    instead: { create: always(given(answerBytes(problem, { status: 400 }))) }, codes: ['breaks create: body-refused'],
    says: { came: /^status 400; .*; title: One or more validation errors occurred\.; errors in: State, \$\.price$/ }, left: 0,
  })),
  ...['null', '[]', '"title"', '{"title":7,"errors":null}', '{"title":"x"'].map((body): Case => ({
    title: `no title in the body ${body}`, instead: { create: always(answer(body, { status: 500 })) },
    codes: ['breaks create: server-error'], says: { came: /; content-length: \d+$/ }, left: 0,
  })),
  { title: 'the body of a failure does not end: the check waits for it only for some time',
    instead: { create: always(raw('HTTP/1.1 500 X\r\nContent-Length: 99\r\n\r\n{"title"')) },
    codes: ['breaks create: server-error'], says: { came: /^status 500; content-length: 99$/ }, left: 0 },
  ...([
    ['with 500, as CreatedAtAction without a route', answer('', { status: 500 }), 'server-error'],
    ['with 409', answer('', { status: 409 }), 'body-refused'],
    ['with a text that is not JSON', answer('created'), 'not-json'],
    ['with a redirect', redirect(303, 'Location: /items\r\n'), 'redirect'],
  ] as const).map(([title, given, code]): Case => ({
    title: `a create that creates the item and answers ${title}`, instead: creates(() => given),
    codes: [`breaks create: ${code}`, 'breaks create: created-anyway'], left: 0,
  })),
  { title: 'a backend that requires PATCH',
    instead: { update: always(answer('', { status: 405, headers: [['Allow', 'GET, PATCH, DELETE']] })) },
    codes: ['breaks update: method-refused'],
    says: {
      title: /^the backend requires PATCH, or does not support updates$/, asked: /^PUT \/api\/WorkItem\/4$/,
      came: /^status 405; .*allow: GET, PATCH, DELETE/,
      clients: /^500 \{"error":"Failed to update work item"\}$/, advice: /the backend allows GET, PATCH, DELETE/,
    }, left: 0 },
  ...[400, 422].map((status): Case => ({
    title: `an update that answers ${status} to the fields of a read, but accepts the fields of the create`,
    instead: { update: ({ request }) => (request.body.includes('"id"') ? answer('', { status }) : undefined) },
    codes: ['warning update: update-of-what-was-read'], left: 0,
  })),
  { title: 'an update that answers 409: the update is not sent again with other fields',
    instead: { update: ({ request }) => (request.body.includes('"id"') ? answer('', { status: 409 }) : undefined) },
    codes: ['breaks update: body-refused'], left: 0 },
  { title: 'an update that does nothing', instead: { update: always(noContent) },
    codes: ['breaks update: update-not-seen'], left: 0 },
  { title: 'nothing for a delete that answers 200 with a body',
    instead: { delete: (_e, { items }, id) => answer(JSON.stringify({ deleted: items.delete(id) })) }, codes: [], left: 0 },
  { title: 'a delete that answers 404 for an existing item: the item remains, and the report lists it',
    instead: { delete: always(answer('', { status: 404 })) }, codes: ['breaks delete: item-not-found'],
    says: { clients: /^500 \{"error":"Failed to delete work item"\}$/ }, left: 1 },
  { title: 'a delete that does nothing', instead: { delete: always(noContent) },
    codes: ['breaks delete: delete-not-seen'], left: 1 },
  ...([
    ['204', noContent], ['500', answer('', { status: 500 })], ['400', answer('', { status: 400 })],
    ['200 with an HTML page', answer('<p>')],
  ] as const).flatMap(([status, given]): Case[] => [
    { title: `a read that answers ${status} for every missing item: the deleted item is not listed as left`,
      instead: { read: (_e, { items }, id) => (items.has(id) ? undefined : given) },
      codes: ['breaks read: missing-is-no-404'], says: { clients: /^500 .* instead of "not found"/ }, left: 0 },
    { title: `a read that answers ${status} only for a deleted item: the item is not listed as left`,
      instead: { read: (_e, { items, created }, id) => (created.has(id) && !items.has(id) ? given : undefined) },
      codes: ['breaks read: deleted-is-no-404'], left: 0 },
    { title: `a read that answers ${status} for every missing item, and a delete that fails after its work`,
      instead: { read: (_e, { items }, id) => (items.has(id) ? undefined : given),
        delete: (_e, { items }, id) => (items.delete(id), answer('', { status: 500 })) },
      codes: ['breaks read: missing-is-no-404', 'breaks delete: server-error'], left: 0 },
  ]),
  { title: 'a read that answers 410 for a deleted item',
    instead: { read: (_e, { items, created }, id) =>
      created.has(id) && !items.has(id) ? answer('', { status: 410 }) : undefined },
    codes: ['breaks read: deleted-is-no-404'], says: { clients: /^500 / }, left: 0 },
  { title: 'a wrong path', instead: everything(answer('<h1>Not Found</h1>', { status: 404 })),
    codes: ['breaks list: no-such-path', notWritten], says: { advice: /base path/ }, asked: ['list', 'read'] },
  { title: 'a redirect to https',
    instead: everything(redirect(301, 'Location: https://items.example.com/v1/api/WorkItem\r\n')),
    codes: ['breaks list: redirect', 'breaks read: redirect', notWritten],
    says: { came: /^status 301; location: https:\/\/items\.example\.com\/v1\/api\/WorkItem/,
      advice: /^Set BACKEND_URL to https:\/\/items\.example\.com\/v1\.$/ } },
  { title: 'a redirect to the same path with a slash at the end',
    instead: lists(redirect(308, 'Location: /api/WorkItem/\r\n')),
    codes: ['breaks list: redirect', notWritten], says: { advice: /slash at the end/ } },
  { title: 'a redirect to a sign-in page',
    instead: lists(redirect(302, 'Location: /login?to=secret\r\n')),
    codes: ['breaks list: redirect', notWritten], says: { advice: /sign-in page/ } },
  { title: 'a redirect without a location', instead: lists(redirect(302, '')),
    codes: ['breaks list: redirect', notWritten], says: { advice: /Often|names no place/ } },
  { title: 'gzip that was not requested',
    instead: { list: withFields((text) => gzipSync(text), [['Content-Encoding', 'gzip']]) },
    codes: ['breaks list: compressed', notWritten],
    says: { came: /content-encoding: gzip/, clients: /^500 \{"error":"Failed to fetch work items"\}$/ } },
  { title: 'gzip without content-encoding', instead: { list: withFields((text) => gzipSync(text), []) },
    codes: ['breaks list: compressed', notWritten] },
  { title: 'an HTML page with status 200',
    instead: lists(json('<!doctype html><title>Sign in</title>', 'Content-Type: text/html\r\n')),
    codes: ['breaks list: html', notWritten], says: { came: /content-type: text\/html/ } },
  { title: 'JSON in UTF-16', instead: lists(answer(Buffer.from('\ufeff[]', 'utf16le'))),
    codes: ['breaks list: not-utf-8', notWritten] },
  { title: 'JSON in another charset',
    instead: lists(raw('HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=iso-8859-1\r\nContent-Length: 5\r\n\r\n["\xe9"]')),
    codes: ['breaks list: not-utf-8', notWritten] },
  { title: 'NaN in JSON', instead: lists(answer('[{"id":NaN}]')), codes: ['breaks list: not-json', notWritten] },
  { title: 'a list with an empty body', instead: lists(noContent), codes: ['breaks list: empty-success', notWritten],
    says: { advice: /an empty list is \[\]/ } },
  { title: 'a byte-order mark', instead: { list: withFields((text) => Buffer.from(`\ufeff${text}`), []) },
    codes: ['warning list: byte-order-mark'], left: 0 },
  { title: 'JSON without a content type', instead: { list: always(json('[]', '')) },
    codes: ['warning list: content-type'], options: { write: undefined } },
  { title: 'JSON with the content type text/plain',
    instead: { list: always(json('[]', 'Content-Type: text/plain\r\n')) }, codes: ['warning list: content-type'],
    says: { title: /text\/plain/ }, options: { write: undefined } },
  { title: 'nothing for a content type with +json',
    instead: { list: always(json('[]', 'Content-Type: application/vnd.items.v1+json\r\n')) }, codes: [],
    options: { write: undefined } },
  { title: 'a slow backend', instead: { list: always(latency(20, answer('[]'))) },
    options: { slowMs: 10, write: undefined }, codes: ['warning list: slow'] },
  { title: 'a list whose size is near the limit', instead: {}, settings: { responseBytesMax: 160 },
    codes: ['warning list: near-limit'], options: { write: undefined } },
  { title: 'a list that is too large', instead: {}, settings: { responseBytesMax: 100 },
    codes: ['breaks list: too-large', notWritten], says: { advice: /RESPONSE_BYTES_MAX/ } },
  { title: 'a list inside an object: the check finds the items in it',
    instead: { list: (_e, { items }) => answer(JSON.stringify({ value: [...items.values()], count: items.size })) },
    codes: ['warning list: list-not-array'], left: 0 },
  { title: 'an error with status 200 instead of a list: nothing is written', instead: lists(answer('{"error":"no database"}')),
    codes: ['warning list: list-not-array', notWritten], asked: ['list', 'read', 'list'] },
  { title: 'a list of items without ids: nothing is written', instead: lists(answer('[{"title":"x"}]')),
    codes: ['warning list: items-without-id', notWritten] },
  { title: 'a read that answers 200 with null for a missing item',
    instead: { read: (_exchange, { items }, id) => (items.has(id) ? undefined : answer('null')) },
    codes: ['warning read: missing-is-200'], options: { write: undefined } },
  { title: 'a read that answers with another item',
    instead: { read: (_exchange, _backend, id) => (id === '1' ? answer('{"id":2}') : undefined) },
    codes: ['breaks read: read-of-another'], left: 0 },
  { title: 'ids that are GUIDs: clients reach another item, and nothing is written',
    instead: lists(answer('[{"id":"3f2a4c1e-7a7b-4c38-9d24-1f9a0b8e2d11"}]')),
    codes: ['breaks list: id-unusable', notWritten],
    says: { clients: /^item 3 instead/, advice: /ITEM_ID_PARSING=whole/ }, asked: ['list', 'read', 'list'] },
  { title: 'ids that are GUIDs, with ITEM_ID_PARSING=whole',
    instead: lists(answer('[{"id":"3f2a4c1e-7a7b-4c38-9d24-1f9a0b8e2d11"}]')), settings: { itemIdParsing: 'whole' },
    codes: ['breaks list: id-unusable', notWritten], says: { clients: /^400 \{"error":"Invalid ID format"\}/ } },
  { title: 'ids beyond 2^53, requested with every digit',
    instead: { list: always(answer('[{"id":9007199254740993}]')),
      read: (_e, _b, id) => (id === '9007199254740993' ? answer('{"id":9007199254740993}') : undefined) },
    codes: ['warning list: id-long'], says: { title: /9007199254740993$/ }, options: { write: undefined } },
  { title: 'ids that are strings of digits',
    instead: { list: always(answer('[{"id":"7"}]')), read: (_e, _b, id) => (id === '7' ? answer('{"id":"7"}') : undefined) },
    codes: ['warning list: id-text'], options: { write: undefined } },
  { title: 'ids below zero',
    instead: { list: always(answer('[{"Id":-7}]')), read: (_e, _b, id) => (id === '-7' ? answer('{"Id":-7}') : undefined) },
    codes: ['warning list: id-negative'], options: { write: undefined } },
  { title: 'a backend that requires NTLM',
    instead: everything(answer('', { status: 401, headers: [['WWW-Authenticate', 'Negotiate'], ['WWW-Authenticate', 'NTLM']] })),
    codes: ['breaks list,read: wants-authentication', notWritten],
    says: { came: /www-authenticate: Negotiate, NTLM/, advice: /it cannot use Negotiate.*anonymous authentication/ } },
  { title: 'a backend that answers 403', instead: everything(answer('', { status: 403 })),
    codes: ['breaks list,read: forbidden', notWritten] },
  { title: 'a backend that answers 429',
    instead: everything(answer('', { status: 429, headers: [['Retry-After', '30']] })),
    codes: ['breaks list,read: rate-limited', notWritten], says: { came: /retry-after: 30/ } },
  { title: 'a proxy whose backend is down', instead: everything(answer('', { status: 503 })),
    codes: ['breaks list,read: behind-is-away', notWritten] },
  { title: 'an https port that answers http with 400, as nginx does',
    instead: everything(rawThenClose(answerBytes('<html>', { status: 400 }))),
    codes: ['breaks list: bad-request', 'breaks read: bad-request', notWritten], says: { advice: /require https/ } },
  { title: 'bytes that are not HTTP', instead: everything(garbage),
    codes: ['breaks list,read: malformed-answer', notWritten] },
  ...([
    ['a SETTINGS frame', rawThenClose(Uint8Array.of(0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100))],
    ['a GOAWAY frame', rawThenClose(Uint8Array.of(0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1))],
    ['the text of Kestrel', closing('An HTTP/1.x request was sent to an HTTP/2 only endpoint.', 400)],
    ['505', answer('', { status: 505 })],
    ['426 and h2c', answer('', { status: 426, headers: [['Upgrade', 'h2c']] })],
  ] as const).map(([title, given]): Case => ({
    title: `a backend that speaks only HTTP/2 and answers with ${title}`, instead: everything(given),
    codes: ['breaks list,read: http2-only', notWritten],
    says: { title: /^the backend speaks only HTTP\/2$/, advice: /HTTP\/1\.1/ },
  })),
  { title: 'a backend that denies access and offers HTTP/2, as Apache does with every answer',
    instead: everything(answer('', { status: 403, headers: [['Upgrade', 'h2,h2c']] })),
    codes: ['breaks list,read: forbidden', notWritten] },
  { title: 'a truncated answer', instead: lists(limitData(80, answerBytes('[1,2,3]'))),
    codes: ['breaks list: malformed-answer', notWritten], says: { came: /closed before the answer was complete/ } },
  { title: 'a stalled backend, and stops after one call', instead: everything(timeout), settings: { backendTimeoutMs: 100 },
    codes: ['breaks list: timed-out'],
    says: { came: /^no answer: no complete answer within 100 ms$/, advice: /BACKEND_TIMEOUT_MS/ }, asked: ['list'] },
  { title: 'connections that are closed after every answer',
    instead: {
      list: always(closing('[{"id":1}]', 200)),
      read: (_e, { items }, id) => closing('{"id":1}', items.has(id) ? 200 : 404),
    }, codes: ['warning read: connection-closes'], options: { write: undefined } },
  { title: 'HTTP/1.0',
    instead: { list: always(rawThenClose('HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n[]')),
      read: always(rawThenClose('HTTP/1.0 404 None\r\nContent-Length: 0\r\n\r\n')) },
    codes: ['warning read: connection-closes'], says: { title: /HTTP\/1\.0/ }, options: { write: undefined } },
  { title: 'a Keep-Alive timeout of one second',
    instead: { list: always(answer('[]', { headers: [['Keep-Alive', 'timeout=1']] })),
      read: always(answer('', { status: 404, headers: [['Keep-Alive', 'timeout=1']] })) },
    codes: ['warning read: connection-closes'], options: { write: undefined } },
  { title: 'a backend that closes each connection in silence after an answer',
    instead: { list: () => rawThenClose(answerBytes('[{"id":1}]')),
      read: (_e, { items }, id) => rawThenClose(answerBytes('{"id":1}', { status: items.has(id) ? 200 : 404 })) },
    options: { write: undefined, idleWaitMsMax: 10_000 }, codes: ['warning read: closes-silently'],
    says: {
      clients: /^a 500 for each write on a used connection/,
      advice: /^Let the backend keep idle connections open longer than BACKEND_IDLE_TIMEOUT_MS \(now 4000\), or answer with `connection: close`/,
    } },
  { title: 'a used connection that is reset instead of an answer', instead: { create: () => resetPeer() },
    codes: ['breaks create: no-connection'],
    says: { title: /^the backend closed the connection instead of answering$/, advice: /^Earlier requests were answered/ } },
  // The check watches the second connection.
  { title: 'a connection that closes before BACKEND_IDLE_TIMEOUT_MS',
    instead: { list: ({ request }) => (request.connection === 1 ? rawThenClose(answerBytes('[]')) : answer('[]')) },
    options: { write: undefined, idleWaitMsMax: 10_000 }, codes: ['warning read: idle-too-long'],
    says: { advice: /^Set BACKEND_IDLE_TIMEOUT_MS to at most \d+ \(now 4000\)/ } },
]; // prettier-ignore

describe('the contract check finds', { concurrency: 4 }, () => {
  for (const { title, instead, settings, options, codes, says = {}, asked, left } of cases) {
    test(`${title} [D61]`, async () => {
      await using backend = await ItemBackend.start();
      backend.instead = instead;
      const report = await runContract(backend.scripted.url, settings, options);
      assert.deepEqual(codesOf(report), codes);
      assert.doesNotMatch(JSON.stringify(report.findings), /secret/);
      for (const [part, pattern] of Object.entries(says)) {
        assert.match(String(report.findings[0]?.[part as keyof typeof says]), pattern, part);
      }
      if (asked !== undefined) assert.deepEqual(backend.asked.slice(0, asked.length), asked);
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
