// The check of the contract writes to a backend that others use: whatever that backend answers, nothing but the check's own
// item is changed or deleted, and nothing of its own stays behind without being told [D61].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { ItemBackend, type Item, type Operation } from '../helpers/item-backend.ts';
import { answer, resetPeer, timeout, type Exchange } from '../helpers/scripted-backend.ts';
import { assertOthersUntouched, codesOf, leftIn, runContract } from './run.ts';

const bodyOf = ({ request }: Exchange): Item => JSON.parse(request.body.toString()) as Item;

/** The report tells of each item that is left, and of none that is not. */
function assertTold(backend: ItemBackend, told: readonly { id: string | undefined }[]): void {
  const left = leftIn(backend);
  assert.deepEqual(
    told.map(({ id }) => id).filter((id) => id !== undefined),
    left.slice(0, told.length),
  );
  assert.ok(left.length <= told.length, `${left.join()} are left, and only ${JSON.stringify(told)} is told`);
}

describe('ids in the answer to a create', { concurrency: 4 }, () => {
  const ids = [
    '1',
    '2147483647',
    '99999999999999999999999999',
    '-1',
    '-0',
    '0',
    '1.0',
    '1e0',
    '1.5',
    '1e400',
    'null',
    'true',
    '{}',
    '[1]',
    '""',
    '"1"',
    '"01"',
    '" 1"',
    '"1 "',
    '"1abc"',
    '"+1"',
    '"../WorkItem/1"',
    '"..%2F1"',
    '"%31"',
    '"1?x"',
    '"1#x"',
    '"1\\u0000"',
    '"1\\r\\nX: y"',
    '"\\ud800"',
    '"١"',
  ];
  for (const id of ids) {
    test(`${id}: nothing of others is touched, and its own item goes [D61]`, async () => {
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
      assert.ok(
        codesOf(report).some((code) => code.startsWith('breaks')),
        'it is told',
      );
    });
  }

  for (const status of [400, 422]) {
    test(`an item that is another's when its update is refused with ${status} gets no second update [D61]`, async () => {
      await using backend = await ItemBackend.start();
      backend.instead = {
        update: (_exchange, { items }, id) => {
          items.set(id, { id: Number(id), title: 'of somebody else, with the same id' });
          return answer('', { status });
        },
      };
      const report = await runContract(backend.scripted.url);
      assert.deepEqual(
        backend.writes.map(({ method }) => method),
        ['PUT'],
      );
      assert.equal(codesOf(report)[0], 'breaks update: body-refused');
    });
  }

  test('a Location that names another is not trusted either', async () => {
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

describe('backends that would have the wrong item changed', { concurrency: 4 }, () => {
  test('a create that overwrites an item which was there is told, and the item not touched again [D61]', async () => {
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

  test('reads that ignore the id prove nothing: no update, no delete [D61]', async () => {
    await using backend = await ItemBackend.start();
    let last: Item | undefined;
    backend.instead = {
      create: (exchange) => {
        last = backend.add(bodyOf(exchange));
        return undefined;
      },
      read: () => (last === undefined ? undefined : answer(JSON.stringify({ ...last, id: undefined }))),
    };
    backend.instead.create = (exchange) => {
      last = backend.add(bodyOf(exchange));
      return answer(JSON.stringify(last), { status: 201 });
    };
    const report = await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
    assert.ok(codesOf(report).includes('breaks read: read-ignores-id'), codesOf(report).join('\n'));
    assertTold(backend, report.leftovers);
  });

  test('a read that shows another id in the item is no proof: an update would go to that id [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = {
      read: (_exchange, { items, created }, id) =>
        created.has(id) ? answer(JSON.stringify({ ...items.get(id), id: 1 })) : undefined,
    };
    const report = await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
    assertTold(backend, report.leftovers);
  });

  test('an id that stands twice in the item is written once, and is its own [D61]', async () => {
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

  test('a list that shows the marker in every item makes none of them its own [D61]', async () => {
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
        marker === '' || !items.has(id)
          ? undefined
          : answer(JSON.stringify({ ...items.get(id), title: marker })),
    };
    await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
  });

  test('the item of somebody else that comes meanwhile, and that the answer names, is not touched [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.items.set('50', { id: 50, title: 'of somebody else, who came meanwhile' });
    backend.instead = {
      list: (_exchange, { items }) =>
        answer(JSON.stringify([...items.values()].filter(({ id }) => id !== 50))),
      create: (exchange) => {
        backend.add(bodyOf(exchange));
        return answer('{"id":50}', { status: 201 });
      },
    };
    const report = await runContract(backend.scripted.url);
    assertOthersUntouched(backend);
    assert.deepEqual(backend.items.get('50'), { id: 50, title: 'of somebody else, who came meanwhile' });
    assert.deepEqual(leftIn(backend), []);
    assert.deepEqual(report.leftovers, []);
  });

  test('a field that the backend drops: it says so and stops before update and delete [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.instead = {
      create: () => answer(JSON.stringify(backend.add({ name: 'dropped' })), { status: 201 }),
    };
    const report = await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
    assert.deepEqual(codesOf(report), ['breaks create: not-proven']);
    assert.match(report.findings[0]?.advice ?? '', /"title"/);
    assertTold(backend, report.leftovers);
    assert.equal(report.leftovers.length, 1);
  });

  test('an id that the gateway cannot ask for stays behind, and is told [D61]', async () => {
    await using backend = await ItemBackend.start();
    backend.items.clear();
    backend.instead = { list: () => answer('[]'), create: () => answer('{"id":"a7-b2"}', { status: 201 }) };
    const report = await runContract(backend.scripted.url);
    assert.deepEqual(backend.writes, []);
    assert.deepEqual(
      report.leftovers.map(({ id }) => id),
      ['a7-b2'],
    );
  });

  // What somebody else has by then under the id of the item that was deleted.
  const others: readonly (readonly [title: string, body: string])[] = [
    ['an item that somebody else has made since, with the same id', '{"id":4,"title":"of somebody else, 4"}'],
    ['an error with status 200', '{"error":"not found"}'],
    ['null', 'null'],
  ];
  for (const [title, body] of others) {
    for (const status of [204, 500]) {
      test(`a delete with ${status}, and a read of its id then shows ${title}: it is gone [D61]`, async () => {
        await using backend = await ItemBackend.start();
        backend.instead = {
          read: (_exchange, { items, created }, id) =>
            created.has(id) && !items.has(id) ? answer(body) : undefined,
          delete: (exchange, _backend, id) => {
            const usual = backend.usual('delete', exchange.request.body, id);
            return status === 500 ? answer('{}', { status }) : usual;
          },
        };
        const report = await runContract(backend.scripted.url);
        assert.deepEqual(report.leftovers, []);
        assert.deepEqual(
          backend.writes.map(({ method }) => method),
          ['PUT', 'DELETE'],
        );
      });
    }
  }

  test('where neither a read nor the list says what became of it, nobody is told to delete by its id [D61]', async () => {
    await using backend = await ItemBackend.start();
    let isDeleted = false;
    backend.instead = {
      list: () => (isDeleted ? answer('{}', { status: 500 }) : undefined),
      read: (_exchange, _backend, id) =>
        isDeleted ? answer(`{"id":${id},"title":"of somebody else"}`) : undefined,
      delete: () => {
        isDeleted = true;
        return undefined;
      },
    };
    const report = await runContract(backend.scripted.url);
    assert.deepEqual(
      report.leftovers.map(({ id }) => id),
      ['4'],
    );
    assert.match(report.leftovers[0]?.why ?? '', /shows something else/);
    assert.match(report.leftovers[0]?.remove ?? '', /^look for gateway-check-/);
  });
});

describe('whatever happens in the middle', { concurrency: 2 }, () => {
  // As many as the whole takes, and one more.
  const steps = 14;
  for (let step = 1; step <= steps; step += 1) {
    test(`an interrupt at request ${step}: nothing stays behind [D61]`, async () => {
      await using backend = await ItemBackend.start();
      const stop = new AbortController();
      backend.onRequest = () => {
        if (backend.asked.length === step) stop.abort();
      };
      const report = await runContract(backend.scripted.url, {}, { stop: stop.signal });
      assert.deepEqual(leftIn(backend), []);
      assert.deepEqual(report.leftovers, []);
      assert.equal(report.isInterrupted, stop.signal.aborted);
      assertOthersUntouched(backend);
    });

    test(`a cut at request ${step}: what stays behind is told [D61]`, async () => {
      await using backend = await ItemBackend.start();
      const stop = new AbortController();
      const cut = new AbortController();
      backend.onRequest = () => {
        if (backend.asked.length === step) {
          stop.abort();
          cut.abort();
        }
      };
      const report = await runContract(backend.scripted.url, {}, { stop: stop.signal, cut: cut.signal });
      assert.ok(leftIn(backend).length <= report.leftovers.length, JSON.stringify(report.leftovers));
      assertOthersUntouched(backend);
    });

    test(`the backend is gone from request ${step} on: what stays behind is told [D61]`, async () => {
      await using backend = await ItemBackend.start();
      const dies = () => (backend.asked.length >= step ? resetPeer() : undefined);
      backend.instead = { list: dies, read: dies, create: dies, update: dies, delete: dies };
      const report = await runContract(backend.scripted.url);
      assert.ok(leftIn(backend).length <= report.leftovers.length, JSON.stringify(report.leftovers));
      assertOthersUntouched(backend);
    });

    test(`the backend stalls from request ${step} on: the run ends after few calls [D61]`, async () => {
      await using backend = await ItemBackend.start();
      const stalls = () => (backend.asked.length >= step ? timeout : undefined);
      backend.instead = { list: stalls, read: stalls, create: stalls, update: stalls, delete: stalls };
      const report = await runContract(backend.scripted.url, { backendTimeoutMs: 300 });
      assert.ok(backend.asked.length <= step + 2, backend.asked.join());
      assert.ok(leftIn(backend).length <= report.leftovers.length, JSON.stringify(report.leftovers));
      assertOthersUntouched(backend);
    });
  }

  for (const failing of ['create', 'update', 'delete'] as Operation[]) {
    test(`a ${failing} that is done and whose answer never comes is cleaned up, or told [D61]`, async () => {
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
