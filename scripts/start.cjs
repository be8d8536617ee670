// Entry point of `npm start`, `npm run serve` and similar scripts. Reports missing packages, missing files or an old Node.
// If all is well, runs packages/command/main.ts in this process. The syntax is that of the oldest Node whose npm can read
// our lock file.

'use strict';

// Loading the gateway takes 0.1 s or more. The gateway's first listener gets the signals that arrive meanwhile.
['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1'].forEach(function (signal) {
  let hasCome = false;
  function hold() {
    hasCome = true;
  }
  function passOn(name, listener) {
    if (name !== signal) return;
    process.removeListener('newListener', passOn);
    process.nextTick(function () {
      process.removeListener(signal, hold);
      if (hasCome) listener(signal);
    });
  }
  process.on(signal, hold);
  process.on('newListener', passOn);
});

const fs = require('fs');
const path = require('path');
const url = require('url');

const root = path.join(__dirname, '..');

// Built by `npm run dependencies`, which `npm ci` runs.
const builtFile = 'packages/core/json/scanner.wasm';

function findProblem() {
  if (!isInstalled('commander')) return 'the required packages are not installed: run `npm ci` first';
  const oldest = /[0-9]+[.][0-9]+/.exec(readManifest('.').engines.node)[0];
  if (isOlder(process.versions.node, oldest)) {
    const ours = Object.keys(readManifest('scripts/node').optionalDependencies);
    return (
      'this needs Node ' +
      oldest +
      ' or newer, and `node` is ' +
      process.version +
      ' here\n' +
      (ours.some(isInstalled)
        ? "  Start it with npm. If that fails too, `npm run dependencies` repairs the link to this project's Node."
        : '  `npm ci` installs the right Node on Linux with glibc and macOS (x64, arm64) and Windows (x64), unless\n' +
          '  development or optional packages are omitted (--omit, NODE_ENV=production). Elsewhere install a newer Node.')
    );
  }
  if (!fs.existsSync(path.join(root, builtFile))) {
    return (
      builtFile +
      ' has not been built\n' +
      (isInstalled('assemblyscript')
        ? '  `npm run dependencies` builds this; so does `npm ci` without --ignore-scripts.'
        : '  Run `npm ci` without --omit, --ignore-scripts and NODE_ENV=production to build this.')
    );
  }
  return undefined;
}

function readManifest(folder) {
  return JSON.parse(fs.readFileSync(path.join(root, folder, 'package.json'), 'utf8'));
}

function isInstalled(name) {
  return fs.existsSync(path.join(root, 'node_modules', name, 'package.json'));
}

function isOlder(version, oldest) {
  const have = version.split('.').map(Number);
  const want = oldest.split('.').map(Number);
  return have[0] < want[0] || (have[0] === want[0] && have[1] < want[1]);
}

const problem = findProblem();
if (problem === undefined) {
  void import(url.pathToFileURL(path.join(root, 'packages/command/main.ts')).href);
} else {
  process.stderr.write('error: ' + problem + '\n');
  process.exitCode = 1;
}
