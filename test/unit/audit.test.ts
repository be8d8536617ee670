// `check --audit`: each risk has its own settings, a severity and advice. Nothing is called.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { findRisks } from '../../packages/command/settings/audit.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { anyCertificate, noOpenssl } from '../helpers/certificates.ts';
import { runHere } from '../helpers/run-cli.ts';

type Environment = Record<string, string>;

// Depends on the machine.
const ofMachine = ['memory', 'no-memory-limit'];

/** The codes of the risks with their severities. */
function risksOf(environment: Environment): Record<string, string> {
  const risks = findRisks(resolveSettings('check', {}, environment).settings);
  return Object.fromEntries(
    risks.filter(({ code }) => !ofMachine.includes(code)).map((each) => [each.code, each.severity]),
  );
}

const tokens = {
  AUTH_ISSUER: 'https://login.example',
  AUTH_AUDIENCE: 'api',
  AUTH_JWKS_URL: 'https://login.example/keys',
};
const safe = { ALLOWED_HOSTS: 'gateway.example', ITEM_ID_PARSING: 'whole', RATE_LIMIT: '100/60s' };

describe('the risks of settings', () => {
  test('the default settings have only low risks', () => {
    assert.deepEqual(risksOf({}), { 'any-host-name': 'low', 'leading-ids': 'low' });
  });

  for (const HOST of ['0.0.0.0', '::', '192.0.2.7', 'gateway.example']) {
    test(`HOST=${HOST} without further settings`, () => {
      assert.deepEqual(risksOf({ HOST }), {
        'no-tokens': 'high',
        'no-tls': 'medium',
        'no-rate-limit': 'medium',
        'any-host-name': 'medium',
        'leading-ids': 'low',
      });
    });
  }

  const rows: [environment: Environment, risks: Record<string, string>][] = [
    [{ HOST: '127.0.0.1' }, {}],
    [{ HOST: '::1', ADMIN_HOST: 'LocalHost' }, {}],
    [
      { HOST: '::', ...tokens },
      { 'no-tls': 'high', 'no-scopes': 'low' },
    ],
    [{ HOST: '::', ...tokens, AUTH_SCOPES: 'delete=write' }, { 'no-tls': 'high' }],
    [
      { HOST: '::', RATE_LIMIT: '' },
      { 'no-tokens': 'high', 'no-tls': 'medium', 'no-rate-limit': 'medium' },
    ],
    [
      { HOST: '::', RATE_LIMIT: '', TRUSTED_PROXIES: '10.0.0.0/8,fc00::/7,192.0.2.1' },
      { 'no-tokens': 'medium', 'no-tls': 'low' },
    ],
    [{ TRUSTED_PROXIES: '0.0.0.0/0' }, { 'wide-proxies': 'high' }],
    [{ TRUSTED_PROXIES: '0.0.0.0/1,128.0.0.0/1' }, { 'wide-proxies': 'high' }],
    [{ TRUSTED_PROXIES: '::ffff:0:0/96' }, { 'wide-proxies': 'high' }],
    [{ TRUSTED_PROXIES: '2000::/3' }, { 'wide-proxies': 'high' }],
    [
      { HOST: '::', RATE_LIMIT: '', TRUSTED_PROXIES: '0.0.0.0/0' },
      { 'no-tokens': 'high', 'wide-proxies': 'high', 'no-tls': 'medium', 'no-rate-limit': 'medium' },
    ],
    [{ ADMIN_HOST: '0.0.0.0' }, { 'admin-open': 'medium' }],
    [{ CORS_ORIGINS: '*' }, { 'any-origin': 'medium' }],
    [{ DOCS: 'true' }, {}],
    [
      { HOST: '::', DOCS: 'true', ...tokens, AUTH_SCOPES: 'list=read' },
      { 'no-tls': 'high', 'docs-public': 'low' },
    ],
    [{ BACKEND_URL: 'http://backend:5104' }, { 'plain-backend': 'low' }],
    [{ BACKEND_URL: 'https://backend' }, {}],
    [{ RATE_LIMIT_REDIS_URL: 'redis://localhost', RATE_LIMIT_FALLBACK: 'allow' }, { 'rate-limit-fails-open': 'low' }],
    [{ ITEM_ID_PARSING: 'leading' }, { 'leading-ids': 'low' }],
  ];
  for (const [environment, risks] of rows) {
    test(`${JSON.stringify(environment)}: ${JSON.stringify(risks)}`, () => {
      assert.deepEqual(risksOf({ ...safe, ...environment }), risks);
    });
  }

  test(
    'with TLS, tokens or client certificates, and a rate limit, an open port is no risk',
    { skip: noOpenssl },
    () => {
      const { certFile, keyFile } = anyCertificate();
      const tls = { HOST: '::', ...safe, TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile };
      assert.deepEqual(risksOf({ ...tls, TLS_CLIENT_CA_FILE: certFile }), {});
      assert.deepEqual(risksOf({ ...tls, ...tokens, AUTH_SCOPES: 'list=read' }), {});
    },
  );

  test('limits that need more memory than the machine has are a risk', () => {
    const { settings } = resolveSettings('check', {}, { BUFFERED_BYTES_MAX: '1099511627776' });
    assert.ok(findRisks(settings).some(({ code, severity }) => code === 'memory' && severity === 'medium'));
  });
});

describe('check --audit', () => {
  test('lists settings, risk and advice, the most severe first, in at most 80 columns; it calls nothing', async () => {
    const environment = { HOST: '::', BACKEND_URL: 'http://127.0.0.1:1' };
    const { code, stdout, stderr } = await runHere(['check', '--audit'], environment);
    assert.equal(code, 1);
    assert.equal(stderr, '');
    assert.ok(
      stdout.startsWith(
        'HIGH no-tokens: HOST=::, AUTH_ISSUER not set\n  Everybody who can reach this address can read, change and delete work items.\n  Do: Set AUTH_ISSUER and',
      ),
      stdout,
    );
    assert.match(stdout, /\n\naudit: 1 high, \d medium, \d low\n$/);
    for (const line of stdout.split('\n')) assert.ok(line.length <= 80, line);
    const names = Array.from({ length: 20 }, (_, index) => `a${index}.example`).join();
    const wide = await runHere(['check', '--audit'], { ADMIN_HOST: names.replaceAll(',', '-') }, undefined, 1);
    assert.ok(wide.stdout.includes(`\nADMIN_HOST=${names.replaceAll(',', '-')}\n`), wide.stdout);
  });

  for (const [flags, environment, expected] of [
    [[], {}, 0],
    [['--severity', 'low'], {}, 1],
    [[], { ADMIN_HOST: '::' }, 1],
    [['--severity', 'high'], { ADMIN_HOST: '::' }, 0],
    [['--severity=high'], { TRUSTED_PROXIES: '0.0.0.0/0' }, 1],
  ] as const) {
    test(`${flags.join(' ')} ${JSON.stringify(environment)}: exit code ${expected}, with --json too`, async () => {
      const limits = { BUFFERED_BYTES_MAX: '1000000', CONNECTIONS_MAX: '10' };
      for (const more of [[], ['--json']]) {
        const { code, stdout } = await runHere(['check', '--audit', ...flags, ...more], { ...limits, ...environment });
        assert.equal(code, expected, stdout);
      }
    });
  }

  test('--json prints one document', async () => {
    const { stdout } = await runHere(['check', '--audit', '--json'], { ADMIN_HOST: '::' });
    assert.match(stdout, /^\{.*\}\n$/);
    const { schema, exitCode, risks } = JSON.parse(stdout) as { schema: string; exitCode: number; risks: object[] };
    assert.deepEqual([schema, exitCode], ['work-item-gateway/audit/1', 1]);
    assert.partialDeepStrictEqual(risks[0], { code: 'admin-open', severity: 'medium', settings: { ADMIN_HOST: '::' } });
    assert.partialDeepStrictEqual(risks[1], { code: 'any-host-name', settings: { ALLOWED_HOSTS: null } });
  });

  test('the value of a setting is shown without secrets', async () => {
    const redis = {
      RATE_LIMIT_REDIS_URL: 'redis://u:hunter2@localhost',
      RATE_LIMIT: '1/1s',
      RATE_LIMIT_FALLBACK: 'allow',
    };
    for (const flags of [[], ['--json']]) {
      const { output } = await runHere(['check', '--audit', ...flags], redis);
      assert.doesNotMatch(output, /hunter2/);
    }
  });
});
