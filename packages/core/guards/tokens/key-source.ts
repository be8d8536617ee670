// Reads the issuer's keys from an address or a file, up to a size limit [D44]. Uses Node's HTTP client, because `fetch`
// needs 16 MB of memory. Follows no redirects, so that keys come only from the address that was set.

import { createReadStream } from 'node:fs';
import type { IncomingMessage } from 'node:http';

import { describeError, nodeAuthorities, type Peer } from '../../backend/describe-error.ts';
import type { GuardSettings } from '../options/guard-options.ts';

const { request: requestHttp } = process.getBuiltinModule('node:http');
const { request: requestHttps } = process.getBuiltinModule('node:https');

/** Reads the text of a JSON Web Key Set. Rejects soon after `signal` is aborted. */
export type KeySource = (signal: AbortSignal) => Promise<string>;

/** Largest key set, in bytes. A typical one has a few keys of a kilobyte each. */
export const keySetBytesMax = 1_048_576;

/** Returns the source that the settings name. TLS is verified with the authorities that Node trusts. */
export function createKeySource({
  authJwksUrl,
  authJwksFile,
}: Pick<GuardSettings, 'authJwksUrl' | 'authJwksFile'>): KeySource {
  return async (signal) => {
    if (authJwksUrl === '') return await readText(createReadStream(authJwksFile));
    const answer = await get(new URL(authJwksUrl), signal);
    try {
      if (answer.statusCode !== 200) throw new Error(`the issuer answered with status ${answer.statusCode ?? 0}`);
      return await readText(answer);
    } finally {
      answer.destroy();
    }
  };
}

async function get(url: URL, signal: AbortSignal): Promise<IncomingMessage> {
  return await new Promise((resolve, reject) => {
    const request = url.protocol === 'https:' ? requestHttps : requestHttp;
    request(url, {
      // The connection is not kept open, since the next fetch is minutes away.
      agent: false,
      rejectUnauthorized: true,
      headers: { accept: 'application/jwk-set+json, application/json', 'user-agent': 'work-item-gateway' },
      signal,
    })
      .on('response', resolve)
      .on('error', reject)
      .end();
  });
}

async function readText(stream: AsyncIterable<unknown>): Promise<string> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of stream as AsyncIterable<Buffer>) {
    pieces.push(piece);
    length += piece.length;
    if (length > keySetBytesMax) throw new Error(`the key set is larger than ${keySetBytesMax} bytes`);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(pieces));
  } catch {
    throw new Error('the key set is not UTF-8');
  }
}

const issuer: Peer = { name: 'the issuer', plainScheme: 'http:', authorities: nodeAuthorities };

/** Describes in one line why the keys could not be read. */
export function describeFetchError(error: unknown): string {
  // If several addresses failed, only the error of each address is informative.
  const errors: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
  return errors.map((each) => describeError(each, issuer)).join('; ');
}
