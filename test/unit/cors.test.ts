// Valid origins, and the CORS headers of replies, which are created once for each origin [D45].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createCors, isOrigin, parseOrigins } from '../../packages/core/options/cors-options.ts';
import { describeOrigins } from '../../packages/command/commands/check-origins.ts';

const app = 'https://app.example.com';

test('an origin is valid only in the exact form that browsers send', () => {
  const origins = [
    app, 'http://app.example.com', 'https://app.example.com:8443', 'http://localhost:5173',
    'http://127.0.0.1', 'http://[::1]:3000', 'https://xn--bcher-kva.example', 'capacitor://localhost',
    'chrome-extension://abcdefghijklmnopabcdefghijklmnop', 'tauri://localhost',
  ]; // prettier-ignore
  for (const origin of origins) {
    assert.equal(isOrigin(origin), true, origin);
  }
  const otherTexts = [
    '', 'null', '*', 'app.example.com', 'https://', 'https://*.example.com', 'https://app.example.com/',
    'https://app.example.com/path', 'https://app.example.com?a', 'https://app.example.com#a',
    'https://App.example.com', 'HTTPS://app.example.com', 'https://app.example.com:443',
    'http://app.example.com:80', 'https://app.example.com:', 'https://app.example.com:99999',
    'https://user@app.example.com', 'https://user:secret@app.example.com', 'https://bücher.example',
    ' https://app.example.com', 'https://app.example.com ', 'https://a\r\nset-cookie: b',
    'capacitor://a\r\nset-cookie: b', 'https:app.example.com', 'file://', 'file:///a', 'file://a',
    'data:text/html,a', 'about:blank', 'javascript://a/b', 5, undefined,
  ]; // prettier-ignore
  for (const origin of otherTexts) {
    assert.equal(isOrigin(origin), false, String(origin));
  }
});

test('a list contains origins, or only a star', () => {
  assert.deepEqual(parseOrigins(''), []);
  assert.deepEqual(parseOrigins(' * '), ['*']);
  assert.deepEqual(parseOrigins(` ${app} ,, http://localhost:1 `), [app, 'http://localhost:1']);
  for (const text of [`*,${app}`, '*,*', `${app} http://b`, `${app};http://b`, 'null', `${app},null`]) {
    assert.equal(parseOrigins(text), undefined, text);
  }
});

describe('lists of headers', () => {
  const cors = createCors({ corsOrigins: [app, 'http://b'] }, 600) ?? assert.fail();
  const own = ['a', 'b'];
  const options = ['allow', 'GET'];
  const get = (origin: string) => ({ method: 'GET', fields: ['origin', origin] });
  const ask = (origin: string) => ({
    method: 'OPTIONS',
    fields: ['origin', origin, 'access-control-request-method', 'GET'],
  });

  test('replies to one allowed origin share a list of headers; replies to all origins that are not allowed share another list', () => {
    const first = cors.fieldsFor(own, get(app));
    assert.equal(cors.fieldsFor([...own, 'c', 'd'], get(app)), first);
    const others = [cors.fieldsFor(own, get('http://b')), cors.fieldsFor(own, get('http://c'))];
    assert.equal(new Set([first, ...others]).size, 3);
    // Replies to origins that are not allowed and to requests without an origin share one list.
    assert.equal(cors.fieldsFor(own, get('http://d')), others[1]);
    assert.equal(cors.fieldsFor(own, undefined), others[1]);
  });

  test("a preflight of an allowed origin gets the methods of the reply's Allow header", () => {
    const preflight = cors.fieldsFor(options, ask(app));
    assert.deepEqual(cors.fieldsFor(options, ask(app)), preflight);
    assert.notDeepEqual(cors.fieldsFor(options, get(app)), preflight);
    assert.equal(preflight[preflight.indexOf('access-control-allow-methods') + 1], 'GET');
    assert.deepEqual(cors.fieldsFor(own, ask(app)), cors.fieldsFor(own, get(app)));
    assert.equal(cors.fieldsFor(options, ask('http://d')), cors.fieldsFor(options, get('http://d')));
  });

  test("the list of the reply's own headers is not changed", () => {
    assert.deepEqual(own, ['a', 'b']);
    assert.deepEqual(cors.fieldsFor(own, get('http://c')), ['vary', 'origin']);
  });

  test('without origins, CORS is off', () => {
    assert.equal(createCors({}, 600), undefined);
    assert.equal(createCors({ corsOrigins: [], corsCredentials: true }, 600), undefined);
  });
});

describe('the advice that the command `check` gives about origins', () => {
  const advice = (...corsOrigins: string[]): string[] => describeOrigins({ corsOrigins }).slice(1);

  test('there is no advice without origins, for https origins and apps, or for localhost alone', () => {
    assert.deepEqual(describeOrigins({}), []);
    for (const origins of [[app], ['http://localhost:5173', 'http://127.0.0.1:1'], [app, 'capacitor://localhost']]) {
      assert.deepEqual(advice(...origins), [], origins.join());
    }
    assert.deepEqual(describeOrigins({ corsOrigins: [app, 'https://b'], corsCredentials: true }), [
      `cors: pages of ${app}, https://b may call and read replies, with cookies and client certificates`,
    ]);
  });

  test('there is advice about a star, about http, and about localhost next to other origins', () => {
    assert.match(advice('*').join(), /List the origins/);
    assert.match(advice('http://app.example.com').join(), /is not https/);
    assert.doesNotMatch(advice('http://app.example.com').join(), /Leave this origin out/);
    assert.match(advice('http://app.example.com', app).join(), /Leave this origin out/);
    assert.match(advice('http://localhost:5173', app).join(), /for development only/);
  });
});
