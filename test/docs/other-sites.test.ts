// In a real browser, a page of another site cannot write to a gateway on this machine [D56]. For browsers `127.0.0.1` and
// `localhost` are two sites; all ports of one name are the same site.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { TestBrowser } from '../helpers/browser.ts';
import { poll } from '../helpers/changes.ts';
import { useBackend } from '../helpers/suites.ts';
import { startCommand, type Command } from '../helpers/targets.ts';

let browser: TestBrowser;
const backend = await useBackend('{"id":5}');
let command: Command;
// Serves an empty page of another site.
const elsewhere = createServer((_request, response) => {
  response.setHeader('content-type', 'text/html').end('<!doctype html><title>elsewhere</title>');
});
let port = 0;

before(async () => {
  command = await startCommand({ BACKEND_URL: backend.url, HOST: 'localhost', DOCS: 'true' });
  await once(elsewhere.listen(0, '127.0.0.1'), 'listening');
  ({ port } = elsewhere.address() as AddressInfo);
  browser = await TestBrowser.start();
});
after(async () => {
  await browser[Symbol.asyncDispose]();
  elsewhere.close();
  await command.stop();
});

/** The number of calls that the gateway has refused as cross-site. */
const refusals = (): number => command.logs.filter(({ outcome }) => outcome === 'forbidden').length;

describe('a page of another site', () => {
  const items = (): string => `http://localhost:${command.port}/api/work-items`;
  const attempts: [name: string, script: () => string][] = [
    [
      'cannot create an item by fetch without a preflight',
      () => `fetch('${items()}', { method: 'POST', mode: 'no-cors', body: '{"title":"evil"}' })`,
    ],
    [
      'cannot create an item by a beacon, which is sent when the page closes',
      () => `navigator.sendBeacon('${items()}', '{"title":"evil"}')`,
    ],
    [
      'cannot create an item by a form whose field is JSON',
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
      await poll(() => refusals() === earlier + 1, 'the gateway refuses the call');
      assert.equal(backend.requests.length, 0);
    });
  }

  test('cannot replace or delete an item: the preflight is refused', async () => {
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

  test('creates an item in the API reference', async () => {
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
