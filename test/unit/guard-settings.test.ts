// Settings of tokens and of the rate limit: incomplete or unsafe settings make the start fail [D41, D44, D46 to D48].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeChanges, SettingsError, showValue } from '../../packages/command/settings/settings.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';

const whole = {
  AUTH_ISSUER: 'https://login.example.com/',
  AUTH_AUDIENCE: 'work-items',
  AUTH_JWKS_URL: 'https://login.example.com/keys',
};

function resolve(environment: Readonly<Record<string, string>>) {
  return resolveSettings('serve', {}, environment).settings;
}

function problemsOf(environment: Readonly<Record<string, string>>): readonly string[] {
  try {
    resolve(environment);
    return [];
  } catch (error) {
    assert.ok(error instanceof SettingsError);
    return error.problems;
  }
}

test('complete settings are valid, and lists are parsed', () => {
  const settings = resolve({
    ...whole,
    AUTH_AUDIENCE: ' a, b ,c',
    AUTH_ALGORITHMS: 'ES256,EdDSA,ES256',
    AUTH_SCOPES: 'list=items.read, delete=https://x/delete=all',
    AUTH_SCOPE_CLAIM: 'scp, roles,resource_access.my-client.roles,https://x.y/roles,cognito:groups',
    AUTH_TOKEN_TYPE: 'at+jwt',
    BACKEND_IDENTITY_HEADER: 'X-User',
  });
  assert.equal(settings.authIssuer, 'https://login.example.com/');
  assert.deepEqual(settings.authAudience, ['a', 'b', 'c']);
  assert.deepEqual(settings.authAlgorithms, ['ES256', 'EdDSA']);
  assert.deepEqual(settings.authScopes, ['list=items.read', 'delete=https://x/delete=all']);
  assert.deepEqual(settings.authScopeClaim, [
    ...['scp', 'roles', 'resource_access.my-client.roles', 'https://x.y/roles', 'cognito:groups'],
  ]);
  assert.equal(settings.authTokenType, 'at+jwt');
  assert.deepEqual(problemsOf({ ...whole, AUTH_TOKEN_TYPE: '', AUTH_ALGORITHMS: '' }), []);
});

test('without AUTH_ISSUER, every other setting of tokens is a problem', () => {
  const problems = problemsOf({
    AUTH_AUDIENCE: 'x',
    AUTH_JWKS_URL: 'https://x/',
    AUTH_JWKS_FILE: 'x',
    AUTH_ALGORITHMS: 'RS256,ES256',
    AUTH_CLOCK_SKEW_MS: '30000',
    AUTH_TOKEN_TYPE: 'any',
    AUTH_SCOPES: 'list=x',
    AUTH_SCOPE_CLAIM: 'scope',
    AUTH_JWKS_REFRESH_MS: '300000',
    AUTH_JWKS_STALE_MS: '86400000',
    BACKEND_IDENTITY_HEADER: 'x-user',
  });
  assert.equal(problems.length, 11);
  for (const problem of problems) assert.match(problem, /^[A-Z_]+ is set, but tokens are off: AUTH_ISSUER is not set$/);
});

const rows: [title: string, more: Record<string, string>, problem: RegExp][] = [
  ['a missing audience', { AUTH_AUDIENCE: '' }, /^AUTH_ISSUER is set, but AUTH_AUDIENCE is not/],
  ['an audience that consists of commas', { AUTH_AUDIENCE: ',,' }, /^AUTH_AUDIENCE is ",,", but must be a list without empty entries: remove the extra comma$/],
  ['an empty audience in a list', { AUTH_AUDIENCE: 'a, ,b' }, /^AUTH_AUDIENCE is "a, ,b", but must be a list without empty entries: write a,b$/],
  ['an empty claim in a list', { AUTH_SCOPES: 'list=a', AUTH_SCOPE_CLAIM: 'scp,,roles' }, /^AUTH_SCOPE_CLAIM .* write scp,roles$/],
  ['a comma after the last claim', { AUTH_SCOPES: 'list=a', AUTH_SCOPE_CLAIM: 'scp,' }, /^AUTH_SCOPE_CLAIM .* write scp$/],
  ['an empty algorithm in a list', { AUTH_ALGORITHMS: ',RS256' }, /^AUTH_ALGORITHMS .* write RS256$/],
  ['an empty scope in a list', { AUTH_SCOPES: 'list=a,,read=b' }, /^AUTH_SCOPES .* write list=a,read=b$/],
  ['a missing source of keys', { AUTH_JWKS_URL: '' }, /neither AUTH_JWKS_URL nor AUTH_JWKS_FILE/],
  ['a second source of keys', { AUTH_JWKS_FILE: 'keys.json' }, /AUTH_JWKS_URL and AUTH_JWKS_FILE are both set/],
  ['AUTH_JWKS_STALE_MS below AUTH_JWKS_REFRESH_MS', { AUTH_JWKS_STALE_MS: '1000' }, /AUTH_JWKS_STALE_MS is below/],
  ['AUTH_SCOPE_CLAIM without AUTH_SCOPES', { AUTH_SCOPE_CLAIM: 'scp' }, /AUTH_SCOPE_CLAIM is set, but AUTH_SCOPES is not/],
  ['an audience with a space', { AUTH_AUDIENCE: 'a,b c' }, /^AUTH_AUDIENCE .*must be strings without spaces and control characters/],
  ['an issuer with a space', { AUTH_ISSUER: 'https://x /' }, /^AUTH_ISSUER must be a string without spaces/],
  ...['https://a/,https://b/', 'a,b', 'a,', 'https://a;https://b', 'https://a; urn:b', 'https://a|https://b', 'https://a;'].map((name): [string, Record<string, string>, RegExp] => [`the list of issuers ${name}`, { AUTH_ISSUER: name }, /^AUTH_ISSUER .*must be one issuer, as in the claim iss, not a list \(start one gateway for each issuer\)$/]),
  ...[',', ';', '; ', '|'].map((separator): [string, Record<string, string>, RegExp] => [`a list of addresses of keys with "${separator}"`, { AUTH_JWKS_URL: `https://a/keys${separator}https://b/keys` }, /^AUTH_JWKS_URL must be one https address, not a list$/]),
  ...[',', ';'].map((separator): [string, Record<string, string>, RegExp] => [`a list of Redis servers with "${separator}"`, { RATE_LIMIT: '1/1s', RATE_LIMIT_REDIS_URL: `redis://a${separator}b:6379` }, /^RATE_LIMIT_REDIS_URL must be an address such as redis:/]),
  ...['a b', ',', '.roles', 'roles.', 'realm_access..roles', 'scp,.roles', '$.realm_access.roles[*]', '"scope"', "'scope'", 'roles[0]', '*', 'a.*.roles', 'a\\.b'].map((name): [string, Record<string, string>, RegExp] => [
    `the claim ${name}`,
    { AUTH_SCOPES: 'list=a', AUTH_SCOPE_CLAIM: name },
    /^AUTH_SCOPE_CLAIM .*must be names of claims separated by commas, .* for instance scope, or scp,roles, or realm_access\.roles$/,
  ]),
  ['the claim exp', { AUTH_SCOPES: 'list=a', AUTH_SCOPE_CLAIM: 'scope,exp' }, /^AUTH_SCOPE_CLAIM .* \(exp is a time\)$/],
  ['the algorithm none', { AUTH_ALGORITHMS: 'RS256,none' }, /an unsigned token proves nothing/],
  ['the algorithm NONE', { AUTH_ALGORITHMS: 'NONE' }, /an unsigned token proves nothing/],
  ...['HS256', 'HS384', 'HS512', 'hs256', 'HS1'].map((alg): [string, Record<string, string>, RegExp] => [`the algorithm ${alg}`, { AUTH_ALGORITHMS: `ES256,${alg}` }, /uses a shared secret/]),
  ['an unknown algorithm', { AUTH_ALGORITHMS: 'RS265' }, /did you mean RS256/],
  ['an algorithm in small letters', { AUTH_ALGORITHMS: 'rs256' }, /must be one or more of RS256/],
  ['an empty list of algorithms', { AUTH_ALGORITHMS: ',' }, /must be one or more of RS256/],
  ['an unknown token type', { AUTH_TOKEN_TYPE: 'jwt' }, /must be one of any, at\+jwt/],
  ['a scope of an unknown operation', { AUTH_SCOPES: 'reads=x' }, /did you mean read\?/],
  ['a scope without its operation', { AUTH_SCOPES: 'items.read' }, /must be a list such as/],
  ['a scope of an empty operation', { AUTH_SCOPES: '=x' }, /must be a list such as/],
  ['an operation without a scope', { AUTH_SCOPES: 'list=' }, /the scope of list is missing or invalid/],
  ['a scope with a quote', { AUTH_SCOPES: 'list=a"b' }, /the scope of list is missing or invalid/],
  ['a scope with a backslash', { AUTH_SCOPES: 'list=a\\b' }, /the scope of list is missing or invalid/],
  ['a scope of two words', { AUTH_SCOPES: 'list=a b' }, /the scope of list is missing or invalid/],
  ['a scope with a space in front', { AUTH_SCOPES: 'list= a' }, /the scope of list is missing or invalid/],
  ['a scope that is not ASCII', { AUTH_SCOPES: 'list=é' }, /the scope of list is missing or invalid/],
  ['an operation that is listed twice', { AUTH_SCOPES: 'list=a,list=b' }, /but has list twice/],
  ['plain http to the name of another machine', { AUTH_JWKS_URL: 'http://login.example.com/keys' }, /plain http only for localhost/],
  ['plain http to a name that begins with localhost', { AUTH_JWKS_URL: 'http://localhost.example.com/' }, /plain http only for/],
  ['plain http to an address of another machine', { AUTH_JWKS_URL: 'http://10.0.0.1/' }, /plain http only for/],
  ['plain http to the address 0.0.0.0', { AUTH_JWKS_URL: 'http://0.0.0.0/' }, /plain http only for/],
  ['plain http to a name under .localhost (which DNS may resolve)', { AUTH_JWKS_URL: 'http://keys.localhost/' }, /plain http only for/],
  ['a user name in the address of the keys', { AUTH_JWKS_URL: 'https://SECRET@x/' }, /without user name, password and fragment/],
  ['a fragment in the address of the keys', { AUTH_JWKS_URL: 'https://x/#SECRET' }, /without user name, password and fragment/],
  ['a password in the address of the keys', { AUTH_JWKS_URL: 'https://ada:SECRET@x/' }, /without user name, password and fragment/],
  ['a word as the address of the keys', { AUTH_JWKS_URL: 'keys' }, /must be an https address/],
  ['a file as the address of the keys', { AUTH_JWKS_URL: 'file:///etc/keys' }, /must be an https address/],
  ['a clock skew over the limit', { AUTH_CLOCK_SKEW_MS: '600001' }, /must be a whole number from 0 to 600000/],
  ...[
    'host', 'Host', 'content-type', 'CONTENT-LENGTH', 'content-encoding', 'x-request-id', 'traceparent', 'tracestate', 'connection', 'keep-alive', 'proxy-authenticate',
    'proxy-authorization', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'authorization', 'Authorization', 'expect', 'accept-encoding',
  ].map((name): [string, Record<string, string>, RegExp] => [`the header ${name}`, { BACKEND_IDENTITY_HEADER: name }, /a header that has no other use/]),
  ...['x user', 'x:user', 'é', 'x\r\nuser', ' x', '(x)', 'x'.repeat(101)].map((name): [string, Record<string, string>, RegExp] => [`the header ${JSON.stringify(name)}`, { BACKEND_IDENTITY_HEADER: name }, /must be the name of a header/]),
]; // prettier-ignore

for (const [title, more, expected] of rows) {
  test(`${title} is a problem`, () => {
    const problems = problemsOf({ ...whole, ...more });
    assert.equal(problems.length, 1, problems.join('\n'));
    assert.match(problems[0] ?? '', expected);
    assert.doesNotMatch(problems[0] ?? '', /SECRET/);
  });
}

test('an empty --auth-scope-claim is a problem', () => {
  assert.throws(
    () => resolveSettings('serve', { authScopeClaim: '' }, { ...whole, AUTH_SCOPES: 'list=a' }),
    (error) =>
      error instanceof SettingsError &&
      error.problems.join().startsWith('--auth-scope-claim is "", but must be names of claims separated by commas, '),
  );
});

test('keys may be fetched over plain http from the local machine', () => {
  for (const host of ['localhost', '127.0.0.1', '127.8.8.8', '[::1]', 'LOCALHOST', '0x7f.1']) {
    assert.deepEqual(problemsOf({ ...whole, AUTH_JWKS_URL: `http://${host}:8080/keys` }), [], host);
  }
});

test('the query of AUTH_JWKS_URL is used and never shown', () => {
  const before = resolve(whole);
  const after = resolve({ ...whole, AUTH_JWKS_URL: 'https://login.example.com/keys?p=SECRET' });
  assert.equal(after.authJwksUrl, 'https://login.example.com/keys?p=SECRET');
  assert.equal(showValue('authJwksUrl', after), 'https://login.example.com/keys');
  assert.doesNotMatch(JSON.stringify(describeChanges(before, after)), /SECRET/);
});

test('an invalid RATE_LIMIT_REDIS_URL is a problem, and its value is not shown', () => {
  for (const url of [
    'http://user:hunter2@127.0.0.1', 'redis://user:hunter2@', 'redis://:hunter2@a/x', 'redis://:hunter2@a/0?tls=1',
    'redis://:hunter2@a#b', 'redis://:hunter2%zz@a', 'redis://hunter2%zz@a', 'hunter2', '/tmp/hunter2.sock',
    'xredis://:hunter2@a', 'redissx://:hunter2@a', 'redis://:hunter2@a/x/1', 'redis://:hunter2@a/1/x', 'redis://:hunter2@a/12345',
  ]) {
    const [problem = '', ...others] = problemsOf({ RATE_LIMIT: '1/1s', RATE_LIMIT_REDIS_URL: url });
    assert.deepEqual(others, []);
    assert.match(problem, /^RATE_LIMIT_REDIS_URL must be an address such as redis:/);
    assert.doesNotMatch(problem, /hunter2/);
  } // prettier-ignore
});

test('a valid RATE_LIMIT_REDIS_URL is shown without user name and password', () => {
  for (const [url, shown] of [
    ['redis://a', 'redis://a'], ['rediss://ada:hunter2@a:1/15', 'rediss://a:1/15'], ['redis://:p%25@[::1]/', 'redis://[::1]/'],
  ] as const) {
    const settings = resolve({ RATE_LIMIT: '1/1s', RATE_LIMIT_REDIS_URL: url });
    assert.equal(settings.rateLimitRedisUrl, url);
    assert.equal(showValue('rateLimitRedisUrl', settings), shown);
  } // prettier-ignore
  assert.equal(showValue('rateLimitRedisUrl', resolve({ RATE_LIMIT: '1/1s' })), '');
});

test('an invalid rate limit is a problem', () => {
  for (const [environment, problem] of [
    [{ RATE_LIMIT: '100' }, /^RATE_LIMIT is "100", but must be requests\/window, for instance 100\/60s/],
    [{ RATE_LIMIT_KEY: 'address' }, /^RATE_LIMIT_KEY is set, but has no effect without RATE_LIMIT$/],
    [{ RATE_LIMIT: '1/1s', RATE_LIMIT_KEY: 'cookie' }, /^RATE_LIMIT_KEY is "cookie", but must be one of address, identity$/],
    [{ RATE_LIMIT: '1/1s', RATE_LIMIT_KEY: 'identity' }, /^RATE_LIMIT_KEY is identity, but tokens are off: AUTH_ISSUER is not set$/],
  ] as const) {
    assert.match(problemsOf(environment).join(), problem);
  } // prettier-ignore
});
