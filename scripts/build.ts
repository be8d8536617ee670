// Builds dist/ for publishing: JavaScript and declarations by tsc, and what tsc does not copy.

import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
process.chdir(root);
rmSync('dist', { recursive: true, force: true });
execFileSync(process.execPath, ['node_modules/typescript-7/bin/tsc', '-p', 'tsconfig.build.json'], {
  stdio: 'inherit',
});
chmodSync('dist/command/main.js', 0o755);
// Types for CommonJS, written by hand.
for (const path of globSync('packages/**/*.d.cts')) cpSync(path, path.replace('packages', 'dist'));
// dist/core is a package of its own, for those who embed the gateway: nothing in it leads outside.
for (const name of ['package.json', 'README.md']) cpSync(`packages/core/${name}`, `dist/core/${name}`);
cpSync('LICENSE', 'dist/core/LICENSE');
embedScanner();
// The API reference: our page, and what `npm run build:docs` has copied beside it.
cpSync('packages/command/api-reference/page', 'dist/command/api-reference/page', { recursive: true });
cpSync('packages/command/api-reference/swagger-ui', 'dist/command/api-reference/swagger-ui', {
  recursive: true,
});
// The dashboard's page is not compiled: a browser gets what is written.
if (existsSync('packages/dashboard')) {
  cpSync('packages/dashboard/page', 'dist/dashboard/page', {
    recursive: true,
    filter: (path) => !path.endsWith('tsconfig.json'),
  });
}

// A bundler takes what is imported, and no file that is read: so the scanner, compiled by `npm run build:scanner`, which
// `npm ci` runs, stands in the code that uses it.
function embedScanner(): void {
  const file = 'dist/core/json/json.js';
  const code = readFileSync(file, 'utf8');
  const scanner = readFileSync('packages/core/json/scanner.wasm').toString('base64');
  const embedded = code.replace(
    /function loadScanner\(\) \{\n.*?\n\}\n/s,
    `function loadScanner() {
    const code = Buffer.from('${scanner}', 'base64');
    return new WebAssembly.Instance(new WebAssembly.Module(code)).exports;
}
`,
  );
  if (embedded === code) {
    throw new Error(`${file} does not load the scanner as the build knows it`);
  }
  writeFileSync(file, embedded);
}
