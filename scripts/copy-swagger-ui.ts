// Copies what the API reference needs of Swagger UI next to our page, as `npm ci` does too. It is no dependency
// of the product: these files are part of what is built and packed, and the rest of that package is not.

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
  // Says which version it is, to whatever lists what an image holds.
  'package.json',
  // Apache-2.0, section 4: whoever passes the files on passes these on.
  'LICENSE',
  'NOTICE',
  'swagger-ui-bundle.js.LICENSE.txt',
]) {
  copyFileSync(join(from, name), join(to, name));
}
