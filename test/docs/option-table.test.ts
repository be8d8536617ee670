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
const rows = [...section.matchAll(/^\| (`.*?) +\| ([\w, ]+?) +\|$/gm)].flatMap(([, cell = '', where = '']) =>
  [...cell.matchAll(/`(\w+)`/g)].map(([, name = '']) => ({ name, where: where.split(', ') })),
);

const handlers: Readonly<Record<string, (options: never) => unknown>> = {
  server: createGatewayServer,
  Fastify: (options) => Fastify().register(workItemGateway, options).ready(),
  Node: createNodeHandler,
  fetch: createFetchHandler,
};

for (const [host, handler] of Object.entries(handlers)) {
  test(`${host}: the table has its options, each once`, async () => {
    const listed = rows.filter(({ where }) => where.includes('all') || where.includes(host)).map(({ name }) => name);
    assert.deepEqual(listed, [...new Set(listed)]);
    const known: string[] = [];
    for (const { name } of rows) {
      // The value is always invalid, so the error says whether the option is known.
      const made = async () => await handler({ backendUrl: 'http://localhost', [name]: Symbol('invalid') } as never);
      await assert.rejects(made, (error) => {
        assert.ok(error instanceof TypeError, String(error));
        if (!error.message.includes(`${name} is unknown`)) known.push(name);
        return true;
      });
    }
    assert.deepEqual(known, listed);
  });
}

test('the table has every option that several handlers share', () => {
  const shared = { ...gatewayRows, ...guardRows, ...limitRows, ...corsRows, ...handlerRows, ...observerRows };
  const missing = Object.keys(shared).filter((each) => !rows.some(({ name }) => name === each));
  assert.deepEqual(missing, []);
});
