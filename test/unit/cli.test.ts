// The command's output: help, suggestions and the command to run next. It shows no secrets [D32].

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { workItemGateway } from '../../packages/core/hosts/index.ts';
import { settingGroups } from '../../packages/command/settings/groups.ts';
import {
  briefOf,
  flagOf,
  mostUsed,
  settingNames,
  settingsOf,
  variableOf,
} from '../../packages/command/settings/settings.ts';
import { findSimilar } from '../../packages/core/options/similar.ts';
import { runHere as run } from '../helpers/run-cli.ts';
import Fastify from 'fastify';
import { useFolder } from '../helpers/suites.ts';

/** Returns the first problem that the command writes to stderr. */
async function firstProblem(args: readonly string[], environment?: Record<string, string>): Promise<string> {
  const { code, stderr } = await run(args, environment);
  assert.equal(code, 1);
  return /^error: (.*)$/m.exec(stderr)?.[1] ?? '';
}

const folder = useFolder();

describe('secrets are not shown', () => {
  const secret = 'hunter2';
  const spellings = [
    `http://user:${secret}@backend.internal`, `http://${secret}@backend.internal`,
    `http://:${secret}@backend.internal`, `https://user:${secret}@backend.internal:5104/base`,
    `http:user:${secret}@backend.internal`, `http:/user:${secret}@backend.internal`,
    `http:///user:${secret}@backend.internal`, `http:\\\\user:${secret}@backend.internal`,
    `http:\\user:${secret}@backend.internal`, `HTTP://USER:${secret}@BACKEND`,
    `//user:${secret}@backend.internal`, `\\\\user:${secret}@backend.internal`,
    `user:${secret}@backend.internal`, `${secret}@backend.internal`,
    `postgres://user:${secret}@backend.internal`, ` http://user:${secret}@backend.internal`,
    `\thttp://user:${secret}@backend.internal`, `ht\ntp://user:${secret}@backend.internal`,
    `"http://user:${secret}@backend.internal"`, `http://user:${secret}%40backend.internal`,
    `http://user%3A${secret}@backend.internal`, `http://user%3A${secret}%40backend.internal`,
    `http%3A%2F%2Fuser:${secret}@backend.internal`, `http://user:${secret}@@backend.internal`,
    `http://user:p@ss:${secret}@backend.internal`, `http://user:${secret}@`,
    `http://user:${secret}@:99999`, `http://us/er:${secret}@backend.internal?`,
    `http://backend.internal?token=${secret}`, `http://backend.internal/?token=${secret}`,
    `http://backend.internal/base?a&token=${secret}`, `http://backend.internal/%3Ftoken=${secret}`,
    `http://backend.internal/%23${secret}`, `http://backend.internal/#${secret}`,
    `http:backend.internal?token=${secret}`, `?token=${secret}`, `backend.internal?token=${secret}`,
    `token=${secret}`, `Bearer ${secret};x`,
  ]; // prettier-ignore

  // Places where a user may put a secret by mistake.
  const places: Record<string, (spelling: string) => [args: string[], environment?: Record<string, string>]> = {
    'the value of BACKEND_URL': (text) => [['serve'], { BACKEND_URL: text }],
    'the value of --backend-url': (text) => [['serve', '--backend-url', text]],
    'the value after --backend-url=': (text) => [['serve', `--backend-url=${text}`]],
    'the value of --backend-url for check': (text) => [['check', '--backend-url', text]],
    'the value of BACKEND_URL for check': (text) => [['check'], { BACKEND_URL: text }],
    'the value of BACKEND_URL for openapi': (text) => [['openapi'], { BACKEND_URL: text }],
    'the value of a misspelt flag': (text) => [['serve', '--bakcend-url', text]],
    'the value after a misspelt flag and =': (text) => [['serve', `--bakcend-url=${text}`]],
    'the value of a flag of another command': (text) => [['dev', '--backend-url', text]],
    'an argument of serve': (text) => [['serve', text]],
    'a command': (text) => [[text]],
    'a second argument': (text) => [['serve', 'backend', text]],
    'an unknown flag': (text) => [['serve', `--${text}`]],
    'an unknown short flag': (text) => [['serve', `-${text}`]],
    'a value in a settings file': (text) => [
      ['serve', '--settings-file', fileOf(`BACKEND_URL='${text.replaceAll('\n', '')}'\n`)],
    ],
    'a line without a variable in a settings file': (text) => [
      ['serve', '--settings-file', fileOf(`${text}\na${text}=1\n`)],
    ],
    'a line with a wrong separator in a settings file': (text) => [
      ['serve', '--settings-file', fileOf(`BACKEND_URL: ${text}\nBACKEND_URL ${text}=\n`)],
    ],
    'the database of the embedded backend': (text) => [
      ['backend', '--embedded-backend-port=0', '--embedded-backend-database', `${folder}/none/${text}`],
    ],
  };

  function fileOf(text: string): string {
    const file = join(folder, 'settings.env');
    writeFileSync(file, text);
    return file;
  }

  // Each run also has an invalid port, so that the command fails even if the setting accepts any text.
  for (const name of settingsOf('serve')) {
    places[variableOf(name)] = (text) => [
      ['serve', name === 'port' ? '--admin-port=x' : '--port=x'],
      { [variableOf(name)]: text },
    ];
  }

  for (const [place, put] of Object.entries(places)) {
    test(`${spellings.length} spellings of a secret as ${place} are refused and not shown`, async () => {
      for (const spelling of spellings) {
        const [args, environment] = put(spelling);
        const { code, stdout, stderr } = await run(args, environment);
        assert.equal(code, 1, `${spelling}\n${stderr}`);
        assert.match(stderr, /^error: ./);
        assert.doesNotMatch(stdout + stderr, /hunter2/i, spelling);
      }
    });
  }

  test('a TypeError of the plugin shows no secret in its message, stack or properties', async () => {
    for (const spelling of spellings) {
      const app = Fastify();
      await assert.rejects(
        async () => {
          await app.register(workItemGateway, { backendUrl: spelling });
        },
        (error) => {
          assert.ok(error instanceof TypeError);
          assert.match(error.message, /backendUrl must be an? /);
          assert.doesNotMatch(
            `${String(error.stack)} ${JSON.stringify(error, Object.getOwnPropertyNames(error))}`,
            /hunter2/i,
          );
          return true;
        },
      );
      await app.close();
    }
  });

  test("a word that may be part of a flag's value is not shown, because a secret may consist of letters", async () => {
    for (const args of [
      ['--backend-url', 'http://h', 'geheim'],
      ['serve', '--otel-exporter-otlp-headers', 'key=a', 'geheim'],
      ['--bakcend-url', 'geheim'],
      ['--docs', 'true', 'geheim'],
    ]) {
      const { code, stdout, stderr } = await run(args);
      assert.equal(code, 1);
      assert.doesNotMatch(stdout + stderr, /geheim/);
    }
  });

  test('the message says what is wrong and does not show the secret', async () => {
    for (const [value, expected] of [
      [`http://user:${secret}@h`, /user name and password/],
      [`http:user:${secret}@h`, /user name and password/],
      [`http://h?token=${secret}`, /without query/],
      [`ftp://user:${secret}@h?a`, /an http or https address and .*user name and password.* and .*without query/],
      [`//user:${secret}@h`, /must be an address, for instance http:/],
    ] as const) {
      assert.match(await firstProblem(['check'], { BACKEND_URL: value }), expected);
    }
  });

  test('a short value that cannot be a secret is shown', async () => {
    assert.equal(
      await firstProblem([], { PORT: '80 80' }),
      'PORT is "80 80", but must be a whole number from 0 to 65535',
    );
    assert.equal(
      await firstProblem(['--settings-file', 'no such/file.env']),
      'SETTINGS_FILE is "no such/file.env", which cannot be read (ENOENT)',
    );
  });
});

describe('suggestions for misspelt words', () => {
  const slips = [
    [['--bakend-url', 'x'], '--bakend-url is not a flag of serve: did you mean --backend-url?'],
    [['--HOST=x'], '--HOST is not a flag of serve: did you mean --host?'],
    [['--prot', '1'], '--prot is not a flag of serve: did you mean --port?'],
    [['--idle'], '--idle is not a flag of serve: did you mean --backend-idle-timeout-ms or --idle-timeout-ms?'],
    [['--hepl'], '--hepl is not a flag of serve: did you mean --help?'],
    [['--config', 'x'], '--config is not a flag of serve: did you mean --settings-file?'],
    [['--help=1'], '--help takes no value'],
    [['--zzz'], '--zzz is not a flag of serve'],
    [['-p', '80'], '-p is not a flag of serve: did you mean --port?'],
    [['-p8080'], '-p is not a flag of serve: did you mean --port?'],
    [['-P=80'], '-P is not a flag of serve: did you mean --port?'],
    [['--p', '80'], '--p is not a flag of serve: did you mean --port?'],
    [['-H', 'x'], '-H is not a flag of serve: did you mean --host?'],
    [['-b', 'x'], '-b is not a flag of serve: did you mean --backend-url?'],
    [['-u', 'x'], '-u is not a flag of serve: did you mean --backend-url?'],
    [['-w', '2'], '-w is not a flag of serve: did you mean --workers?'],
    [['-l', 'warn'], '-l is not a flag of serve: did you mean --log-level?'],
    [['-c', 'x'], '-c is not a flag of serve: did you mean --settings-file?'],
    [['-v'], '-v is not a flag of serve: did you mean --version?'],
    [['-x'], '-x is not a flag of serve'],
    [['-phunter2'], 'an argument (not shown) begins with a hyphen, but is not a flag of serve'],
    [['health', '-p', '1'], '-p is not a flag of health: did you mean --admin-port?'],
    [['backend', '-p', '1'], '-p is not a flag of backend: did you mean --embedded-backend-port?'],
    [['check', '-j'], '-j is not a flag of check: did you mean --json?'],
    [['--backend_url', 'x'], '--backend_url is not a flag of serve: did you mean --backend-url?'],
    [['--BACKEND_URL=hunter2'], '--BACKEND_URL is not a flag of serve: did you mean --backend-url?'],
    [['--log_levle', 'x'], '--log_levle is not a flag of serve: did you mean --log-level?'],
    [['dev', '--backend_url', 'x'], '--backend-url is not a flag of dev, only of serve, check or openapi'],
    [['--upstream', 'x'], '--upstream is not a flag of serve: did you mean --backend-url?'],
    [['BACKEND_URL=hunter2'], 'unexpected argument: did you mean --backend-url?'],
    [['serve', 'PORT=80'], 'unexpected argument: did you mean --port?'],
    [['dev', 'BACKEND_URL=hunter2'], 'unexpected argument: dev takes flags only'],
    [['http://hunter2'], 'unexpected argument: did you mean --backend-url?'],
    [['serve', '8080'], 'unexpected argument: did you mean --port?'],
    [['--embedded-backend-port', '1'], '--embedded-backend-port is not a flag of serve, only of dev or backend'],
    [['dev', '--backend-url', 'x'], '--backend-url is not a flag of dev, only of serve, check or openapi'],
    [['sevre'], "unknown command 'sevre': must be serve, dev, backend, check, openapi or health: did you mean serve?"],
    [['run'], "unknown command 'run': must be serve, dev, backend, check, openapi or health"],
    [['hunter2'], 'unknown command: must be serve, dev, backend, check, openapi or health'],
    [['serve', 'check'], "unexpected argument 'check': serve takes flags only"],
    [['health', '10k'], 'unexpected argument: health takes flags only'],
    [['--port', '0', 'zzz'], 'unexpected argument: serve takes flags only'],
    [['--port'], '--port needs a value'],
    [['check', '--json=x'], '--json takes no value'],
    [['check', '--contrac'], '--contrac is not a flag of check: did you mean --contract?'],
    [['serve', '--contract'], '--contract is not a flag of serve, only of check'],
  ] as const; // prettier-ignore
  for (const [args, expected] of slips) {
    test(`"${args.join(' ')}" gives the error: ${expected}`, async () => {
      assert.equal(await firstProblem(args), expected);
    });
  }

  test("a word after an unknown flag is not reported, because it may be the flag's value", async () => {
    const { stderr } = await run(['--nope', 'value', '--none=1', 'word']);
    assert.deepEqual(stderr.match(/^error: .*/gm), [
      'error: --nope is not a flag of serve',
      'error: --none is not a flag of serve',
    ]);
    const before = await run(['run', '--nope', 'value']);
    assert.deepEqual(before.stderr.match(/^error: .*/gm), [
      'error: --nope is not a flag of serve',
      "error: unknown command 'run': must be serve, dev, backend, check, openapi or health",
    ]);
  });

  test('a similar word differs by few edits or contains the word; swapping two letters is one edit', () => {
    assert.deepEqual(findSimilar('prot', ['part', 'port', 'parrot']), ['port']);
    assert.deepEqual(findSimilar('ab', ['abcdef']), []);
    assert.deepEqual(findSimilar('', ['a', 'b']), []);
    assert.deepEqual(findSimilar('port', ['port']), ['port']);
    assert.deepEqual(findSimilar('idle', ['--idle-timeout-ms', '--port']), ['--idle-timeout-ms']);
    assert.deepEqual(findSimilar('x'.repeat(10_000), ['port']), []);
    assert.deepEqual(findSimilar('abxa', ['abay']), []);
    assert.deepEqual(findSimilar('abcdexyz', ['abcdefgh']), ['abcdefgh']);
    assert.deepEqual(findSimilar('abcdefg', ['abcd']), ['abcd']);
    assert.deepEqual(findSimilar('le-ti', ['--idle-timeout-ms', '--port']), ['--idle-timeout-ms']);
    assert.deepEqual(findSimilar('--idle', ['idle-timeout-ms', 'port']), ['idle-timeout-ms']);
  });
});

describe('the command to run next', () => {
  const npm = (event: string, name = 'work-item-gateway') => ({ npm_lifecycle_event: event, npm_package_name: name });
  const invocations = [
    ['npm start', npm('start'), '/clone/scripts/start.cjs', ['dev'], 'npm start -- --help'],
    ['npm run serve', npm('serve'), '/clone/scripts/start.cjs', ['serve'], 'npm run serve -- --help'],
    ['npm run backend', npm('backend'), '/clone/scripts/start.cjs', ['backend'], 'npm run backend -- --help'],
    ['npm run check', npm('check'), '/clone/scripts/start.cjs', ['check'], 'npm run check -- --help'],
    [
      "another package's script",
      npm('start', 'shop'),
      '/shop/node_modules/.bin/work-item-gateway',
      ['serve'],
      'npx work-item-gateway serve --help',
    ],
    ['npm test', npm('test'), '/bin/work-item-gateway', ['serve'], 'work-item-gateway serve --help'],
    ['npx', {}, '/shop/node_modules/work-item-gateway/dist/command/main.js', ['serve'], 'npx work-item-gateway serve --help'],
    ['an installed command', {}, '/usr/local/bin/work-item-gateway', ['serve'], 'work-item-gateway serve --help'],
    ['a file below the current folder', {}, resolve('dist/command/main.js'), ['serve'], 'node dist/command/main.js serve --help'],
    ['a file in another folder', {}, '/opt/gateway/main.js', ['serve'], 'node /opt/gateway/main.js serve --help'],
    ['a file whose path has a space', {}, '/opt/the gateway/main.js', ['serve'], 'node "/opt/the gateway/main.js" serve --help'],
  ] as const; // prettier-ignore
  for (const [title, environment, script, args, expected] of invocations) {
    test(`started with ${title}, the gateway suggests ${expected}`, async () => {
      const { stderr } = await run([...args, '--nope'], environment, script);
      assert.equal(/`(.*)` lists every setting\.\n$/.exec(stderr)?.[1], expected);
    });
  }

  test('under npm, the help shows usage and examples as npm commands', async () => {
    const script = '/clone/scripts/start.cjs';
    const { stdout } = await run(['serve', '--help'], npm('serve'), script);
    assert.match(stdout, /^Usage: npm run serve -- \[flags\]\n/);
    assert.match(stdout, /^ {2}npm run serve -- --backend-url http:/m);
    assert.doesNotMatch(stdout, /work-item-gateway/);
  });

  test('a flag that npm took as its own is reported, not ignored', async () => {
    const taken = { npm_config_port: '8080', npm_config_backend_url: 'http://user:hunter2@h', npm_config_fund: '' };
    const { code, stderr } = await run(['serve'], { ...npm('serve'), ...taken }, '/clone/scripts/start.cjs');
    assert.equal(code, 1);
    assert.deepEqual(stderr.match(/^error: .*/gm), [
      'error: npm took --port as a flag of its own: put `--` before it, as in npm run serve -- --port ...',
      'error: npm took --backend-url as a flag of its own: put `--` before it, as in npm run serve -- --backend-url ...',
    ]);
    // npm's settings may have `audit`, too.
    const audit = await run(
      ['check', '--help'],
      { ...npm('check'), npm_config_audit: 'false' },
      '/clone/scripts/start.cjs',
    );
    assert.equal(audit.code, 0);
    const checked = await run(['check'], { ...npm('check'), npm_config_audit: '' }, '/clone/scripts/start.cjs');
    assert.doesNotMatch(checked.stderr, /npm took/);
    // In a script of another package, npm's variables are ignored.
    const elsewhere = await run(['openapi'], { ...npm('serve', 'shop'), ...taken });
    assert.equal(elsewhere.code, 0);
  });
});

describe('--help', () => {
  for (const command of ['serve', 'dev', 'backend', 'check', 'openapi', 'health'] as const) {
    test(`the help of ${command} lists the settings in groups, each setting with its default and variable, then options and examples`, async () => {
      const { code, stdout } = await run([command, '--help']);
      assert.equal(code, 0);
      const titles = [...stdout.matchAll(/^(\S.*):$/gm)].map((match) => match[1] ?? '');
      const expected = Object.values(settingGroups).map(({ title }) => title as string);
      assert.deepEqual(
        titles.filter((title) => expected.includes(title)),
        expected.filter((title) => titles.includes(title)),
      );
      assert.deepEqual(titles.slice(-2), ['Options', 'Examples']);
      for (const name of settingsOf(command)) {
        const line = stdout.split('\n').find((each) => each.startsWith(`  ${flagOf(name)} `)) ?? '';
        assert.ok(line.includes(briefOf(name)) && / \(.*default .*; [A-Z0-9_]+\)$/.test(line), line);
        assert.ok(line.endsWith(`; ${variableOf(name)})`), line);
      }
    });
  }

  test('the help begins with the settings that README.md lists, with BACKEND_URL first', async () => {
    const [, list = ''] = /Most operators change ([^.]*)\./.exec(readFileSync('README.md', 'utf8')) ?? [];
    const variables = [...list.matchAll(/`(\w+)`/g)].map(([, name]) => name);
    assert.deepEqual(variables, mostUsed.map(variableOf));
    for (const [command, count] of [
      ['serve', 7],
      ['openapi', 7],
      ['dev', 5],
    ] as const) {
      const { stdout } = await run([command, '--help']);
      const [, first = ''] = /^Most used:\n((?: .*\n)*)\n/m.exec(stdout) ?? [];
      const shown = [...first.matchAll(/; ([A-Z_]+)\)$/gm)].map(([, name]) => name);
      assert.deepEqual(
        shown,
        variables.filter((name) => stdout.includes(`; ${name})`)),
      );
      assert.equal(shown.length, count);
      assert.ok(stdout.indexOf('Most used:') < stdout.indexOf('--admin-host'));
    }
  });

  test('each setting has a short description; it is on one line if the output is not a terminal', async () => {
    for (const name of settingNames) assert.ok(briefOf(name).length <= 80, briefOf(name));
    const { stdout } = await run(['serve', '--help']);
    assert.ok(stdout.split('\n').length <= settingsOf('serve').length + 47);
  });

  test('no line is wider than the terminal, except a word that is too long for its column', async () => {
    const { stdout } = await run(['serve', '--help'], {}, undefined, 80);
    assert.ok(stdout.includes('\n  --port <port>\n      Port to listen on for clients (default 3000; PORT)\n'));
    for (const line of stdout.split('\n'))
      assert.ok(line.length <= 80 || /^ +(?:\S+|.* --host :: .*)$/.test(line), line);
  });

  test('each command has help and --version', async () => {
    for (const command of ['serve', 'dev', 'backend', 'check', 'openapi', 'health']) {
      assert.match((await run([command, '--version'])).stdout, /^\d+\.\d+\.\d+\n$/);
      assert.equal((await run(['help', command])).stdout, (await run([command, '-h'])).stdout);
    }
  });
});
