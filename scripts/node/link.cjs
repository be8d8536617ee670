// Links node_modules/.bin/node to the platform's Node if the link is missing. npm 10 and older versions remove the
// link together with the packages for other platforms, because each of these packages has a program `node`. As in
// start.cjs, the syntax is for old versions of Node.

'use strict';

const fs = require('fs');
const path = require('path');

const modules = path.join(__dirname, '../../node_modules');
const names = Object.keys(require('./package.json').optionalDependencies);

for (const name of names) {
  const manifest = path.join(modules, name, 'package.json');
  if (fs.existsSync(manifest)) {
    const { os, cpu, bin } = JSON.parse(fs.readFileSync(manifest, 'utf8'));
    if ([].concat(os).includes(process.platform) && [].concat(cpu).includes(process.arch)) {
      link(path.join('..', name, bin.node));
    }
  }
}

function link(target) {
  const folder = path.join(modules, '.bin');
  const isWindows = process.platform === 'win32';
  const file = path.join(folder, isWindows ? 'node.cmd' : 'node');
  // `existsSync` is false for a broken link, so a broken link is replaced.
  if (fs.existsSync(file)) return;
  fs.mkdirSync(folder, { recursive: true });
  try {
    fs.unlinkSync(file);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  if (isWindows) {
    fs.writeFileSync(file, `@"%~dp0${target}" %*\r\n`);
  } else {
    fs.symlinkSync(target, file);
  }
}
