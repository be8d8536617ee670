// Invalid options of the hosts, with the whole message for the developer [D32]. The effects of options are tested for
// each host.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFetchHandler as createInBrowser } from '../../packages/core/hosts/fetch/fetch-edge.ts';
import { createFetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { createGatewayServer, workItemGateway } from '../../packages/core/hosts/index.ts';
import { createNodeHandler } from '../../packages/core/hosts/node/node.ts';
import { Fastify } from '../helpers/fastify.ts';

const hosts = { server: createGatewayServer, node: createNodeHandler, fetch: createFetchHandler };

/** Returns the problems of `options` for `host`, or an empty text if the host accepts the options. */
function problemsOf(options: object, host: keyof typeof hosts = 'server'): string {
  try {
    hosts[host]({ backendUrl: 'http://localhost:5104', ...options });
    return '';
  } catch (error) {
    assert.ok(error instanceof TypeError);
    assert.equal((error as NodeJS.ErrnoException).code, 'ERR_GATEWAY_OPTIONS');
    return /^Cannot create the gateway: (.*)\.$/s.exec(error.message)?.[1] ?? error.message;
  }
}

const [issuerName, audience] = ['https://issuer.example', 'items'];
const withTokens = (authJwksUrl: string, more: object = {}) => ({
  ...{ authIssuer: issuerName, authAudience: [audience], authJwksUrl },
  ...more,
});
const act = () => undefined;
const https = 'https://localhost:5104';
const tlsWish =
  "must be an object with cert and key as PEM strings, and optionally clientCa, minVersion ('1.2' or '1.3') and ticketKeys (48 bytes)";
const msWish = 'must be a whole number from 1 to 2147483647';
const addressRule = 'must be an address, for instance http://localhost:5104';
const tlsRule = 'must be an object with ca, cert, key, serverName, each a string';
const prefixRule = 'must start with a slash and not end with one';
const textRule = 'must be a non-empty string (to set no value, leave out the option)';
const textsRule = 'must be a non-empty array of non-empty strings';

for (const [host, name, rule, wrong, right] of [
  ['server', 'backendUrl', addressRule, [undefined, null, '', 'backend', 5104], [new URL(https)]],
  ['server', 'backendTls', tlsRule, [null, 'pem', { ca: 5 }, { pem: '' }], [undefined]],
  ['node', 'prefix', prefixRule, ['items', 'a/b', '/', '/a/', '/a//b', '/a?', '/a#b'], ['', '/a', '/a/b']],
  ['fetch', 'clientAddress', 'must be a function', ['10.0.0.1', null], [act]],
  ['node', 'log', 'must be false or a function that receives a line', [true, null, 'info', {}], [false, act]],
  ['server', 'requestTimeoutMs', msWish, [0, 1.5, '5', NaN, null, 2_147_483_648], [1, 2_147_483_647]],
  ['server', 'itemIdParsing', "must be 'leading' or 'whole'", ['', 'x', true, null], ['leading', 'whole']],
  [
    'server',
    'allowedHosts',
    'must be an array of host names without ports',
    ['a.example', ['a.example:80'], ['a.example,b.example'], ['a.example', ''], [5], [undefined], {}, null],
    [[], ['a.example', 'b.example']],
  ],
  [
    'server',
    'trustedProxies',
    'must be an array of IP addresses and ranges such as 10.0.0.0/8',
    ['10.0.0.0/8', ['10.0.0.0/8', 'proxy'], ['10.0.0.0/99'], ['10.0.0.1', ''], [10]],
    [[], ['10.0.0.0/8', '::1']],
  ],
  [
    'server',
    'corsOrigins',
    "must be an array of origins such as https://app.example.com, or ['*']",
    [
      ...['*', 'https://a.example', [5], ['*', '*'], ['*', 'https://a.example'], ['https://*.example']],
      ...[['https://a.example/'], ['https://a.example:443'], ['https://A.example'], ['http://']],
      ...[['file://a'], ['app://a/b'], ['xhttps://a.example/b'], ['app://a:123456'], ['-app://a'], ['null'], {}, null],
    ],
    [[], ['*'], ['https://a.example', 'http://localhost:5173'], ['capacitor://localhost', 'a+b-c.d://e:80']],
  ],
  ['server', 'corsMaxAgeS', 'must be a whole number from 0 to 86400', [-1, 86_401], []],
  ['server', 'corsCredentials', 'must be true or false', ['true', 1, null], [false]],
  ['server', 'authIssuer', textRule, ['', 5, null], []],
  ['server', 'authAudience', textsRule, [[], '', 'a', ['a', ''], [5], null], []],
  ['server', 'tls', tlsWish, [null, 'pem', {}, { cert: 5, key: '' }, { cert: '' }], [undefined]],
  ...[{ clientCa: 5 }, { minVersion: '1.1' }, { ticketKeys: Buffer.alloc(47) }].map(
    (more) => ['server', 'tls', tlsWish, [{ cert: '', key: '', ...more }], []] as const,
  ),
] as const) {
  test(`${name}: ${rule}`, () => {
    for (const value of wrong) {
      const problems = problemsOf({ [name]: value }, host).split('; ');
      assert.ok(problems.includes(`${name} ${rule}`), `${JSON.stringify(value)}: ${problems.join('; ')}`);
    }
    for (const value of right) {
      assert.equal(problemsOf({ [name]: value }, host), '', JSON.stringify(value));
    }
  });
}

test('all invalid or incomplete options of guards are reported together, and no secret is repeated', () => {
  const whole = withTokens('https://keys.example');
  const scoped = { ...whole, authScopes: { list: 'a' } };
  const scopesRule = "authScopes must be an object such as { list: 'items.read', create: 'items.write' }";
  const scopeRule = 'authScopes must have one scope for each operation, without spaces, quotes and backslashes';
  const names = 'authScopes may have only the operations list, create, read, update, delete';
  const claims =
    'authScopeClaim must be names of claims separated by commas, with a dot between the name of an object and a name in it: for instance scope, or scp,roles, or realm_access.roles';
  const algorithms =
    'authAlgorithms must be one or more of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, Ed25519';
  const noTokens = 'is set, but tokens are off: authIssuer is not set';
  const rows: [options: object, ...problems: string[]][] = [
    [{ ...whole, authScopes: { list: 'a', read: undefined }, authJwksStaleMs: 300_000 }],
    ...[null, 'list=a', ['list=a']].map((authScopes): [object, string] => [{ ...whole, authScopes }, scopesRule]),
    [{ ...whole, authScopes: { list: 'a', zzzzzz: 'b' } }, names],
    ...['a b', ['b']].map((read): [object, string] => [{ ...whole, authScopes: { list: 'a', read } }, scopeRule]),
    [{ ...whole, authAlgorithms: ['RS256', 'ES256,EdDSA'] }, algorithms],
    ...['xHS256', 'HS256x'].map((name): [object, string] => [
      { ...whole, authAlgorithms: [name] },
      `${algorithms}: did you mean RS256, PS256 or ES256?`,
    ]),
    [{ ...whole, authAudience: ['a', 'b c'] }, 'authAudience must be a string without spaces and control characters'],
    ...['a b', 7, null, [], ['a', 7], ['a,b'], {}].map((authScopeClaim): [object, string] => [
      { ...scoped, authScopeClaim },
      claims,
    ]),
    ...['a', 'a,b.c', ['a', 'b.c'], 'https://x.y/roles'].map((authScopeClaim): [object] => [
      { ...scoped, authScopeClaim },
    ]),
    [
      { authIssuer: issuerName },
      'authIssuer is set, but authAudience is not: tokens for other services would be accepted',
      'authIssuer is set, but neither authJwksUrl nor authJwksFile: there are no keys',
    ],
    [{ authAudience: [audience] }, `authAudience ${noTokens}`],
    [
      withTokens('http://user:geheim@keys.example', {
        ...{ authAudience: audience, authAlgorithms: ['HS256'], authClockSkewMs: 600_001 },
        ...{ authTokenType: 'jwt', authScopes: { reed: 'x' }, authScopeClaim: 'a b' },
        backendIdentityHeader: 'Authorization',
      }),
      `authAudience ${textsRule}`,
      'authJwksUrl must be an https address without user name, password and fragment',
      `${algorithms} (HMAC uses a shared secret, so any service that verifies a token could also forge one)`,
      "authTokenType must be 'any' or 'at+jwt'",
      `${names}: did you mean read?`,
      claims,
      'backendIdentityHeader must be the name of a header that has no other use, for instance x-user',
      'authClockSkewMs must be a whole number from 0 to 600000',
    ],
    [
      { rateLimit: '100', rateLimitKey: 'ip', rateLimitRedisUrl: 'http://:geheim@redis', rateLimitFallback: true },
      'rateLimit must be requests/window, for instance 100/60s, 10/1s, 1000/5m or 10000/1h: at most 1000000 requests, in a window of 1s to 24h',
      "rateLimitKey must be 'address' or 'identity'",
      'rateLimitRedisUrl must be an address such as redis://redis.internal:6379/0 or, over TLS, rediss://user:password@redis.internal, with special characters of user name and password percent-encoded',
      "rateLimitFallback must be 'local' or 'allow' or 'deny'",
    ],
    [{ authIsuer: issuerName }, 'authIsuer is unknown: did you mean authIssuer?'],
  ];
  for (const [options, ...problems] of rows) {
    assert.equal(problemsOf(options), problems.join('; '), JSON.stringify(options));
    assert.doesNotMatch(problems.join(), /geheim/);
  }
});

test('the message for an invalid backendUrl names the part that is wrong', () => {
  const one = 'the address of one backend (put a load balancer in front of several)';
  for (const [wish, ...urls] of [
    [one, 'http://a,b', 'HTTP://a,http://b', 'http://a/x,http://b', 'http://a/x, \n http://b', 'http://a/x,HTTPS://b'],
    [undefined, 'http://a/x,1/x', 'http://a/x//b,1'],
    ['an http or https address', 'ftp://a', 'xftp://a'],
    ['an address whose path has no malformed escape', 'http://a/%zz'],
  ] as const) {
    const text = `backendUrl must be ${wish}, for instance http://localhost:5104`;
    for (const backendUrl of urls) assert.equal(problemsOf({ backendUrl }), wish === undefined ? '' : text, backendUrl);
  }
});

test('options that cannot be combined are refused with the reason', () => {
  const noOrigin = 'but corsOrigins is empty';
  for (const [options, ...problems] of [
    [{ corsCredentials: true }, `corsCredentials is true, ${noOrigin}`],
    [{ corsMaxAgeS: 5 }, `corsMaxAgeS is set, ${noOrigin}`],
    [
      { corsMaxAgeS: 0, corsCredentials: true },
      `corsCredentials is true, ${noOrigin}`,
      `corsMaxAgeS is set, ${noOrigin}`,
    ],
    [
      { corsOrigins: ['*'], corsCredentials: true },
      'corsCredentials cannot be true when corsOrigins is *: name the origins instead',
    ],
    [{ backendTls: { ca: '' } }, 'backendTls needs an https address in backendUrl'],
    [{ backendTls: { cert: 'x' }, backendUrl: https }, 'backendTls needs both cert and key, or neither'],
    [{ backendTls: { key: 'x' }, backendUrl: https }, 'backendTls needs both cert and key, or neither'],
    [{ corsMaxAgeS: 600 }],
    [{ corsOrigins: ['https://a.example'], corsCredentials: true, corsMaxAgeS: 5 }],
    [{ corsOrigins: ['*'], corsMaxAgeS: 5 }],
    [{ backendTls: { serverName: 'a', ca: undefined }, backendUrl: https }],
  ] as const) {
    assert.equal(problemsOf(options), problems.join('; '), JSON.stringify(options));
  }
  assert.match(
    problemsOf({ backendTls: {}, backendUrl: 'ftp://a' }),
    /; backendTls needs an https address in backendUrl$/,
  );
  const rateLimit = '1/1s';
  const tokens = withTokens('https://keys.example');
  assert.equal(
    problemsOf({ rateLimit }, 'fetch'),
    "rateLimit counts by address, which a Request does not contain: set clientAddress, or rateLimitKey: 'identity'",
  );
  assert.equal(problemsOf({ rateLimit, clientAddress: act }, 'fetch'), '');
  assert.equal(problemsOf({ rateLimit, rateLimitKey: 'identity', ...tokens }, 'fetch'), '');
  const pem = { cert: 'x', key: 'x' };
  assert.match(problemsOf({ backendTls: pem, backendUrl: https }), /^backendTls cannot be used: \w/);
  assert.match(problemsOf({ tls: pem }), /^tls cannot be used: \w/);
  assert.throws(() => createGatewayServer({ backendUrl: https }).renewTls({} as never), {
    name: 'TypeError',
    message: `Cannot create the gateway: tls ${tlsWish}.`,
  });
});

test('one message lists all problems: texts first, then numbers, combinations and unknown names', () => {
  const wrong = { requestTimeoutMs: 0, backendUrl: 'x', corsMaxAgeS: 5, inFlightMx: 1, connectionsMax: 1, zzz: 1 };
  const problems = [
    `backendUrl ${addressRule}`,
    `requestTimeoutMs ${msWish}`,
    'corsMaxAgeS is set, but corsOrigins is empty',
    'inFlightMx is unknown: did you mean inFlightMax?',
    'connectionsMax is unknown',
    'zzz is unknown',
  ];
  for (const host of ['node', 'fetch'] as const) assert.equal(problemsOf(wrong, host), problems.join('; '));
  assert.equal(problemsOf({ prefix: '/a' }), 'prefix is unknown');
});

test('every other error for a developer has a code, and `await using` ends each handler', async () => {
  const backendUrl = 'http://localhost:5104';
  await using call = createFetchHandler({ backendUrl });
  await using later = createFetchHandler(() => ({ backendUrl: 5 }) as never);
  await using handler = createNodeHandler({ backendUrl });
  assert.equal(typeof handler, 'function');
  await assert.rejects(call('/' as never), { name: 'TypeError', code: 'ERR_GATEWAY_REQUEST' });
  await assert.rejects(later(new Request('http://localhost/')), { name: 'TypeError', code: 'ERR_GATEWAY_OPTIONS' });
  assert.throws(() => createInBrowser({ backendUrl }), { code: 'ERR_GATEWAY_RUNTIME' });
  await assert.rejects(async () => await Fastify().register(workItemGateway, { backendUrl: 5 as never }), {
    ...{ name: 'TypeError', code: 'ERR_GATEWAY_OPTIONS' },
  });
  const http2 = Fastify({ http2: true });
  await assert.rejects(async () => await http2.register(workItemGateway, { backendUrl }), { code: 'ERR_GATEWAY_HOST' });
});

test('options that are not an object are refused by every host', () => {
  for (const create of Object.values(hosts)) {
    for (const options of [undefined, null, 'http://localhost:5104']) {
      const expected = { name: 'TypeError', message: /the options must be an object, such as \{/ };
      assert.throws(() => create(options as never), expected);
    }
  }
});
