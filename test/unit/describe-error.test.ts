// Reason codes of connection errors, and their texts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeError, reasonOfError } from '../../packages/core/backend/describe-error.ts';
import { shortTextOf } from '../../packages/core/reasons.ts';

function errorOf(code: string | undefined, message = `connect ${code ?? ''} 127.0.0.1:5104`): Error {
  return Object.assign(new Error(message), code === undefined ? {} : { code });
}

const errors = [
  ['a refused connection', errorOf('ECONNREFUSED'), 'connection refused'],
  ['an error with the same code at each address', new AggregateError([errorOf('ECONNREFUSED'), errorOf('ECONNREFUSED')], ''), 'connection refused'],
  ['an error with two codes', new AggregateError([errorOf('ECONNREFUSED'), errorOf('ENETUNREACH')], ''), undefined],
  ['an error with a known and an unknown code', new AggregateError([errorOf('ECONNREFUSED'), errorOf('EWHAT')], ''), undefined],
  ['an error without a code', errorOf(undefined, 'the answer ended early'), undefined],
  ['an error whose code is the name of a property of every object', errorOf('constructor'), undefined],
  [
    'a reset in the TLS handshake, in which Node names the host',
    Object.assign(errorOf('ECONNRESET'), { host: 'backend.example' }),
    undefined,
  ],
] as const; // prettier-ignore
for (const [title, error, short] of errors) {
  test(`the short text of ${title}: ${short ?? 'none'}`, () =>
    assert.equal(shortTextOf(reasonOfError(error), undefined), short));
}

const reasons = [
  ['ECONNRESET', 'connection-reset'], ['ENOTFOUND', 'unknown-host-name'], ['EMFILE', 'no-descriptor'],
  ['ERR_TLS_CERT_ALTNAME_INVALID', 'tls'], ['ERR_SSL_WRONG_VERSION_NUMBER', 'tls'], ['EPROTO', 'tls'],
  ['CERT_HAS_EXPIRED', 'certificate-expired'], ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'tls'],
  ['SELF_SIGNED_CERT_IN_CHAIN', 'tls'], ['HOSTNAME_MISMATCH', 'tls'], ['EWHAT', 'connection-failed'],
  ['certificate', 'connection-failed'],
] as const; // prettier-ignore
for (const [code, reason] of reasons) {
  test(`${code} has the reason ${reason}`, () => assert.equal(reasonOfError(errorOf(code)), reason));
}

test('if no file descriptor was free for one of several addresses, the reason is no-descriptor [D26]', () => {
  assert.equal(reasonOfError(new AggregateError([errorOf('ECONNREFUSED'), errorOf('ENFILE')], '')), 'no-descriptor');
});

test('an undefined local address in the message of Node is not shown, because the connection had no local address', () => {
  const error = errorOf('EMFILE', 'connect EMFILE 127.0.0.1:18002 - Local (undefined:undefined)');
  assert.equal(describeError(error), 'connect EMFILE 127.0.0.1:18002');
});
