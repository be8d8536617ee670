// Others may use the backend during a contract check. Whatever the backend answers, the check changes and deletes only its own
// item, and its report lists every item that it leaves [D61].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ItemBackend, type Item, type Operation } from './item-backend.ts';
import { answer, resetPeer, timeout, type Exchange } from '../helpers/scripted-backend.ts';
import { assertOthersUntouched, codesOf, leftIn, runContract } from './run.ts';

const bodyOf = ({ request }: Exchange): Item => JSON.parse(request.body.toString()) as Item;

/** Asserts that the report lists exactly the items that are left. */
function assertListed(backend: ItemBackend, listed: readonly { id: string | undefined }[]): void {
  const left = leftIn(backend);
  assert.deepEqual(
    listed.map(({ id }) => id).filter((id) => id !== undefined),
    left.slice(0, listed.length),
  );
  assert.ok(left.length <= listed.length, `left: ${left.join()}; listed: ${JSON.stringify(listed)}`);
}

/** Asserts that the report lists at least as many items as are left. */
function assertCounted(backend: ItemBackend, { leftovers }: { leftovers: readonly unknown[] }): void {
  assert.ok(leftIn(backend).length <= leftovers.length, JSON.stringify(leftovers));
}

describe('an id in the answer to a create', { concurrency: 4 }, () => {
  const ids = [
    '1', '2147483647', '99999999999999999999999999', '-1', '-0', '0', '1.0', '1e0', '1.5', '1e400', 'null', 'true', '{}',
    '[1]', '""', '"1"', '"01"', '" 1"', '"1 "', '"1abc"', '"+1"', '"../WorkItem/1"', '"..%2F1"', '"%31"', '"1?x"', '"1#x"',
    '"1\\u0000"', '"1\\r\\nX: y"', '"\\ud800"', '"١"',
  ]; // prettier-ignore
  for (const id of ids) {
    test(`${id}: other items are unchanged, and the check's item is deleted [D61]`, async () => {
      await using backend = await ItemBackend.start();
      backend.instead = {
        create: (exchange) => {
          backend.add(bodyOf(exchange));
          return answer(`{"id":${id},"title":"x"}`, { status: 201 });
        },
      };
      const report = await runContract(backend.scripted.url);
      assertOthersUntouched(backend);
      assert.deepEqual(leftIn(backend), [], JSON.stringify(codesOf(report)));
      assert.match(codesOf(report).join('\n'), /^breaks/m);
    });
  }

  for (const status of [400, 422]) {
    test(`an update answered with ${status} is not sent again if the item is now another owner's [D61]`, async () => {
      await using backend = await ItemBackend.start();
      backend.instead = {
        update: (_exchange, { items }, id) => {
          items.set(id, { id: Number(id), title: 'of another owner, with the same id' });
          return answer('', { status });
        },
      };
      const report = await runContract(backend.scripted.url);
      const methods = backend.writes.map(({ method }) => method);
      assert.deepEqual(methods, ['PUT']);
      assert.equal(codesOf(report)[0], 'breaks update: body-refused');
    });
  }

  test("a Location that names another item is not used for the check's item", async () => {
    await using backend = await ItemBackend.start();
    backend.instead = {
      create: (exchange) => {
        backend.add(bodyOf(exchange));
        return answer('{}', { status: 201, headers: [['Location', '/api/WorkItem/1']] });
      },
    };
    await runContract(backend.scripted.url);
    assertOthersUntouched(backend);
    assert.deepEqual(leftIn(backend), []);
  });
});

describe('a backend that names the wrong item', { concurrency: 4 }, () => {
  test('a create that overwrites an existing item is reported, and the item is not written again [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = {
      create: (exchange) => {
        const item = { id: 2, ...bodyOf(exchange) };
        backend.items.set('2', item);
        return answer(JSON.stringify(item), { status: 201 });
      },
    };
    const report = await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
    assert.ok(codesOf(report).includes('breaks create: create-names-another'));
  });

  test('if reads ignore the id, no update and no delete is sent [D61]', async () => {
    await using backend = await ItemBackend.start();
    let last: Item | undefined;
    backend.instead = {
      create: (exchange) => {
        last = backend.add(bodyOf(exchange));
        return answer(JSON.stringify(last), { status: 201 });
      },
      read: () => (last === undefined ? undefined : answer(JSON.stringify({ ...last, id: undefined }))),
    };
    const report = await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
    assert.ok(codesOf(report).includes('breaks read: read-ignores-id'), codesOf(report).join('\n'));
    assertListed(backend, report.leftovers);
  });

  test('if a read shows another id in the item, no update is sent, because the update might change the item with that id [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = {
      read: (_exchange, { items, created }, id) =>
        created.has(id) ? answer(JSON.stringify({ ...items.get(id), id: 1 })) : undefined,
    };
    const report = await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
    assertListed(backend, report.leftovers);
  });

  test('if the id occurs twice in an item, the update contains only the id of the path [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = {
      read: (_exchange, { items, created }, id) => {
        const item = items.get(id);
        return created.has(id) && item !== undefined
          ? answer(`{"id":1,"title":${JSON.stringify(item['title'])},"id":${id}}`)
          : undefined;
      },
      update: (exchange) => {
        assert.equal(exchange.request.body.toString().split('"id"').length, 2);
        return undefined;
      },
    };
    await runContract(backend.scripted.url);
    assertOthersUntouched(backend);
    assert.ok(backend.writes.length > 0);
  });

  test("if every item in the list has the check's marker, no item is written [D61]", async () => {
    await using backend = await ItemBackend.start();
    let marker = '';
    backend.instead = {
      create: (exchange) => {
        marker = String(bodyOf(exchange)['title']);
        return answer('', { status: 500 });
      },
      list: (_exchange, { items }) =>
        marker === ''
          ? undefined
          : answer(JSON.stringify([...items.values()].map((item) => ({ ...item, title: marker })))),
      read: (_exchange, { items }, id) =>
        marker === '' || !items.has(id) ? undefined : answer(JSON.stringify({ ...items.get(id), title: marker })),
    };
    await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
  });

  test("if the answer to a create names another owner's new item, that item is not written [D61]", async () => {
    await using backend = await ItemBackend.start();
    backend.items.set('50', { id: 50, title: 'of another owner, created meanwhile' });
    backend.instead = {
      list: (_exchange, { items }) => answer(JSON.stringify([...items.values()].filter(({ id }) => id !== 50))),
      create: (exchange) => {
        backend.add(bodyOf(exchange));
        return answer('{"id":50}', { status: 201 });
      },
    };
    const report = await runContract(backend.scripted.url);
    assertOthersUntouched(backend);
    assert.deepEqual(backend.items.get('50'), { id: 50, title: 'of another owner, created meanwhile' });
    assert.deepEqual(leftIn(backend), []);
    assert.deepEqual(report.leftovers, []);
  });

  test('a create that drops fields is reported, and no update or delete is sent [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = { create: () => answer(JSON.stringify(backend.add({ name: 'dropped' })), { status: 201 }) };
    const report = await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
    assert.deepEqual(codesOf(report), ['breaks create: not-proven']);
    assert.match(report.findings[0]?.advice ?? '', /"title"/);
    assertListed(backend, report.leftovers);
    assert.equal(report.leftovers.length, 1);
  });

  test('if the gateway cannot request the id of an item, the item remains and the report lists it [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.items.clear();
    backend.instead = { list: () => answer('[]'), create: () => answer('{"id":"a7-b2"}', { status: 201 }) };
    const report = await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
    const ids = report.leftovers.map(({ id }) => id);
    assert.deepEqual(ids, ['a7-b2']);
  });

  // Answers to a read of the deleted item's id.
  const others: readonly (readonly [title: string, body: string])[] = [
    ['a new item of another owner with the same id', '{"id":4,"title":"of another owner, 4"}'],
    ['an error with status 200', '{"error":"not found"}'],
    ['null', 'null'],
  ];
  for (const [title, body] of others) {
    for (const status of [204, 500]) {
      test(`if a delete gets ${status} and a later read shows ${title}, the item counts as deleted [D61]`, async () => {
        await using backend = await ItemBackend.start();
        backend.instead = {
          read: (_exchange, { items, created }, id) => (created.has(id) && !items.has(id) ? answer(body) : undefined),
          delete: (exchange, _backend, id) => {
            const usual = backend.usual('delete', exchange.request.body, id);
            return status === 500 ? answer('{}', { status }) : usual;
          },
        };
        const report = await runContract(backend.scripted.url);
        assert.deepEqual(report.leftovers, []);
        const methods = backend.writes.map(({ method }) => method);
        assert.deepEqual(methods, ['PUT', 'DELETE']);
      });
    }
  }

  test('if neither a read nor the list shows the item, the report does not advise to delete it by id [D61]', async () => {
    await using backend = await ItemBackend.start();
    let isDeleted = false;
    backend.instead = {
      list: () => (isDeleted ? answer('{}', { status: 500 }) : undefined),
      read: (_exchange, _backend, id) => (isDeleted ? answer(`{"id":${id},"title":"of another owner"}`) : undefined),
      delete: () => {
        isDeleted = true;
        return undefined;
      },
    };
    const report = await runContract(backend.scripted.url);
    const ids = report.leftovers.map(({ id }) => id);
    assert.deepEqual(ids, ['4']);
    assert.match(report.leftovers[0]?.why ?? '', /shows something else/);
    assert.match(report.leftovers[0]?.remove ?? '', /^find the item with gateway-check-/);
  });
});

describe('a contract check that is disturbed', { concurrency: 2 }, () => {
  // One more than the number of requests of a whole check.
  const steps = 14;
  for (let step = 1; step <= steps; step += 1) {
    test(`an interrupt at request ${step} leaves no item; after a second signal, the report lists the items that are left [D61]`, async () => {
      for (const isSecond of [false, true]) {
        await using backend = await ItemBackend.start();
        const [stop, cut] = [new AbortController(), new AbortController()];
        backend.onRequest = () => {
          if (backend.asked.length !== step) return;
          stop.abort();
          if (isSecond) cut.abort();
        };
        const report = await runContract(backend.scripted.url, {}, { stop: stop.signal, cut: cut.signal });
        if (isSecond) assertCounted(backend, report);
        else assert.deepEqual([leftIn(backend), report.leftovers], [[], []]);
        assert.equal(report.isInterrupted, stop.signal.aborted);
        assertOthersUntouched(backend);
      }
    });

    for (const [what, ends, settings] of [
      ['is down', resetPeer(), {}],
      ['stalls', timeout, { backendTimeoutMs: 300 }],
    ] as const) {
      test(`if the backend ${what} from request ${step} on, the report lists the items that are left [D61]`, async () => {
        await using backend = await ItemBackend.start();
        const from = () => (backend.asked.length >= step ? ends : undefined);
        backend.instead = { list: from, read: from, create: from, update: from, delete: from };
        const report = await runContract(backend.scripted.url, settings);
        if (what === 'stalls') assert.ok(backend.asked.length <= step + 2, 'the check ends after few calls');
        assertCounted(backend, report);
        assertOthersUntouched(backend);
      });
    }
  }

  for (const failing of ['create', 'update', 'delete'] as Operation[]) {
    test(`if ${failing} gets no answer, the check's item is removed [D61]`, async () => {
      await using backend = await ItemBackend.start();
      backend.instead = {
        [failing]: (exchange: Exchange, _backend: ItemBackend, id: string) => {
          backend.usual(failing, exchange.request.body, id);
          return resetPeer();
        },
      };
      const report = await runContract(backend.scripted.url);
      assert.deepEqual(leftIn(backend), []);
      assert.deepEqual(report.leftovers, []);
      assert.ok(codesOf(report).includes(`breaks ${failing}: no-connection`), codesOf(report).join());
      assertOthersUntouched(backend);
    });
  }
});
