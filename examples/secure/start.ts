// A demo of the gateway with TLS, tokens, CORS and a rate limit: `npm run secure`. Creates temporary files: a CA, its
// certificate for this machine, and the key and tokens of an issuer. Runs `npm start` with these files and prints
// commands to try. Removes these files at the end.

import { execFileSync, spawn } from 'node:child_process';
import { generateKeyPairSync, sign } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

if (process.argv.length > 2) {
  process.stderr.write(
    'error: npm run secure takes no arguments: set PORT or other settings as environment variables\n',
  );
  process.exit(1);
}
const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-secure-'));
const file = (name: string): string => join(folder, name);
const issuer = 'https://issuer.example';
const port = process.env['PORT'] ?? '3000';
// HTTP/2 needs Node 26 [D39].
const hasHttp2 = Number.parseInt(process.versions.node, 10) >= 26;

function openssl(args: string): void {
  try {
    execFileSync('openssl', args.split(' '), { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] });
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    process.stderr.write(isMissing ? 'error: this needs `openssl` to make certificates\n' : `${String(error)}\n`);
    rmSync(folder, { recursive: true });
    process.exit(1);
  }
}

// A CA, and a certificate from it for this machine.
const ecKey = '-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes';
openssl(`req -x509 ${ecKey} -days 90 -subj /CN=throw-away-authority -keyout authority.key -out authority.pem`);
openssl(`req ${ecKey} -subj /CN=localhost -keyout server.key -out server.csr`);
writeFileSync(file('names'), 'subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1\n');
openssl(
  'x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 90 -extfile names -out server.pem',
);

// An issuer's key. The issuer's two tokens follow below.
const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const jwk = { ...publicKey.export({ format: 'jwk' }), kid: 'one', alg: 'ES256', use: 'sig' };
writeFileSync(file('keys.json'), JSON.stringify({ keys: [jwk] }));
const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');

function issueToken(name: string, scope: string): void {
  const now = Math.floor(Date.now() / 1_000);
  const claims = { iss: issuer, aud: 'work-items', sub: name, scope, iat: now, exp: now + 3_600 };
  const text = `${encode({ alg: 'ES256', kid: 'one', typ: 'at+jwt' })}.${encode(claims)}`;
  const signature = sign('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' });
  const token = `${text}.${signature.toString('base64url')}`;
  writeFileSync(file(name), `authorization: Bearer ${token}\n`);
}

issueToken('reader', 'items.read');
issueToken('writer', 'items.read items.write');

const gateway = spawn(process.execPath, [join(import.meta.dirname, '../../scripts/start.cjs'), 'dev'], {
  env: {
    ...process.env,
    PORT: port,
    TLS_CERT_FILE: file('server.pem'),
    TLS_KEY_FILE: file('server.key'),
    HTTP2: String(hasHttp2),
    AUTH_ISSUER: issuer,
    AUTH_AUDIENCE: 'work-items',
    AUTH_ALGORITHMS: 'ES256',
    AUTH_JWKS_FILE: file('keys.json'),
    AUTH_SCOPES: 'list=items.read,read=items.read,create=items.write,update=items.write,delete=items.write',
    CORS_ORIGINS: 'https://app.example',
    RATE_LIMIT: '20/10s',
    RATE_LIMIT_KEY: 'identity',
  },
  stdio: ['ignore', 'pipe', 'inherit'],
});

const url = `https://localhost:${port}/api/work-items`;
const curl = `curl -i --cacert ${file('authority.pem')}`;
const advice = `
On: TLS${hasHttp2 ? ', HTTP/2' : ''}, tokens with scopes, CORS, and at most 20 calls in 10 seconds for each subject. Try:

  ${curl} ${url}
      no token: 401
  ${curl} -H @${file('reader')} ${url}
      a token that may read: 200
  ${curl} -H @${file('reader')} -d '{"title":"Paint the fence"}' ${url}
      this token may not write: 403; the token in ${file('writer')} may: 201

`;

let hasAdvised = false;
gateway.stdout.on('data', (data: Buffer) => {
  process.stdout.write(data);
  if (!hasAdvised && data.includes('ready')) {
    hasAdvised = true;
    process.stdout.write(advice);
  }
});
// Ctrl-C also reaches the gateway, which drains and exits. This process ignores Ctrl-C and ends after the gateway.
process.on('SIGINT', () => undefined);
for (const signal of ['SIGTERM', 'SIGHUP'] as const) process.on(signal, () => gateway.kill('SIGTERM'));
gateway.on('exit', (code) => {
  rmSync(folder, { recursive: true });
  process.exitCode = code ?? 1;
});
