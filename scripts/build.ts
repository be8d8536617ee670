// Builds dist/ for publishing: JavaScript and declarations by tsc, and what tsc does not copy.

import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
process.chdir(root);
rmSync('dist', { recursive: true, force: true });
execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json'], {
  stdio: 'inherit',
});
chmodSync('dist/main.js', 0o755);
cpSync('src/index.d.cts', 'dist/index.d.cts');
// Compiled by `npm run build:scanner`, which `npm ci` runs.
cpSync('src/json/scanner.wasm', 'dist/json/scanner.wasm');
// The API reference: our page, and what `npm run build:docs` has copied beside it.
cpSync('src/docs/page', 'dist/docs/page', { recursive: true });
cpSync('src/docs/swagger-ui', 'dist/docs/swagger-ui', { recursive: true });
// The dashboard's page is not compiled: a browser gets what is written.
cpSync('src/dashboard/page', 'dist/dashboard/page', {
  recursive: true,
  filter: (path) => !path.endsWith('tsconfig.json'),
});
