// Refused addresses of the backend: the message has the address that was probably meant, but no secret [D30, D32].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { runHere } from '../helpers/run-cli.ts';

async function problemOf(address: string): Promise<string> {
  // The invalid port prevents a start if the address is accepted.
  const { stderr } = await runHere(['serve', '--port', 'x'], { BACKEND_URL: address });
  return /^error: BACKEND_URL (.*)$/m.exec(stderr)?.[1] ?? 'none';
}

const pasted = 'an address without the path of the work items (the gateway adds /api/WorkItem)';

describe('an address with the path of the work items is refused with the address to write', () => {
  for (const [given, meant] of [
    ['http://localhost:5104/api/WorkItem', 'http://localhost:5104'],
    ['http://localhost:5104/api/WorkItem/', 'http://localhost:5104'],
    ['https://h/base/API/workitem', 'https://h/base'],
    ['http://h/api/WorkItem/12', 'http://h'],
    ['http://h/api/WorkItem/{id}', 'http://h'],
    ['http://h//api//WorkItems', 'http://h'],
    ['http://h/api/work-items', 'http://h'],
    ['http://h/base/api/work-items/7/', 'http://h/base'],
    ['http:\\\\h\\api\\WorkItem', 'http://h'],
    ['http://h/api/WorkItem/api/WorkItem', 'http://h'],
  ] as const) {
    test(given, async () => assert.equal(await problemOf(given), `must be ${pasted}: did you mean ${meant}?`));
  }

  for (const query of ['?top=5&key=hunter2', '#hunter2', '%3Fkey=hunter2']) {
    test(`the query ${query} is not shown`, async () => {
      assert.equal(
        await problemOf(`http://h:1/base/api/WorkItem${query}`),
        `must be an address without query and fragment and ${pasted}: did you mean http://h:1/base?`,
      );
    });
  }

  test('other paths are base paths', async () => {
    for (const path of ['', '/', '/api', '/api/', '/WorkItem', '/api/WorkItemService', '/api/v1/WorkItem']) {
      assert.equal(await problemOf(`http://h${path}`), 'none');
    }
    for (const address of ['http://api/work-items', 'http://api:5104/WorkItem', 'http://api/workitems/v1']) {
      assert.equal(await problemOf(address), 'none', 'the host may be called api');
    }
  });
});

describe('a mistyped address is refused with the address that was probably meant', () => {
  for (const [given, meant] of [
    ['backend:5104', 'http://backend:5104'],
    ['back_end:5104', 'http://back_end:5104'],
    ['localhost:5104', 'http://localhost:5104'],
    ['localhost', 'http://localhost'],
    ['10.0.0.7', 'http://10.0.0.7'],
    ['[::1]:5104', 'http://[::1]:5104'],
    ['backend:5104/api/WorkItem', 'http://backend:5104'],
    ['//backend', 'http://backend'],
    ['//backend:5104/base/', 'http://backend:5104/base'],
    ['://backend', 'http://backend'],
    ['http//backend', 'http://backend'],
    ['http:/backend:5104', 'http://backend:5104'],
    ['HTTPS:\\backend/base', 'https://backend/base'],
    ['http:backend', 'http://backend'],
    ['http:/backend/api/WorkItem', 'http://backend'],
    ['htp://backend', 'http://backend'],
    ['htps://backend', 'https://backend'],
    ['http://http://backend', 'http://backend'],
    ['http://https://backend', 'https://backend'],
    ['http:// backend:5104', 'http://backend:5104'],
    ['http://backend: 5104', 'http://backend:5104'],
    ['"http://backend:5104"', 'http://backend:5104'],
    ['http://backend:5104:80', 'http://backend:5104 or http://backend:80'],
    ['http://::1:5104', 'http://[::1]:5104'],
    ['http://fe80::1', 'http://[fe80::1]'],
  ] as const) {
    test(given, async () => {
      const problem = await problemOf(given);
      assert.match(problem, /^must be an /);
      assert.ok(problem.endsWith(`: did you mean ${meant}?`), problem);
    });
  }

  test('an address that may have a password, and a word that may be a secret, are not shown', async () => {
    for (const given of [
      ...['hunter2', 'hunter2/base', 'user:hunter2', '//user:hunter2@backend', 'http://user:hunter2@h/api/WorkItem'],
      ...[
        'http://user:hunter2%40h:1:2',
        'redis://hunter2:6379',
        'http://h:1,http://hunter2:2',
        'http://a http://hunter2',
      ],
    ]) {
      const problem = await problemOf(given);
      assert.match(problem, /, for instance http:\/\/localhost:5104$/);
      assert.doesNotMatch(problem, /hunter2/);
    }
  });

  test('white space around an address has no effect', async () => {
    assert.equal(await problemOf(' http://backend:5104\t'), 'none');
  });
});
