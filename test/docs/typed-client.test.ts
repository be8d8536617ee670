// The TypeScript in the documents has no type errors, and the typed client of docs/hosts.md works, with exact ids.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { globSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { startCommand } from '../helpers/command.ts';
import { codeBlock, codeBlocks, replaceEach } from '../helpers/documents.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
const gateway = await startCommand({ BACKEND_URL: backend.url });
const root = resolve(import.meta.dirname, '../..');
// The folder is within the repository, so that the code can import packages.
const folder = join(root, `test-output/typed-client-${process.pid}`);

const write = (name: string, text: string): void => writeFileSync(join(folder, name), text);
const run = (...args: readonly string[]) => promisify(execFile)(process.execPath, args, { cwd: folder });
const load = async (name: string): Promise<unknown> => await import(pathToFileURL(join(folder, name)).href);

before(async () => {
  mkdirSync(folder, { recursive: true });
  write('openapi.json', (await runHere(['openapi'])).stdout);
  const url = { 'http://localhost:3000': `http://127.0.0.1:${gateway.port}` };
  const block = replaceEach(codeBlock('docs/hosts.md', 'useBigInt'), url);
  // A second client keeps every digit of the ids in replies.
  const reviver = "fetch: { jsonReviver: { path: './exact.ts', name: 'exact', extension: '.ts' } }";
  write('orval.config.js', block);
  write(
    'exact.config.js',
    replaceEach(block, { 'work-items.ts': 'exact-items.ts', 'useBigInt: true': `useBigInt: true, ${reviver}` }),
  );
  write(
    'exact.ts',
    "export const exact = (_key: string, value: unknown, { source = '' } = {}): unknown => /^\\d{16,}$/.test(source) ? BigInt(source) : value;\n",
  );
  const orval = join(root, 'node_modules/orval/dist/bin/orval.mjs');
  await run(orval);
  await run(orval, '--config', 'exact.config.js');
});

after(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true });
});

/** Code around a block that is only a part of a file. Types of packages that are not installed here are declared. */
interface Context {
  readonly before?: string;
  readonly after?: string;
}

const rows = '../../packages/core/options';

// For each TypeScript block of the documents, a text that identifies it.
const contexts: Readonly<Record<string, Readonly<Record<string, Context>>>> = {
  'docs/hosts.md': { NestFactory: {}, readWorkItem: {} },
  'CONTRIBUTING.md': {
    "['1,5', '1']": { before: 'export const accepted: [segment: string, id: string][] = [', after: '];' },
    'rateLimitFallback: {': {
      before: `import { choice } from '${rows}/kinds.ts';\nimport type { OptionRow } from '${rows}/rows.ts';\nexport const rows = {`,
      after: '} satisfies Record<string, OptionRow>;',
    },
  },
};

// Nest is not installed here; test/examples/nestjs.test.ts compiles the same code with Nest's own types.
const nest = `
declare module '@nestjs/core' {
  export const NestFactory: {
    create(module: unknown): Promise<{
      use(handler: (request: import('node:http').IncomingMessage, response: import('node:http').ServerResponse, next: () => void) => void): void;
      listen(port: number): Promise<unknown>;
    }>;
  };
}
`;

// A client with the generated types. Each line after `@ts-expect-error` must fail to compile.
const client = `
import { createWorkItem, deleteWorkItem, getCollectionMethods, listWorkItems, readWorkItem, updateWorkItem } from './work-items.ts';

export async function useGateway(id: bigint) {
  const list = await listWorkItems();
  const created = await createWorkItem({ title: 'Paint the fence' });
  const read = await readWorkItem(id, { headers: { 'x-request-id': 'typed-client' } });
  const updated = await updateWorkItem(id, ['any', 'JSON']);
  const success: true | undefined = updated.status === 200 ? updated.data.success : undefined;
  const deleted = await deleteWorkItem(id);
  const failed = await readWorkItem(404n);
  const message: string | undefined = failed.status === 404 ? failed.data.error : undefined;
  const { headers } = await getCollectionMethods();
  return {
    list: list.data,
    created: [created.status, created.data],
    read: [read.headers.get('x-request-id'), read.data],
    success,
    deleted: deleted.data,
    failed: [failed.status, message],
    allow: headers.get('allow'),
  };
}

export async function misuse() {
  // @ts-expect-error: a number cannot hold every id
  await readWorkItem(5);
  // @ts-expect-error: an item has an id
  await readWorkItem();
  // @ts-expect-error: a create needs a body
  await createWorkItem();
  const updated = await updateWorkItem(5n, {});
  // @ts-expect-error: an update does not return the work item
  return updated.data.title as string;
}
`;

const typeScript = /^(?:tsx?|typescript)\b/;

test('each TypeScript block of the documents is checked', () => {
  const documents = globSync(['*.md', '{docs,packages,examples,bench,test}/**/*.md'], {
    cwd: root,
    exclude: ['**/node_modules/**'],
  });
  const withBlocks = documents.filter((document) => codeBlocks(document, typeScript).length > 0);
  assert.deepEqual(withBlocks.toSorted(), Object.keys(contexts).toSorted());
  for (const [document, parts] of Object.entries(contexts)) {
    assert.equal(codeBlocks(document, typeScript).length, Object.keys(parts).length, document);
  }
});

for (const version of ['typescript', 'typescript-7']) {
  test(`the TypeScript in the documents and the generated client have no errors: ${version}`, async () => {
    const blocks = Object.entries(contexts).flatMap(([document, parts]) =>
      Object.entries(parts).map(
        ([part, { before: start = '', after: end = '' }]) => `${start}\n${codeBlock(document, part)}${end}\n`,
      ),
    );
    for (const [index, block] of blocks.entries()) write(`block-${index}.ts`, block);
    write('client.ts', client);
    write('nest.d.ts', nest);
    write('app.module.ts', 'export class AppModule {}\n');
    const lib = ['es2024', 'ESNext.Disposable', 'DOM', 'DOM.Iterable'];
    const compilerOptions = { lib, noUnusedLocals: false };
    write('tsconfig.json', JSON.stringify({ extends: '../../tsconfig.json', compilerOptions, include: ['*.ts'] }));
    const tsc = join(root, 'node_modules', version, 'bin/tsc');
    const compiled = await run(tsc, '-p', folder).catch((error: unknown) => error as { stdout: string });
    assert.equal(compiled.stdout, '');
  });
}

test('the typed client calls every operation; an id beyond 2^53 is sent with every digit', async () => {
  write('client.ts', client);
  const { useGateway } = (await load('client.ts')) as { useGateway: (id: bigint) => Promise<unknown> };
  const item = answer('{"id":5}');
  backend.answersOnce(answer('[{"id":5}]'), item, item, answer(''), answer(''), answer('', { status: 404 }));
  assert.deepEqual(await useGateway(9_007_199_254_740_993n), {
    list: [{ id: 5 }],
    created: [201, { id: 5 }],
    read: ['typed-client', { id: 5 }],
    success: true,
    deleted: { success: true },
    failed: [404, 'Work item not found'],
    allow: 'GET, HEAD, POST, OPTIONS',
  });
  assert.deepEqual(
    backend.requests.map(({ method, target, body }) => `${method} ${target} ${body.toString()}`.trim()),
    [
      'GET /api/WorkItem',
      'POST /api/WorkItem {"title":"Paint the fence"}',
      'GET /api/WorkItem/9007199254740993',
      'PUT /api/WorkItem/9007199254740993 ["any","JSON"]',
      'DELETE /api/WorkItem/9007199254740993',
      'GET /api/WorkItem/404',
    ],
  );
});

test('with `jsonReviver` and `context.source`, an id beyond 2^53 in a reply keeps every digit', async () => {
  const { readWorkItem } = (await load('exact-items.ts')) as {
    readWorkItem: (id: bigint) => Promise<{ data: unknown }>;
  };
  backend.answersOnce(answer('{"id":9007199254740993}'));
  assert.deepEqual((await readWorkItem(1n)).data, { id: 9_007_199_254_740_993n });
});

test('the example of docs/hosts.md prints an item, or the error with its request id', async () => {
  write('recipe.ts', codeBlock('docs/hosts.md', 'import { readWorkItem }'));
  backend.answersOnce(answer('{"id":5,"title":"Paint"}'), answer('', { status: 404 }));
  assert.equal((await run('recipe.ts')).stdout, "{ id: 5, title: 'Paint' }\n");
  assert.match((await run('recipe.ts')).stdout, /^404 Work item not found [0-9a-f-]{36}\n$/);
});
