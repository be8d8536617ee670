// Settings of tokens and of the rate limit: incomplete or unsafe settings make the start fail [D41, D44, D46 to D48].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeChanges, SettingsError, showValue } from '../../packages/command/settings/settings.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';

type Environment = Readonly<Record<string, string>>;

const keys = { AUTH_JWKS_URL: 'https://login.example.com/keys' };
const whole = { AUTH_ISSUER: 'https://login.example.com/', AUTH_AUDIENCE: 'work-items', ...keys };
const limited = { RATE_LIMIT: '1/1s' };

const resolve = (environment: Environment, flags = {}) => resolveSettings('serve', flags, environment).settings;

function problemsOf(environment: Environment, flags = {}): readonly string[] {
  try {
    resolve(environment, flags);
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
  assert.partialDeepStrictEqual(settings, {
    authIssuer: 'https://login.example.com/',
    authAudience: ['a', 'b', 'c'],
    authAlgorithms: ['ES256', 'EdDSA'],
    authScopes: ['list=items.read', 'delete=https://x/delete=all'],
    authScopeClaim: ['scp', 'roles', 'resource_access.my-client.roles', 'https://x.y/roles', 'cognito:groups'],
    authTokenType: 'at+jwt',
  });
  assert.deepEqual(problemsOf({ ...whole, AUTH_TOKEN_TYPE: '', AUTH_ALGORITHMS: '' }), []);
  for (const host of ['localhost', '127.0.0.1', '127.8.8.8', '[::1]', 'LOCALHOST', '0x7f.1']) {
    assert.deepEqual(problemsOf({ ...whole, AUTH_JWKS_URL: `http://${host}:8080/keys` }), [], host);
  }
});

test('without AUTH_ISSUER, every other setting of tokens is a problem', () => {
  const { AUTH_ISSUER, ...others } = whole;
  const problems = problemsOf({
    ...{ ...others, AUTH_JWKS_FILE: 'x', AUTH_ALGORITHMS: 'RS256,ES256', AUTH_CLOCK_SKEW_MS: '30000' },
    ...{ AUTH_TOKEN_TYPE: 'any', AUTH_SCOPES: 'list=x', AUTH_SCOPE_CLAIM: 'scope', AUTH_JWKS_REFRESH_MS: '300000' },
    ...{ AUTH_JWKS_STALE_MS: '86400000', BACKEND_IDENTITY_HEADER: 'x-user' },
  });
  assert.equal(problems.length, 11, AUTH_ISSUER);
  for (const problem of problems) assert.match(problem, /^[A-Z_]+ is set, but tokens are off: AUTH_ISSUER is not set$/);
});

const scope = { ...whole, AUTH_SCOPES: 'list=a' };
const redisRule = /^RATE_LIMIT_REDIS_URL must be an address such as redis:/;
// The other settings, the invalid one, its values, and the only problem. A value with SECRET is not shown.
const rows: [others: Environment, name: string, values: string[], problem: RegExp][] = [
  [whole, 'AUTH_AUDIENCE', [''], /^AUTH_ISSUER is set, but AUTH_AUDIENCE is not/],
  [whole, 'AUTH_AUDIENCE', [',,'], /^AUTH_AUDIENCE is ",,", but must be a list without empty entries: remove the extra comma$/],
  [whole, 'AUTH_AUDIENCE', ['a, ,b'], /^AUTH_AUDIENCE is "a, ,b", but must be a list without empty entries: write a,b$/],
  [whole, 'AUTH_AUDIENCE', ['a,b c'], /^AUTH_AUDIENCE .*must be strings without spaces and control characters/],
  [whole, 'AUTH_ISSUER', ['https://x /'], /^AUTH_ISSUER must be a string without spaces/],
  [whole, 'AUTH_ISSUER', ['https://a/,https://b/', 'a,b', 'a,', 'https://a;https://b', 'https://a; urn:b', 'https://a|https://b', 'https://a;'],
    /^AUTH_ISSUER .*must be one issuer, as in the claim iss, not a list \(start one gateway for each issuer\)$/],
  [whole, 'AUTH_JWKS_URL', [''], /neither AUTH_JWKS_URL nor AUTH_JWKS_FILE/],
  [whole, 'AUTH_JWKS_FILE', ['keys.json'], /AUTH_JWKS_URL and AUTH_JWKS_FILE are both set/],
  [whole, 'AUTH_JWKS_URL', [',', ';', '; ', '|'].map((separator) => `https://a/keys${separator}https://b/keys`), /^AUTH_JWKS_URL must be one https address, not a list$/],
  // DNS may resolve a name under .localhost.
  [whole, 'AUTH_JWKS_URL', ['http://login.example.com/keys', 'http://localhost.example.com/', 'http://10.0.0.1/', 'http://0.0.0.0/', 'http://keys.localhost/'], /plain http only for localhost/],
  [whole, 'AUTH_JWKS_URL', ['https://SECRET@x/', 'https://x/#SECRET', 'https://ada:SECRET@x/'], /without user name, password and fragment/],
  [whole, 'AUTH_JWKS_URL', ['keys', 'file:///etc/keys'], /must be an https address/],
  [whole, 'AUTH_JWKS_STALE_MS', ['1000'], /AUTH_JWKS_STALE_MS is below/],
  [whole, 'AUTH_CLOCK_SKEW_MS', ['600001'], /must be a whole number from 0 to 600000/],
  [whole, 'AUTH_SCOPE_CLAIM', ['scp'], /AUTH_SCOPE_CLAIM is set, but AUTH_SCOPES is not/],
  [scope, 'AUTH_SCOPE_CLAIM', ['scp,,roles'], /^AUTH_SCOPE_CLAIM .* write scp,roles$/],
  [scope, 'AUTH_SCOPE_CLAIM', ['scp,'], /^AUTH_SCOPE_CLAIM .* write scp$/],
  [scope, 'AUTH_SCOPE_CLAIM', ['a b', ',', '.roles', 'roles.', 'realm_access..roles', 'scp,.roles', '$.realm_access.roles[*]', '"scope"', "'scope'", 'roles[0]', '*', 'a.*.roles', 'a\\.b'],
    /^AUTH_SCOPE_CLAIM .*must be names of claims separated by commas, .* for instance scope, or scp,roles, or realm_access\.roles$/],
  [scope, 'AUTH_SCOPE_CLAIM', ['scope,exp'], /^AUTH_SCOPE_CLAIM .* \(exp is a time\)$/],
  [whole, 'AUTH_ALGORITHMS', [',RS256'], /^AUTH_ALGORITHMS .* write RS256$/],
  [whole, 'AUTH_ALGORITHMS', ['RS256,none', 'NONE'], /an unsigned token proves nothing/],
  [whole, 'AUTH_ALGORITHMS', ['ES256,HS256', 'HS384', 'HS512', 'hs256', 'HS1'], /uses a shared secret/],
  [whole, 'AUTH_ALGORITHMS', ['RS265'], /did you mean RS256/],
  [whole, 'AUTH_ALGORITHMS', ['rs256', ','], /must be one or more of RS256/],
  [whole, 'AUTH_TOKEN_TYPE', ['jwt'], /must be one of any, at\+jwt/],
  [whole, 'AUTH_SCOPES', ['list=a,,read=b'], /^AUTH_SCOPES .* write list=a,read=b$/],
  [whole, 'AUTH_SCOPES', ['reads=x'], /did you mean read\?/],
  [whole, 'AUTH_SCOPES', ['items.read', '=x'], /must be a list such as/],
  [whole, 'AUTH_SCOPES', ['list=', 'list=a"b', 'list=a\\b', 'list=a b', 'list= a', 'list=é'], /the scope of list is missing or invalid/],
  [whole, 'AUTH_SCOPES', ['list=a,list=b'], /but has list twice/],
  [whole, 'BACKEND_IDENTITY_HEADER', [
    'host', 'Host', 'content-type', 'CONTENT-LENGTH', 'x-request-id', 'traceparent', 'tracestate', 'connection', 'keep-alive', 'proxy-authenticate',
    'proxy-authorization', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'Authorization', 'expect', 'accept-encoding',
  ], /a header that has no other use/],
  [whole, 'BACKEND_IDENTITY_HEADER', ['x user', 'x:user', 'é', 'x\r\nuser', ' x', '(x)', 'x'.repeat(101)], /must be the name of a header/],
  [{}, 'RATE_LIMIT', ['100'], /^RATE_LIMIT is "100", but must be requests\/window, for instance 100\/60s/],
  [{}, 'RATE_LIMIT_KEY', ['address'], /^RATE_LIMIT_KEY is set, but has no effect without RATE_LIMIT$/],
  [limited, 'RATE_LIMIT_KEY', ['cookie'], /^RATE_LIMIT_KEY is "cookie", but must be one of address, identity$/],
  [limited, 'RATE_LIMIT_KEY', ['identity'], /^RATE_LIMIT_KEY is identity, but tokens are off: AUTH_ISSUER is not set$/],
  [limited, 'RATE_LIMIT_REDIS_URL', [
    'redis://a,b:6379', 'redis://a;b:6379', 'http://user:SECRET@127.0.0.1', 'redis://user:SECRET@', 'redis://:SECRET@a/x', 'redis://:SECRET@a/0?tls=1',
    'redis://:SECRET@a#b', 'redis://:SECRET%zz@a', 'redis://SECRET%zz@a', 'SECRET', '/tmp/SECRET.sock', 'xredis://:SECRET@a',
    'redissx://:SECRET@a', 'redis://:SECRET@a/x/1', 'redis://:SECRET@a/1/x', 'redis://:SECRET@a/12345',
  ], redisRule],
]; // prettier-ignore
for (const [others, name, values, expected] of rows) {
  test(`${name}, ${values.map((value) => JSON.stringify(value.slice(0, 40))).join(' or ')}, is a problem`, () => {
    for (const value of values) {
      const problems = problemsOf({ ...others, [name]: value });
      assert.equal(problems.length, 1, problems.join('\n'));
      assert.match(problems[0] ?? '', expected);
      assert.doesNotMatch(problems[0] ?? '', /SECRET/);
    }
  });
}

test('an empty --auth-scope-claim is a problem', () => {
  const [problem = ''] = problemsOf(scope, { authScopeClaim: '' });
  assert.match(problem, /^--auth-scope-claim is "", but must be names of claims separated by commas, /);
});

test('the query of AUTH_JWKS_URL, and the user of RATE_LIMIT_REDIS_URL, are used and never shown', () => {
  const before = resolve(whole);
  const after = resolve({ ...whole, AUTH_JWKS_URL: 'https://login.example.com/keys?p=SECRET' });
  assert.equal(after.authJwksUrl, 'https://login.example.com/keys?p=SECRET');
  assert.equal(showValue('authJwksUrl', after), 'https://login.example.com/keys');
  assert.doesNotMatch(JSON.stringify(describeChanges(before, after)), /SECRET/);
  for (const [url, shown] of [
    ['', ''],
    ['redis://a', 'redis://a'],
    ['rediss://ada:SECRET@a:1/15', 'rediss://a:1/15'],
    ['redis://:p%25@[::1]/', 'redis://[::1]/'],
  ] as const) {
    const settings = resolve({ ...limited, RATE_LIMIT_REDIS_URL: url });
    assert.deepEqual([settings.rateLimitRedisUrl, showValue('rateLimitRedisUrl', settings)], [url, shown]);
  }
});
