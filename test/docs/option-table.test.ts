// The table of options in docs/hosts.md: each handler accepts the options that the table has for it, and no others.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import Fastify from 'fastify';

import { createFetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { createGatewayServer, workItemGateway } from '../../packages/core/hosts/index.ts';
import { createNodeHandler } from '../../packages/core/hosts/node/node.ts';
import { corsRows } from '../../packages/core/options/cors-options.ts';
import { handlerRows } from '../../packages/core/options/host-options.ts';
import { limitRows } from '../../packages/core/options/limits.ts';
import { observerRows } from '../../packages/core/options/observer-options.ts';
import { gatewayRows } from '../../packages/core/options/gateway-options.ts';
import { guardRows } from '../../packages/core/options/guard-options.ts';

const text = readFileSync(join(import.meta.dirname, '../../docs/hosts.md'), 'utf8');
const [, section = ''] = /^## Options\n(.*?)^## /ms.exec(text) ?? [];
const rows = [...section.matchAll(/^\| (`.*?) +\| ([\w, ]+?) +\|$/gm)].map(([, cell = '', where = '']) => ({
  names: [...cell.matchAll(/`(\w+)`/g)].map(([, name = '']) => name),
  where: where.split(', '),
}));

const handlers: Readonly<Record<string, (options: never) => unknown>> = {
  server: createGatewayServer,
  Fastify: async (options) => {
    const app = Fastify();
    await app.register(workItemGateway, options).ready();
    await app.close();
  },
  Node: createNodeHandler,
  fetch: createFetchHandler,
};

/** True if `handler` knows the option, whose value is always invalid. */
async function accepts(handler: (options: never) => unknown, name: string): Promise<boolean> {
  try {
    await handler({ backendUrl: 'http://localhost:5104', [name]: Symbol('invalid') } as never);
    assert.fail(`${name} has no check`);
  } catch (error) {
    assert.ok(error instanceof TypeError, String(error));
    return !error.message.includes(`${name} is unknown`);
  }
}

for (const [host, handler] of Object.entries(handlers)) {
  test(`${host}: the table has its options, each once`, async () => {
    const listed = rows
      .filter(({ where }) => where.includes('all') || where.includes(host))
      .flatMap((row) => row.names);
    assert.deepEqual(listed, [...new Set(listed)]);
    const known: string[] = [];
    for (const name of rows.flatMap((row) => row.names)) if (await accepts(handler, name)) known.push(name);
    assert.deepEqual(known, listed);
  });
}

test('the table has every option that several handlers share', () => {
  const shared = Object.keys({
    ...gatewayRows,
    ...guardRows,
    ...limitRows,
    ...corsRows,
    ...handlerRows,
    ...observerRows,
  });
  const listed = new Set(rows.flatMap(({ names }) => names));
  assert.deepEqual(
    shared.filter((name) => !listed.has(name)),
    [],
  );
});
