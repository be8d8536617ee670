// A reporter for `node --test`: lists skipped and todo tests by reason, and fails the run if a reason is not in
// test/skips.json. `npm run test:only` uses it in addition to Node's reporter.

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

interface TestEvent {
  readonly type: string;
  readonly data: { readonly name: string; readonly skip?: string | boolean; readonly todo?: string | boolean };
}

interface Allowed {
  /** A regular expression for the reason. */
  readonly reason: string;
  readonly why: string;
}

const list = fileURLToPath(new URL('../test/skips.json', import.meta.url));
const allowed = JSON.parse(readFileSync(list, 'utf8')) as readonly Allowed[];

export default async function* skippedTests(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const names = new Map<string, string[]>();
  for await (const { type, data } of source) {
    const mark = data.skip ?? data.todo;
    if ((type !== 'test:pass' && type !== 'test:fail') || mark === undefined || mark === false) continue;
    const reason = typeof mark === 'string' ? mark : '(no reason given)';
    names.set(reason, [...(names.get(reason) ?? []), data.name]);
  }
  for (const [reason, tests] of names) {
    const isAllowed = allowed.some((each) => new RegExp(each.reason).test(reason));
    if (!isAllowed) process.exitCode = 1;
    yield `${isAllowed ? 'skipped' : 'NOT ALLOWED TO BE SKIPPED (test/skips.json)'}: ${tests.length} × ${reason}\n`;
    if (!isAllowed) yield tests.map((name) => `  ${name}\n`).join('');
  }
}
