// What a page of another site can do to a gateway on this machine, in a real browser: nothing that writes [D56]. To a
// browser `127.0.0.1` and `localhost` are two sites, and two ports of one name are one.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, beforeEach, describe, test } from 'node:test';
import { TestBrowser } from '../helpers/browser.ts';
import { poll } from '../helpers/changes.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command } from '../helpers/targets.ts';

let browser: TestBrowser;
let backend: ScriptedBackend;
let command: Command;
// Any site, with an empty page.
const elsewhere = createServer((_request, response) => {
  response.setHeader('content-type', 'text/html').end('<!doctype html><title>elsewhere</title>');
});
let port = 0;

before(async () => {
  backend = await ScriptedBackend.start();
  command = await startCommand({ BACKEND_URL: backend.url, HOST: 'localhost', DOCS: 'true' });
  await once(elsewhere.listen(0, '127.0.0.1'), 'listening');
  ({ port } = elsewhere.address() as AddressInfo);
  browser = await TestBrowser.start();
});
beforeEach(() => {
  backend.reset();
  backend.answers(answer('{"id":5}'));
});
after(async () => {
  await browser[Symbol.asyncDispose]();
  elsewhere.close();
  await command.stop();
  await backend.stop();
});

/** Calls that the gateway has refused for where they came from. */
const refusals = (): number => command.logs.filter(({ outcome }) => outcome === 'forbidden').length;

describe('a page of another site', () => {
  const items = (): string => `http://localhost:${command.port}/api/work-items`;
  const attempts: [name: string, script: () => string][] = [
    [
      'cannot create an item with fetch, without asking first',
      () => `fetch('${items()}', { method: 'POST', mode: 'no-cors', body: '{"title":"evil"}' })`,
    ],
    [
      'nor with a beacon, which goes out when it is closed',
      () => `navigator.sendBeacon('${items()}', '{"title":"evil"}')`,
    ],
    [
      'nor with a form whose one field is JSON',
      () => `{
        const form = document.createElement('form');
        form.method = 'POST';
        form.action = '${items()}';
        form.enctype = 'text/plain';
        const field = document.createElement('input');
        field.name = '{"title":"evil","ignored":"';
        field.value = '"}';
        form.append(field);
        document.body.append(form);
        form.submit();
      }`,
    ],
  ];
  for (const [name, script] of attempts) {
    test(name, async () => {
      const earlier = refusals();
      await using page = await browser.open(`http://127.0.0.1:${port}/`);
      await page.page.evaluate(script());
      await poll(() => refusals() === earlier + 1, 'it has been refused');
      assert.equal(backend.requests.length, 0);
    });
  }

  test('cannot replace or delete one: the browser asks first, and gets no leave', async () => {
    await using page = await browser.open(`http://127.0.0.1:${port}/`);
    for (const method of ['PUT', 'DELETE']) {
      const outcome = await page.page.evaluate<string>(
        `fetch('${items()}/5', { method: '${method}', body: '{}' }).then(() => 'sent', () => 'not sent')`,
      );
      assert.equal(outcome, 'not sent', method);
    }
    assert.equal(backend.requests.length, 0);
  });
});

describe('a page of the gateway itself', () => {
  test('creates, replaces and deletes', async () => {
    await using page = await browser.open(`http://localhost:${command.port}/docs`);
    const statuses = await page.page.evaluate<number[]>(`Promise.all([
      fetch('/api/work-items', { method: 'POST', body: '{"title":"good"}' }),
      fetch('/api/work-items/5', { method: 'PUT', body: '{}' }),
      fetch('/api/work-items/5', { method: 'DELETE' }),
    ].map((call) => call.then(({ status }) => status)))`);
    assert.deepEqual(statuses, [201, 200, 200]);
  });

  test('does so by trying it out in the API reference', async () => {
    await using reference = await browser.open(`http://localhost:${command.port}/docs`);
    const operation = reference.page.locator('[id$="-createWorkItem"]');
    await operation.getByRole('button', { expanded: false }).first().click();
    await operation.getByRole('textbox', { name: 'Request body' }).fill('{"title":"good"}');
    await operation.getByRole('button', { name: 'Execute' }).click();
    const status = operation.locator('.live-responses-table tbody .response-col_status');
    assert.match((await status.textContent()) ?? '', /^\s*201/);
    assert.equal(backend.requests[0]?.body.toString(), '{"title":"good"}');
  });
});
