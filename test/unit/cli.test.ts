// The command's output: help, suggestions and the command to run next. It shows no secrets [D30, D32].

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { createGatewayServer } from '../../packages/core/hosts/index.ts';
import { commandNames, settingGroups } from '../../packages/command/settings/groups.ts';
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
import { useFolder } from '../helpers/suites.ts';

/** Returns the problems that the command writes to stderr. */
async function problemsOf(args: readonly string[], environment?: Record<string, string>): Promise<readonly string[]> {
  const { code, stderr } = await run(args, environment);
  assert.equal(code, 1);
  return [...stderr.matchAll(/^error: (.*)$/gm)].map(([, problem = '']) => problem);
}

const folder = useFolder();

function fileOf(text: string): string {
  const file = join(folder, 'settings.env');
  writeFileSync(file, text);
  return file;
}

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
  const some = [0, 10, 29, 37, 38].map((index) => spellings[index] ?? '');

  // Places where a user may put a secret by mistake.
  const places: Record<string, (spelling: string) => [args: string[], environment?: Record<string, string>]> = {
    'the value of BACKEND_URL': (text) => [['serve'], { BACKEND_URL: text }],
    'the value after --backend-url=': (text) => [['serve', `--backend-url=${text}`]],
    'the value of --backend-url for check': (text) => [['check', '--backend-url', text]],
    'the value of BACKEND_URL for openapi': (text) => [['openapi'], { BACKEND_URL: text }],
    'the value of a misspelt flag': (text) => [['serve', '--bakcend-url', text]],
    'the value after a misspelt flag and =': (text) => [['serve', `--bakcend-url=${text}`]],
    'the value of a flag of another command': (text) => [['dev', '--backend-url', text]],
    'a command': (text) => [[text]],
    'an argument of serve': (text) => [['serve', text]],
    'a second argument': (text) => [['serve', 'backend', text]],
    'an unknown flag': (text) => [['serve', `--${text}`]],
    'an unknown short flag': (text) => [['serve', `-${text}`]],
    'a value in a settings file': (text) => [
      ['serve', '--settings-file', fileOf(`BACKEND_URL='${text.replaceAll('\n', '')}'\n`)],
    ],
    'malformed lines of a settings file': (text) => [
      ['serve', '--settings-file', fileOf(`${text}\na${text}=1\nBACKEND_URL: ${text}\nBACKEND_URL ${text}=\n`)],
    ],
    'the database of the embedded backend': (text) => [
      ['backend', '--embedded-backend-port=0', '--embedded-backend-database', `${folder}/none/${text}`],
    ],
  };

  const assertHidden = async (args: readonly string[], environment?: Record<string, string>): Promise<void> => {
    const { code, stdout, stderr } = await run(args, environment);
    assert.equal(code, 1, stderr);
    assert.match(stderr, /^error: ./);
    assert.doesNotMatch(stdout + stderr, /hunter2|geheim/i);
  };

  for (const [place, put] of Object.entries(places)) {
    test(`${spellings.length} spellings of a secret as ${place} are refused and not shown`, async () => {
      for (const spelling of spellings) await assertHidden(...put(spelling));
    });
  }

  test('a secret as the value of any setting is not shown', async () => {
    for (const name of settingsOf('serve')) {
      // The invalid port makes the command fail even if the setting accepts any text.
      const args = ['serve', name === 'port' ? '--admin-port=x' : '--port=x'];
      for (const spelling of some) await assertHidden(args, { [variableOf(name)]: spelling });
    }
  });

  test('an error of the constructor shows no secret in its message, stack or properties', () => {
    for (const backendUrl of spellings) {
      assert.throws(
        () => createGatewayServer({ backendUrl }),
        (error) => {
          assert.ok(error instanceof TypeError);
          assert.match(error.message, /backendUrl must be an? /);
          const shown = `${String(error.stack)} ${JSON.stringify(error, Object.getOwnPropertyNames(error))}`;
          assert.doesNotMatch(shown, /hunter2/i);
          return true;
        },
      );
    }
  });

  test("a word that may be part of a flag's value is not shown, because a secret may consist of letters", async () => {
    await assertHidden(['--backend-url', 'http://h', 'geheim']);
    await assertHidden(['serve', '--otel-exporter-otlp-headers', 'key=a', 'geheim']);
    await assertHidden(['--bakcend-url', 'geheim']);
    await assertHidden(['--docs', 'true', 'geheim']);
  });

  test('a short value that cannot be a secret is shown', async () => {
    const [port] = await problemsOf([], { PORT: '80 80' });
    assert.equal(port, 'PORT is "80 80", but must be a whole number from 0 to 65535');
    const [file] = await problemsOf(['--settings-file', 'no such/file.env']);
    assert.equal(file, 'SETTINGS_FILE is "no such/file.env", which cannot be read (ENOENT)');
  });
});

describe('a refused address of the backend: the message has the address that was probably meant', () => {
  const problemOf = async (address: string): Promise<string | undefined> => {
    // The invalid port prevents a start if the address is accepted.
    const problems = await problemsOf(['serve', '--port', 'x'], { BACKEND_URL: address });
    return problems.find((problem) => problem.startsWith('BACKEND_URL '))?.slice('BACKEND_URL '.length);
  };
  const pasted = 'an address without the path of the work items (the gateway adds /api/WorkItem)';

  test('it is pasted with the path of the work items', async () => {
    for (const [given, meant] of [
      ['http://localhost:5104/api/WorkItem', 'http://localhost:5104'], ['http://h:1/api/WorkItem/', 'http://h:1'],
      ['https://h/base/API/workitem', 'https://h/base'], ['http://h/api/WorkItem/12', 'http://h'],
      ['http://h/api/WorkItem/{id}', 'http://h'], ['http://h//api//WorkItems', 'http://h'],
      ['http://h/api/work-items', 'http://h'], ['http://h/base/api/work-items/7/', 'http://h/base'],
      ['http:\\\\h\\api\\WorkItem', 'http://h'], ['http://h/api/WorkItem/api/WorkItem', 'http://h'],
    ] as const) {
      assert.equal(await problemOf(given), `must be ${pasted}: did you mean ${meant}?`);
    } // prettier-ignore
    for (const query of ['?top=5&key=hunter2', '#hunter2', '%3Fkey=hunter2']) {
      assert.equal(
        await problemOf(`http://h:1/base/api/WorkItem${query}`),
        `must be an address without query and fragment and ${pasted}: did you mean http://h:1/base?`,
      );
    }
  });

  test('other paths are base paths, the host may be called api, and white space around it has no effect', async () => {
    for (const path of ['', '/', '/api', '/api/', '/WorkItem', '/api/WorkItemService', '/api/v1/WorkItem']) {
      assert.equal(await problemOf(`http://h${path}`), undefined);
    }
    for (const address of ['http://api/work-items', 'http://api:5104/WorkItem', ' http://backend:5104\t']) {
      assert.equal(await problemOf(address), undefined);
    }
  });

  test('it is mistyped', async () => {
    for (const [given, meant] of [
      ['backend:5104', 'http://backend:5104'], ['back_end:5104', 'http://back_end:5104'], ['localhost', 'http://localhost'],
      ['10.0.0.7', 'http://10.0.0.7'], ['[::1]:5104', 'http://[::1]:5104'], ['backend:1/api/WorkItem', 'http://backend:1'],
      ['//backend', 'http://backend'], ['//backend:5104/base/', 'http://backend:5104/base'], ['://backend', 'http://backend'],
      ['http//backend', 'http://backend'], ['http:/backend:5104', 'http://backend:5104'], ['http:backend', 'http://backend'],
      ['HTTPS:\\backend/base', 'https://backend/base'], ['http:/backend/api/WorkItem', 'http://backend'],
      ['htp://backend', 'http://backend'], ['htps://backend', 'https://backend'], ['http://http://backend', 'http://backend'],
      ['http://https://backend', 'https://backend'], ['http:// backend:5104', 'http://backend:5104'],
      ['http://backend: 5104', 'http://backend:5104'], ['"http://backend:5104"', 'http://backend:5104'],
      ['http://backend:5104:80', 'http://backend:5104 or http://backend:80'], ['http://::1:5104', 'http://[::1]:5104'],
      ['http://fe80::1', 'http://[fe80::1]'],
    ] as const) {
      const problem = await problemOf(given) ?? '';
      assert.match(problem, /^must be an /);
      assert.ok(problem.endsWith(`: did you mean ${meant}?`), problem);
    } // prettier-ignore
  });

  test('it may have a password, or may be a secret: it is not shown, and the message says what is wrong', async () => {
    for (const given of [
      'hunter2', 'hunter2/base', 'user:hunter2', '//user:hunter2@backend', 'http://user:hunter2@h/api/WorkItem',
      'http://user:hunter2%40h:1:2', 'redis://hunter2:6379', 'http://h:1,http://hunter2:2', 'http://a http://hunter2',
    ]) {
      const problem = await problemOf(given) ?? '';
      assert.match(problem, /, for instance http:\/\/localhost:5104$/);
      assert.doesNotMatch(problem, /hunter2/);
    } // prettier-ignore
    for (const [given, expected] of [
      ['http://user:hunter2@h', /user name and password/],
      ['http:user:hunter2@h', /user name and password/],
      ['http://h?token=hunter2', /without query/],
      ['ftp://user:hunter2@h?a', /an http or https address and .*user name and password.* and .*without query/],
      ['//user:hunter2@h', /must be an address, for instance http:/],
    ] as const) {
      assert.match((await problemOf(given)) ?? '', expected);
    }
  });
});

describe('suggestions for misspelt words', () => {
  const slips = [
    [['--bakend-url', 'x'], '--bakend-url is not a flag of serve: did you mean --backend-url?'],
    [['--prot', '1'], '--prot is not a flag of serve: did you mean --port?'],
    [['--idle'], '--idle is not a flag of serve: did you mean --backend-idle-timeout-ms or --idle-timeout-ms?'],
    [['--hepl'], '--hepl is not a flag of serve: did you mean --help?'],
    [['--config', 'x'], '--config is not a flag of serve: did you mean --settings-file?'],
    [['--help=1'], '--help takes no value'],
    [['--zzz'], '--zzz is not a flag of serve'],
    [['-p', '80'], '-p is not a flag of serve: did you mean --port?'],
    [['-p8080'], '-p is not a flag of serve: did you mean --port?'],
    [['--p', '80'], '--p is not a flag of serve: did you mean --port?'],
    [['-H', 'x'], '-H is not a flag of serve: did you mean --host?'],
    [['-b', 'x'], '-b is not a flag of serve: did you mean --backend-url?'],
    [['-c', 'x'], '-c is not a flag of serve: did you mean --settings-file?'],
    [['-v'], '-v is not a flag of serve: did you mean --version?'],
    [['-x'], '-x is not a flag of serve'],
    [['-phunter2'], 'an argument (not shown) begins with a hyphen, but is not a flag of serve'],
    [['health', '-p', '1'], '-p is not a flag of health: did you mean --admin-port?'],
    [['backend', '-p', '1'], '-p is not a flag of backend: did you mean --embedded-backend-port?'],
    [['--backend_url', 'x'], '--backend_url is not a flag of serve: did you mean --backend-url?'],
    [['--BACKEND_URL=hunter2'], '--BACKEND_URL is not a flag of serve: did you mean --backend-url?'],
    [['dev', '--backend_url', 'x'], '--backend-url is not a flag of dev, only of serve, check or openapi'],
    [['--upstream', 'x'], '--upstream is not a flag of serve: did you mean --backend-url?'],
    [['BACKEND_URL=hunter2'], 'unexpected argument: did you mean --backend-url?'],
    [['serve', 'PORT=80'], 'unexpected argument: did you mean --port?'],
    [['dev', 'BACKEND_URL=hunter2'], 'unexpected argument: dev takes flags only'],
    [['http://hunter2'], 'unexpected argument: did you mean --backend-url?'],
    [['serve', '8080'], 'unexpected argument: did you mean --port?'],
    [['--embedded-backend-port', '1'], '--embedded-backend-port is not a flag of serve, only of dev or backend'],
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
  test('each has its own message', async () => {
    for (const [args, expected] of slips) {
      assert.equal((await problemsOf(args))[0], expected, args.join(' '));
    }
  });

  test("a word after an unknown flag is not reported, because it may be the flag's value", async () => {
    const unknown = ['--nope is not a flag of serve', '--none is not a flag of serve'];
    assert.deepEqual(await problemsOf(['--nope', 'value', '--none=1', 'word']), unknown);
    const run = "unknown command 'run': must be serve, dev, backend, check, openapi or health";
    assert.deepEqual(await problemsOf(['run', '--nope', 'value']), [unknown[0], run]);
  });

  test('a similar word differs by few edits or contains the word; swapping two letters is one edit', () => {
    for (const [word, words, found] of [
      ['prot', ['part', 'port', 'parrot'], ['port']],
      ['ab', ['abcdef'], []],
      ['', ['a', 'b'], []],
      ['port', ['port'], ['port']],
      ['idle', ['--idle-timeout-ms', '--port'], ['--idle-timeout-ms']],
      ['x'.repeat(10_000), ['port'], []],
      ['abxa', ['abay'], []],
      ['abcdexyz', ['abcdefgh'], ['abcdefgh']],
      ['abcdefg', ['abcd'], ['abcd']],
      ['le-ti', ['--idle-timeout-ms', '--port'], ['--idle-timeout-ms']],
      ['--idle', ['idle-timeout-ms', 'port'], ['idle-timeout-ms']],
    ] as const) {
      assert.deepEqual(findSimilar(word, words), found);
    }
  });
});

describe('the command to run next', () => {
  const npm = (event: string, name = 'work-item-gateway') => ({ npm_lifecycle_event: event, npm_package_name: name });
  const clone = '/clone/scripts/start.cjs';
  const installed = '/shop/node_modules/.bin/work-item-gateway';
  const main = 'dist/command/main.js';
  const invocations = [
    ['npm start', npm('start'), clone, ['dev'], 'npm start -- --help'],
    ['npm run serve', npm('serve'), clone, ['serve'], 'npm run serve -- --help'],
    ['npm run check', npm('check'), clone, ['check'], 'npm run check -- --help'],
    ["another package's script", npm('start', 'shop'), installed, ['serve'], 'npx work-item-gateway serve --help'],
    ['npm test', npm('test'), '/bin/work-item-gateway', ['serve'], 'work-item-gateway serve --help'],
    ['npx', {}, `/shop/node_modules/work-item-gateway/${main}`, ['serve'], 'npx work-item-gateway serve --help'],
    ['an installed command', {}, '/usr/local/bin/work-item-gateway', ['serve'], 'work-item-gateway serve --help'],
    ['a file below the current folder', {}, resolve(main), ['serve'], `node ${main} serve --help`],
    ['a file in another folder', {}, '/opt/gateway/main.js', ['serve'], 'node /opt/gateway/main.js serve --help'],
    ['a path with a space', {}, '/opt/the gateway/main.js', ['serve'], 'node "/opt/the gateway/main.js" serve --help'],
  ] as const;
  test('the suggested command fits the way in which the gateway was started', async () => {
    for (const [title, environment, script, args, expected] of invocations) {
      const { stderr } = await run([...args, '--nope'], environment, script);
      const [, start, suggested] = /\n(.*)`(.*)` lists every setting\.\n$/.exec(stderr) ?? [];
      assert.deepEqual([start, suggested], [args[0] === 'check' ? '' : 'Nothing was started. ', expected], title);
    }
    const { stdout } = await run(['serve', '--help'], npm('serve'), clone);
    assert.match(stdout, /^Usage: npm run serve -- \[flags\]\n/);
    assert.match(stdout, /^ {2}npm run serve -- --backend-url http:/m);
    assert.doesNotMatch(stdout, /work-item-gateway/);
  });

  test('a flag that npm took as its own is reported, not ignored', async () => {
    const taken = { npm_config_port: '8080', npm_config_backend_url: 'http://user:hunter2@h', npm_config_fund: '' };
    const { code, stderr } = await run(['serve'], { ...npm('serve'), ...taken }, clone);
    assert.equal(code, 1);
    const problemOf = (flag: string) =>
      `error: npm took ${flag} as a flag of its own: put \`--\` before it, as in npm run serve -- ${flag} ...`;
    assert.deepEqual(stderr.match(/^error: .*/gm), [problemOf('--port'), problemOf('--backend-url')]);
    // npm's settings may have `audit`, too.
    const audit = await run(['check', '--help'], { ...npm('check'), npm_config_audit: 'false' }, clone);
    assert.equal(audit.code, 0);
    const checked = await run(['check'], { ...npm('check'), npm_config_audit: '' }, clone);
    assert.doesNotMatch(checked.stderr, /npm took/);
    // In a script of another package, npm's variables are ignored.
    const elsewhere = await run(['openapi'], { ...npm('serve', 'shop'), ...taken });
    assert.equal(elsewhere.code, 0);
  });
});

describe('--help', () => {
  test('the help of a command lists its settings in groups, each with its default and variable, then options and examples', async () => {
    const known = Object.values(settingGroups).map(({ title }) => title as string);
    for (const command of commandNames) {
      const { code, stdout } = await run([command, '--help']);
      assert.equal(code, 0);
      const titles = [...stdout.matchAll(/^(\S.*):$/gm)].map((match) => match[1] ?? '');
      const groups = known.filter((title) => titles.includes(title));
      assert.deepEqual(
        titles.filter((title) => known.includes(title)),
        groups,
      );
      assert.deepEqual(titles.slice(-2), ['Options', 'Examples']);
      for (const name of settingsOf(command)) {
        const line = stdout.split('\n').find((each) => each.startsWith(`  ${flagOf(name)} `)) ?? '';
        assert.ok(line.includes(briefOf(name)) && / \(.*default .*; [A-Z0-9_]+\)$/.test(line), line);
        assert.ok(line.endsWith(`; ${variableOf(name)})`), line);
      }
      assert.match((await run([command, '--version'])).stdout, /^\d+\.\d+\.\d+\n$/);
      assert.equal((await run(['help', command])).stdout, (await run([command, '-h'])).stdout);
    }
  });

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

  test('each setting has a short description, on one line if the output is not a terminal; in a terminal, no line is too wide', async () => {
    for (const name of settingNames) assert.ok(briefOf(name).length <= 80, briefOf(name));
    const whole = await run(['serve', '--help']);
    assert.ok(whole.stdout.split('\n').length <= settingsOf('serve').length + 47);
    const { stdout } = await run(['serve', '--help'], {}, undefined, 80);
    assert.ok(stdout.includes('\n  --port <port>\n      Port to listen on for clients (default 3000; PORT)\n'));
    for (const line of stdout.split('\n')) {
      assert.ok(line.length <= 80 || /^ +(?:\S+|.* --host :: .*)$/.test(line), line);
    }
  });
});
