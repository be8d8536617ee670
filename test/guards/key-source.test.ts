// Sources of the issuer's keys, and invalid key sets [D44].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { createKeySource, keySetBytesMax, type KeySource } from '../../packages/core/guards/tokens/key-set.ts';
import { readSigningKeys } from '../../packages/core/guards/tokens/signing-keys.ts';
import { createPair, KeyServer, keySetOf, sending } from '../helpers/issuer.ts';
import { useFolder } from '../helpers/suites.ts';

const pair = createPair('one', 'ES256');
const signal = new AbortController().signal;
const folder = useFolder();
const createUrlSource = (authJwksUrl: string) => createKeySource({ authJwksUrl, authJwksFile: '' });

/** Calls `use` with a URL source and with a file source of the same bytes. */
async function withSources(bytes: string | Buffer, use: (source: KeySource) => Promise<void>): Promise<void> {
  await using server = await KeyServer.start('');
  server.respond = (response) => response.end(bytes);
  await use(createUrlSource(server.url));
  const file = join(folder, 'keys.json');
  writeFileSync(file, bytes);
  await use(createKeySource({ authJwksUrl: '', authJwksFile: file }));
}

describe('a source of keys', () => {
  test('returns the text of the key set, which may have up to 1 MiB', async () => {
    await withSources(keySetOf(pair), async (source) => {
      assert.equal(await source(signal), keySetOf(pair));
    });
    const longest = ' '.repeat(keySetBytesMax);
    assert.equal(keySetBytesMax, 2 ** 20);
    await withSources(longest, async (source) => {
      assert.equal(await source(signal), longest);
    });
    await withSources(`${longest} `, async (source) => {
      await assert.rejects(source(signal), new Error('the key set is larger than 1048576 bytes'));
    });
  });

  test('requires UTF-8', async () => {
    await withSources(Buffer.from([0x22, 0xff, 0x22]), async (source) => {
      await assert.rejects(source(signal), new Error('the key set is not UTF-8'));
    });
  });

  test('requests a key set without compression and follows no redirect', async () => {
    await using server = await KeyServer.start('');
    const requested: unknown[] = [];
    server.respond = (response: ServerResponse) => {
      const { accept, 'accept-encoding': encoding, 'user-agent': agent } = response.req.headers;
      requested.push([accept, encoding, agent]);
      sending('', 302, { location: server.url })(response);
    };
    const source = createUrlSource(server.url);
    await assert.rejects(source(signal), new Error('the issuer answered with status 302'));
    assert.deepEqual(requested, [['application/jwk-set+json, application/json', 'identity', 'work-item-gateway']]);
  });

  test('names a compressed answer as such', async () => {
    await using server = await KeyServer.start('');
    for (const [coding, bytes] of [
      ['gzip', gzipSync(keySetOf(pair))],
      ['br', brotliCompressSync(keySetOf(pair))],
      ['identity', keySetOf(pair)],
    ] as const) {
      server.respond = (response) => response.writeHead(200, { 'content-encoding': coding }).end(bytes);
      const text = createUrlSource(server.url)(signal);
      if (coding === 'identity') assert.equal(await text, keySetOf(pair));
      else await assert.rejects(text, /^Error: the issuer compressed the key set, /);
    }
  });

  test('closes its connection, even if the answer is endless', async () => {
    await using server = await KeyServer.start('');
    const { promise: closed, resolve } = Promise.withResolvers<unknown>();
    server.respond = (response: ServerResponse) => {
      response.writeHead(500).write('more to come');
      resolve(once(response, 'close'));
    };
    await assert.rejects(createUrlSource(server.url)(signal), /status 500/);
    await closed;
  });
});

describe('a key set', () => {
  const read = async (text: string) => (await readSigningKeys(text, ['ES256'])).length;

  test('has one error if it is not JSON, and another error if it has no array of keys', async () => {
    await assert.rejects(read('{'), new Error('the key set is not JSON'));
    for (const text of ['[]', 'null', '"keys"', '{}', '{"keys":{}}', '{"keys":null}']) {
      await assert.rejects(
        read(text),
        new Error('the key set is JSON, but not a JSON Web Key Set: it has no array "keys"'),
        text,
      );
    }
    for (const text of ['{"keys":[]}', '{"keys":[null,1,"x",[]]}']) assert.equal(await read(text), 0);
  });

  test('is read up to its 200th key', async () => {
    const other = { kty: 'RSA' };
    const setOf = (count: number) =>
      JSON.stringify({ keys: [...Array.from({ length: count }, () => other), pair.jwk] });
    assert.equal(await read(setOf(199)), 1);
    assert.equal(await read(setOf(200)), 0);
  });
});
