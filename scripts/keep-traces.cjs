// For the image: turns the optional peers for traces into dependencies, so that `npm prune --omit=dev` keeps them.

'use strict';

const fs = require('fs');

const isForTraces = ([name]) => name.startsWith('@opentelemetry/');
const without = (list) => Object.fromEntries(Object.entries(list).filter((each) => !isForTraces(each)));

const manifest = JSON.parse(fs.readFileSync('package.json', 'utf8'));
const { dependencies, devDependencies, peerDependencies } = manifest;
const kept = Object.entries(devDependencies).filter(isForTraces);
Object.assign(manifest, {
  dependencies: { ...dependencies, ...Object.fromEntries(kept) },
  devDependencies: without(devDependencies),
  peerDependencies: without(peerDependencies),
});
fs.writeFileSync('package.json', JSON.stringify(manifest, null, 2) + '\n');
