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

test('each setting has its risks', () => {
  const open = { 'no-tokens': 'high', 'no-tls': 'medium' };
  const wide = { 'wide-proxies': 'high' };
  const scoped = { ...tokens, AUTH_SCOPES: 'delete=write' };
  const proxies = '10.0.0.0/8,fc00::/7,192.0.2.1';
  const unset = { ALLOWED_HOSTS: '', ITEM_ID_PARSING: '', RATE_LIMIT: '' };
  const rows: [environment: Environment, risks: Record<string, string>][] = [
    [unset, { 'any-host-name': 'low', 'leading-ids': 'low' }],
    ...['0.0.0.0', '::', '192.0.2.7', 'gateway.example'].map((HOST): [Environment, Record<string, string>] => [
      { ...unset, HOST },
      { ...open, 'no-rate-limit': 'medium', 'any-host-name': 'medium', 'leading-ids': 'low' },
    ]),
    [{ HOST: '127.0.0.1' }, {}],
    [{ HOST: '::1', ADMIN_HOST: 'LocalHost' }, {}],
    [{ HOST: '::', ...tokens }, { 'no-tls': 'high', 'no-scopes': 'low' }],
    [{ HOST: '::', ...scoped }, { 'no-tls': 'high' }],
    [{ HOST: '::', RATE_LIMIT: '' }, { ...open, 'no-rate-limit': 'medium' }],
    [{ HOST: '::', RATE_LIMIT: '', TRUSTED_PROXIES: proxies }, { 'no-tokens': 'medium', 'no-tls': 'low' }],
    [{ TRUSTED_PROXIES: '0.0.0.0/0' }, wide],
    [{ TRUSTED_PROXIES: '0.0.0.0/1,128.0.0.0/1' }, wide],
    [{ TRUSTED_PROXIES: '::ffff:0:0/96' }, wide],
    [{ TRUSTED_PROXIES: '2000::/3' }, wide],
    [{ HOST: '::', RATE_LIMIT: '', TRUSTED_PROXIES: '0.0.0.0/0' }, { ...open, ...wide, 'no-rate-limit': 'medium' }],
    [{ ADMIN_HOST: '0.0.0.0' }, { 'admin-open': 'medium' }],
    [{ CORS_ORIGINS: '*' }, { 'any-origin': 'medium' }],
    [{ DOCS: 'true' }, {}],
    [{ HOST: '::', DOCS: 'true', ...scoped }, { 'no-tls': 'high', 'docs-public': 'low' }],
    [{ BACKEND_URL: 'http://backend:5104' }, { 'plain-backend': 'low' }],
    [{ BACKEND_URL: 'https://backend' }, {}],
    [{ RATE_LIMIT_REDIS_URL: 'redis://localhost', RATE_LIMIT_FALLBACK: 'allow' }, { 'rate-limit-fails-open': 'low' }],
  ]; // prettier-ignore
  for (const [environment, risks] of rows) {
    assert.deepEqual(risksOf({ ...safe, ...environment }), risks, JSON.stringify(environment));
  }
  const { settings } = resolveSettings('check', {}, { BUFFERED_BYTES_MAX: '1099511627776' });
  assert.ok(findRisks(settings).some(({ code, severity }) => code === 'memory' && severity === 'medium'));
});

test('with TLS, tokens or client certificates, and a rate limit, an open port is no risk', { skip: noOpenssl }, () => {
  const { certFile, keyFile } = anyCertificate();
  const tls = { HOST: '::', ...safe, TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile };
  assert.deepEqual(risksOf({ ...tls, TLS_CLIENT_CA_FILE: certFile }), {});
  assert.deepEqual(risksOf({ ...tls, ...tokens, AUTH_SCOPES: 'list=read' }), {});
});

describe('check --audit', () => {
  const audit = (environment: Environment, ...flags: string[]) => runHere(['check', '--audit', ...flags], environment);

  test('lists settings, risk and advice, the most severe first, in at most 80 columns; it calls nothing', async () => {
    const { code, stdout, stderr } = await audit({ HOST: '::', BACKEND_URL: 'http://127.0.0.1:1' });
    assert.deepEqual([code, stderr], [1, '']);
    const first =
      'HIGH no-tokens: HOST=::, AUTH_ISSUER not set\n  Everybody who can reach this address can read, change and delete work items.\n  Do: Set AUTH_ISSUER and';
    assert.ok(stdout.startsWith(first), stdout);
    assert.match(stdout, /\n\naudit: 1 high, \d medium, \d low\n$/);
    for (const line of stdout.split('\n')) assert.ok(line.length <= 80, line);
    // A word that is too long is not cut.
    const name = Array.from({ length: 20 }, (_, index) => `a${index}.example`).join('-');
    const wide = await runHere(['check', '--audit'], { ADMIN_HOST: name }, undefined, 1);
    assert.ok(wide.stdout.includes(`\nADMIN_HOST=${name}\n`), wide.stdout);
  });

  test('the exit code is 1 from --severity on, by default medium, with --json too', async () => {
    for (const [flags, environment, expected] of [
      [[], {}, 0],
      [['--severity', 'low'], {}, 1],
      [[], { ADMIN_HOST: '::' }, 1],
      [['--severity', 'high'], { ADMIN_HOST: '::' }, 0],
      [['--severity=high'], { TRUSTED_PROXIES: '0.0.0.0/0' }, 1],
    ] as const) {
      const limits = { BUFFERED_BYTES_MAX: '1000000', CONNECTIONS_MAX: '10' };
      for (const more of [[], ['--json']]) {
        const { code, stdout } = await audit({ ...limits, ...environment }, ...flags, ...more);
        assert.equal(code, expected, stdout);
      }
    }
  });

  test('--json prints one document; no format shows a secret', async () => {
    const redis = { RATE_LIMIT_REDIS_URL: 'redis://u:hunter2@localhost', RATE_LIMIT_FALLBACK: 'allow' };
    const environment = { ADMIN_HOST: '::', RATE_LIMIT: '1/1s', ...redis };
    const [text, { stdout }] = [await audit(environment), await audit(environment, '--json')];
    assert.doesNotMatch(text.output + stdout, /hunter2/);
    assert.match(stdout, /^\{.*\}\n$/);
    assert.partialDeepStrictEqual(JSON.parse(stdout), {
      ...{ schema: 'work-item-gateway/audit/1', exitCode: 1 },
      risks: [
        { code: 'admin-open', severity: 'medium', settings: { ADMIN_HOST: '::' } },
        { code: 'any-host-name', settings: { ALLOWED_HOSTS: null } },
      ],
    });
  });
});
