// Copies the files of Swagger UI that the API reference needs; `npm ci` runs this. The published package contains the copies
// and does not depend on Swagger UI.

import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const from = dirname(fileURLToPath(import.meta.resolve('swagger-ui-dist/package.json')));
const to = fileURLToPath(new URL('../packages/command/api-reference/swagger-ui', import.meta.url));

rmSync(to, { recursive: true, force: true });
mkdirSync(to);
for (const name of [
  'swagger-ui-bundle.js',
  'swagger-ui.css',
  // Tells the version to tools that list an image's contents.
  'package.json',
  // Required for redistribution by Apache-2.0, section 4.
  'LICENSE',
  'NOTICE',
  'swagger-ui-bundle.js.LICENSE.txt',
]) {
  copyFileSync(join(from, name), join(to, name));
}
