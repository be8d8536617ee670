// The command `check` advises to renew a certificate in its last 14 days, as the alert `CertificateExpiresSoon` does.

import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { readCertificateSet } from '../../packages/command/certificates/certificates.ts';
import { checkCertificates } from '../../packages/command/commands/check-certificates.ts';

const fileOf = (name: string): string => fileURLToPath(new URL(`../vectors/tls/${name}`, import.meta.url));
const files = {
  cert: { variable: 'TLS_CERT_FILE', path: fileOf('backend-certificate.pem') },
  key: { variable: 'TLS_KEY_FILE', path: fileOf('backend-key.pem') },
  ca: { variable: 'TLS_CLIENT_CA_FILE', path: '' },
};
const end = Date.parse(new X509Certificate(readFileSync(files.cert.path)).validTo);
const day = 86_400_000;

for (const [when, now, left, isRenewal, problems] of [
  ['14 days before its end', end - 14 * day, '14 days left', false, 0],
  ['1 ms less than 14 days before its end', end - 14 * day + 1, '13 days left', true, 0],
  ['at its end', end, '0 days left', true, 0],
  ['after its end', end + 1, 'expired on 2126-10-28', false, 1],
] as const) {
  test(`a certificate ${when}: check shows "${left}" ${isRenewal ? 'and' : 'but no'} advice to renew it`, () => {
    const check = checkCertificates('clients', files, now);
    assert.match(check.lines[1] ?? '', new RegExp(`${left}$`));
    assert.equal(check.lines.includes('  renew this certificate soon'), isRenewal);
    assert.equal(check.problems.length, problems, check.problems.join());
  });
}

for (const [date, tag] of [
  ['start', '\x17\x0d'],
  ['end', '\x18\x0f'],
] as const) {
  test(`if the ${date} date of a certificate is in month 13, the reported problem shows the name of its file`, () => {
    const der = new X509Certificate(readFileSync(files.cert.path)).raw;
    const yearDigits = date === 'start' ? 2 : 4;
    der.write('13', der.indexOf(tag, 0, 'latin1') + tag.length + yearDigits);
    const cert = `-----BEGIN CERTIFICATE-----\n${der.toString('base64')}\n-----END CERTIFICATE-----\n`;
    const set = readCertificateSet(files, { cert, key: readFileSync(files.key.path, 'utf8'), ca: undefined });
    assert.ok(Array.isArray(set));
    assert.match(set.join(), /^TLS_CERT_FILE .*: certificate number 1 has a date that cannot be read$/);
  });
}
