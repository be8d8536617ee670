// Links node_modules/.bin/node to the platform's Node where npm has not: up to npm 10 it takes the link away again with
// the packages of the other platforms, which have a program of that name, too. For any Node, as start.cjs.

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
  // One that leads nowhere does not exist.
  if (fs.existsSync(file)) {
    return;
  }
  fs.mkdirSync(folder, { recursive: true });
  try {
    fs.unlinkSync(file);
  } catch (error) {
    if (error.code !== 'ENOENT') {
      throw error;
    }
  }
  if (isWindows) {
    fs.writeFileSync(file, `@"%~dp0${target}" %*\r\n`);
  } else {
    fs.symlinkSync(target, file);
  }
}
