// A reporter for `node --test`: lists skipped and todo tests by reason, and fails the run if a reason is not in
// test/skips.json. With TEST_TOOLS=required, a missing tool is no reason. `npm run test:only` uses it in addition to Node's
// reporter.

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
  /** The reason is that a package of scripts/install-test-tools.sh is missing. */
  readonly isTool?: boolean;
}

const list = fileURLToPath(new URL('../test/skips.json', import.meta.url));
const allowed = JSON.parse(readFileSync(list, 'utf8')) as readonly Allowed[];

/** True if tests may be skipped for this reason. */
export function isAllowed(reason: string, requiresTools = process.env['TEST_TOOLS'] === 'required'): boolean {
  return allowed.some((each) => new RegExp(each.reason).test(reason) && !(requiresTools && each.isTool === true));
}

export default async function* skippedTests(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const names = new Map<string, string[]>();
  for await (const { type, data } of source) {
    const mark = data.skip ?? data.todo;
    if ((type !== 'test:pass' && type !== 'test:fail') || mark === undefined || mark === false) continue;
    const reason = typeof mark === 'string' ? mark : '(no reason given)';
    names.set(reason, [...(names.get(reason) ?? []), data.name]);
  }
  for (const [reason, tests] of names) {
    const isGood = isAllowed(reason);
    if (!isGood) process.exitCode = 1;
    yield `${isGood ? 'skipped' : 'NOT ALLOWED TO BE SKIPPED (test/skips.json)'}: ${tests.length} × ${reason}\n`;
    if (!isGood) yield tests.map((name) => `  ${name}\n`).join('');
  }
}
