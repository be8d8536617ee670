// Builds dist/ for publishing: compiles with tsc, bundles the command, and copies the files that tsc does not write.

import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

import { build, transformSync, type OnLoadArgs, type OnLoadResult } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));
process.chdir(root);
const compiled = 'build/compiled';
for (const folder of ['dist', compiled]) rmSync(folder, { recursive: true, force: true });
execFileSync(process.execPath, ['node_modules/typescript-7/bin/tsc', '-p', 'tsconfig.build.json'], {
  stdio: 'inherit',
});
embedScanner();
embedVersion();
// dist/core is a package of its own, for programs that embed the gateway. It imports no file outside itself.
cpSync(`${compiled}/core`, 'dist/core', { recursive: true });
// Without comments, so that the package is smaller.
for (const path of globSync('dist/core/**/*.js')) {
  writeFileSync(path, transformSync(readFileSync(path, 'utf8'), { format: 'esm', target: 'es2024' }).code);
}
// The types keep their comments, without marks such as `[D35]`: the package lacks the documents that explain them.
for (const path of globSync('dist/core/**/*.d.ts')) {
  writeFileSync(path, readFileSync(path, 'utf8').replaceAll(/(?:\n *\*)? \[([^\]\n]*)\]/g, withoutMarks));
}
for (const name of ['package.json', 'README.md']) cpSync(`packages/core/${name}`, `dist/core/${name}`);
// The entries for CommonJS: the handwritten types, which tsc does not copy, and a file that requires the ES module.
for (const path of globSync('packages/core/**/*.d.cts')) {
  const types = path.replace('packages', 'dist');
  cpSync(path, types);
  const names = [...readFileSync(path, 'utf8').matchAll(/^export (?:declare const (\w+)|(default) )/gm)];
  const lines = names.map(([, name, isDefault]) => `exports.${name ?? isDefault} = entry.${name ?? isDefault};\n`);
  const begin = `exports.__esModule = true;\nconst entry = require('./${basename(path, '.d.cts')}.js');\n`;
  writeFileSync(types.replace('.d.cts', '.cjs'), begin + lines.join(''));
}
cpSync('LICENSE', 'dist/core/LICENSE');
keepTypesOfEntries();
await bundleCommand();
chmodSync('dist/command/main.js', 0o755);
// The pages' scripts are not compiled: browsers load the sources.
cpSync('packages/command/api-reference/page', 'dist/command/api-reference/page', { recursive: true });
if (existsSync('packages/dashboard')) {
  cpSync('packages/dashboard/page', 'dist/dashboard/page', {
    recursive: true,
    filter: (path) => !path.endsWith('tsconfig.json'),
  });
}

// Removes the types that no entry of the package uses.
function keepTypesOfEntries(): void {
  const { exports } = JSON.parse(readFileSync('dist/core/package.json', 'utf8')) as { exports: object };
  const needed = new Set<string>();
  const keep = (path: string): void => {
    if (needed.has(path) || !existsSync(path)) return;
    needed.add(path);
    for (const [, name = ''] of readFileSync(path, 'utf8').matchAll(/['"](\.{1,2}\/[^'"]+)\.[jt]s['"]/g)) {
      keep(join(dirname(path), `${name}.d.ts`));
    }
  };
  for (const [, name = ''] of JSON.stringify(exports).matchAll(/"\.\/([^"]+)\.js"/g))
    keep(join('dist/core', `${name}.d.ts`));
  for (const path of globSync('dist/core/**/*.d.ts')) if (!needed.has(path)) rmSync(path);
}

function withoutMarks(all: string, list: string): string {
  const references = list.split('; ');
  const known = references.filter((each) => !/^(?:D\d|spec \d|rules? \d)/.test(each));
  return known.length === references.length ? all : known.map((each) => ` [${each}]`).join('');
}

// Each file that Node loads costs about 80 KB of memory and 0.2 ms at the start, so the command is bundled into few
// files. A part that is loaded only when it is needed stays a file of its own.
async function bundleCommand(): Promise<void> {
  const from = `${compiled}/command`;
  await build({
    entryPoints: [`${from}/main.js`, `${from}/worker-main.js`],
    outdir: 'dist/command',
    bundle: true,
    splitting: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    target: 'es2024',
    logLevel: 'warning',
    plugins: [{ name: 'keep places', setup: (bundle) => bundle.onLoad({ filter: /\.js$/ }, keepPlace) }],
  });
  // A module finds other files by its own URL. Bundling changes this URL, so each module gets its original URL.
  function keepPlace({ path }: OnLoadArgs): OnLoadResult {
    const place = `new URL('${relative(from, path).replaceAll('\\', '/')}', import.meta.url).href`;
    return { contents: readFileSync(path, 'utf8').replaceAll('import.meta.url', place) };
  }
}

// Puts the compiled scanner into the code that uses it, because bundlers include imports but not files read at run time.
// `npm run build:scanner`, which `npm ci` runs, compiles the scanner.
function embedScanner(): void {
  const file = `${compiled}/core/json/json.js`;
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

// Bundles have no manifest to read.
function embedVersion(): void {
  const { version } = JSON.parse(readFileSync('packages/core/package.json', 'utf8')) as { version: string };
  writeFileSync(`${compiled}/core/version.js`, `export const version = '${version}';\n`);
}
