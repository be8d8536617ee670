// Others may use the backend during a contract check. Whatever the backend answers, the check changes and deletes only its own
// item, and its report lists every item that it leaves [D61].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  assertOthersUntouched,
  codesOf,
  type Instead,
  type Item,
  ItemBackend,
  leftIn,
  type Operation,
  runContract,
} from './item-backend.ts';
import { answer, resetPeer, timeout, type Exchange } from '../helpers/scripted-backend.ts';

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

/** Runs the check against a backend that answers with `instead`. */
async function run(instead: ItemBackend['instead'], prepare?: (backend: ItemBackend) => void) {
  await using backend = await ItemBackend.start();
  prepare?.(backend);
  backend.instead = instead;
  const report = await runContract(backend.scripted.url);
  assertOthersUntouched(backend);
  return { backend, report, codes: codesOf(report), left: report.leftovers.map(({ id }) => id) };
}

/** Stores the item of a create, and answers with `body`. */
const creates = (
  body: string | ((item: Item) => string),
  headers: [string, string][] = [],
): ItemBackend['instead'] => ({
  create: (exchange, backend) => {
    const item = backend.add(bodyOf(exchange));
    return answer(typeof body === 'string' ? body : body(item), { status: 201, headers });
  },
});

describe('the answer to a create', { concurrency: 4 }, () => {
  const ids = [
    '1', '2147483647', '99999999999999999999999999', '-1', '-0', '0', '1.0', '1e0', '1.5', '1e400', 'null', 'true', '{}',
    '[1]', '""', '"1"', '"01"', '" 1"', '"1 "', '"1abc"', '"+1"', '"../WorkItem/1"', '"..%2F1"', '"%31"', '"1?x"', '"1#x"',
    '"1\\u0000"', '"1\\r\\nX: y"', '"\\ud800"', '"١"',
  ]; // prettier-ignore
  for (const id of ids) {
    test(`has the id ${id}: other items are unchanged, and the check's item is deleted [D61]`, async () => {
      const { backend, codes } = await run(creates(`{"id":${id},"title":"x"}`));
      assert.deepEqual(leftIn(backend), []);
      assert.match(codes.join('\n'), /^breaks/m);
    });
  }

  test("has a Location that names another item: it is not used for the check's item", async () => {
    const { backend } = await run(creates('{}', [['Location', '/api/WorkItem/1']]));
    assert.deepEqual(leftIn(backend), []);
  });

  test("names another owner's new item: that item is not written [D61]", async () => {
    const other = { id: 50, title: 'of another owner, created meanwhile' };
    const list: Instead = (_exchange, { items }) =>
      answer(JSON.stringify([...items.values()].filter(({ id }) => id !== 50)));
    const { backend, left } = await run({ list, ...creates('{"id":50}') }, ({ items }) => items.set('50', other));
    assert.deepEqual(backend.items.get('50'), other);
    assert.deepEqual([leftIn(backend), left], [[], []]);
  });
});

describe('a backend that names the wrong item gets no update and no delete', { concurrency: 4 }, () => {
  test('a create overwrites an existing item [D61]', async () => {
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

  test('reads ignore the id [D61]', async () => {
    let last: Item | undefined;
    const { backend, codes, report } = await run({
      ...creates((item) => JSON.stringify((last = item))),
      read: () => (last === undefined ? undefined : answer(JSON.stringify({ ...last, id: undefined }))),
    });
    assert.deepEqual(backend.writes, []);
    assert.ok(codes.includes('breaks read: read-ignores-id'), codes.join('\n'));
    assertListed(backend, report.leftovers);
  });

  test('a read shows another id in the item: an update might change the item with that id [D61]', async () => {
    const { backend, report } = await run({
      read: (_exchange, { items, created }, id) =>
        created.has(id) ? answer(JSON.stringify({ ...items.get(id), id: 1 })) : undefined,
    });
    assert.deepEqual(backend.writes, []);
    assertListed(backend, report.leftovers);
  });

  test('a create drops fields [D61]', async () => {
    const { backend, report, codes } = await run({
      create: (_exchange, each) => answer(JSON.stringify(each.add({ name: 'dropped' })), { status: 201 }),
    });
    assert.deepEqual([backend.writes, codes], [[], ['breaks create: not-proven']]);
    assert.match(report.findings[0]?.advice ?? '', /"title"/);
    assertListed(backend, report.leftovers);
    assert.equal(report.leftovers.length, 1);
  });

  test('the gateway cannot request the id: the item remains and the report lists it [D61]', async () => {
    const instead = { list: () => answer('[]'), create: () => answer('{"id":"a7-b2"}', { status: 201 }) };
    const { backend, left } = await run(instead);
    assert.deepEqual([backend.writes, left], [[], ['a7-b2']]);
  });

  test("every item in the list has the check's marker [D61]", async () => {
    let marker = '';
    const marked = (item: Item | undefined) => ({ ...item, title: marker });
    const { backend } = await run({
      create: (exchange) => {
        marker = String(bodyOf(exchange)['title']);
        return answer('', { status: 500 });
      },
      list: (_exchange, { items }) =>
        marker === '' ? undefined : answer(JSON.stringify([...items.values()].map(marked))),
      read: (_exchange, { items }, id) =>
        marker === '' || !items.has(id) ? undefined : answer(JSON.stringify(marked(items.get(id)))),
    });
    assert.deepEqual(backend.writes, []);
  });
});

describe("the check's item", { concurrency: 4 }, () => {
  test('if the id occurs twice in it, the update contains only the id of the path [D61]', async () => {
    const { backend } = await run({
      read: (_exchange, { items, created }, id) => {
        const title = JSON.stringify(items.get(id)?.['title']);
        return created.has(id) && items.has(id) ? answer(`{"id":1,"title":${title},"id":${id}}`) : undefined;
      },
      update: (exchange) => {
        assert.equal(exchange.request.body.toString().split('"id"').length, 2);
        return undefined;
      },
    });
    assert.ok(backend.writes.length > 0);
  });

  for (const status of [400, 422]) {
    test(`an update answered with ${status} is not sent again if the item is now another owner's [D61]`, async () => {
      const { backend, codes } = await run({
        update: (_exchange, { items }, id) => {
          items.set(id, { id: Number(id), title: 'of another owner, with the same id' });
          return answer('', { status });
        },
      });
      assert.deepEqual(
        backend.writes.map(({ method }) => method),
        ['PUT'],
      );
      assert.equal(codes[0], 'breaks update: body-refused');
    });
  }

  // Answers to a read of the deleted item's id.
  const others: readonly (readonly [title: string, body: string])[] = [
    ['a new item of another owner with the same id', '{"id":4,"title":"of another owner, 4"}'],
    ['an error with status 200', '{"error":"not found"}'],
    ['null', 'null'],
  ];
  for (const [title, body] of others) {
    for (const status of [204, 500]) {
      test(`if a delete gets ${status} and a later read shows ${title}, the item counts as deleted [D61]`, async () => {
        const { backend, left } = await run({
          read: (_exchange, { items, created }, id) => (created.has(id) && !items.has(id) ? answer(body) : undefined),
          delete: (exchange, each, id) => {
            const usual = each.usual('delete', exchange.request.body, id);
            return status === 500 ? answer('{}', { status }) : usual;
          },
        });
        assert.deepEqual(left, []);
        assert.deepEqual(
          backend.writes.map(({ method }) => method),
          ['PUT', 'DELETE'],
        );
      });
    }
  }

  test('if neither a read nor the list shows it, the report does not advise to delete it by id [D61]', async () => {
    let isDeleted = false;
    const { report } = await run({
      list: () => (isDeleted ? answer('{}', { status: 500 }) : undefined),
      read: (_exchange, _backend, id) => (isDeleted ? answer(`{"id":${id},"title":"of another owner"}`) : undefined),
      delete: () => {
        isDeleted = true;
        return undefined;
      },
    });
    assert.equal(report.leftovers.length, 1);
    const { id, why, remove } = report.leftovers[0] ?? assert.fail();
    assert.equal(id, '4');
    assert.match(why, /shows something else/);
    assert.match(remove, /^find the item with gateway-check-/);
  });

  for (const failing of ['create', 'update', 'delete'] as Operation[]) {
    test(`is removed if ${failing} gets no answer [D61]`, async () => {
      const { backend, codes, left } = await run({
        [failing]: (exchange: Exchange, each: ItemBackend, id: string) => {
          each.usual(failing, exchange.request.body, id);
          return resetPeer();
        },
      });
      assert.deepEqual([leftIn(backend), left], [[], []]);
      assert.ok(codes.includes(`breaks ${failing}: no-connection`), codes.join());
    });
  }
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
});
