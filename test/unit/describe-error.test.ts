// The words for errors of connections.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { shortenError } from '../../packages/core/backend/describe-error.ts';

function errorOf(code: string | undefined, message = `connect ${code ?? ''} 127.0.0.1:5104`): Error {
  return Object.assign(new Error(message), code === undefined ? {} : { code });
}

for (const [what, error, short] of [
  ['a refused connection', errorOf('ECONNREFUSED'), 'connection refused'],
  [
    'the same at each address',
    new AggregateError([errorOf('ECONNREFUSED'), errorOf('ECONNREFUSED')], ''),
    'connection refused',
  ],
  [
    'two reasons',
    new AggregateError([errorOf('ECONNREFUSED'), errorOf('ENETUNREACH')], ''),
    'connection refused; no route to the network',
  ],
  ['one of them unknown', new AggregateError([errorOf('ECONNREFUSED'), errorOf('EWHAT')], ''), undefined],
  ['no code', errorOf(undefined, 'the answer ended early'), undefined],
  ['a code that is a property of every object', errorOf('constructor'), undefined],
  [
    'a reset in the TLS handshake, of which more is known',
    errorOf('ECONNRESET', 'Client network socket disconnected before secure TLS connection was established'),
    undefined,
  ],
] as const) {
  test(`${what}: ${short ?? 'nothing shorter'}`, () => {
    assert.equal(shortenError(error), short);
  });
}
