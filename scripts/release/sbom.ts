// Writes sbom.cyclonedx.json and sbom.spdx.json of the installed package into the given folder, by default build/.

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import { createFolder, createSbom, packAndInstall, root, sbomFormats } from './package.ts';

const target = resolve(process.argv[2] ?? join(root, 'build'));
const folder = createFolder();
try {
  const installed = await packAndInstall(folder);
  mkdirSync(target, { recursive: true });
  for (const format of sbomFormats) {
    const file = join(target, `sbom.${format}.json`);
    writeFileSync(file, await createSbom(installed, format));
    console.log(file);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
