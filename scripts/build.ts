// Builds dist/ for publishing: compiles with tsc, then copies the files that tsc does not write.

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
// Handwritten types for CommonJS.
for (const path of globSync('packages/**/*.d.cts')) cpSync(path, path.replace('packages', 'dist'));
// dist/core is a package of its own, for programs that embed the gateway. It imports no file outside itself.
for (const name of ['package.json', 'README.md']) cpSync(`packages/core/${name}`, `dist/core/${name}`);
cpSync('LICENSE', 'dist/core/LICENSE');
embedScanner();
// The API reference: its page, and the files of Swagger UI that `npm run build:docs` copied.
cpSync('packages/command/api-reference/page', 'dist/command/api-reference/page', { recursive: true });
cpSync('packages/command/api-reference/swagger-ui', 'dist/command/api-reference/swagger-ui', { recursive: true });
// The dashboard's page is not compiled: browsers load the sources.
if (existsSync('packages/dashboard')) {
  cpSync('packages/dashboard/page', 'dist/dashboard/page', {
    recursive: true,
    filter: (path) => !path.endsWith('tsconfig.json'),
  });
}

// Puts the compiled scanner into the code that uses it, because bundlers include imports but not files read at run time.
// `npm run build:scanner`, which `npm ci` runs, compiles the scanner.
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
  if (embedded === code) throw new Error(`${file} has no loadScanner function that this build can replace`);
  writeFileSync(file, embedded);
}
