// The contenders: the gateways and proxies to compare, one row each. Node contenders read PORT and BACKEND_URL; others get a
// configuration from contenders/ with {{names}} filled in.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Job } from './workloads.ts';

export interface Place {
  port: number;
  backendPort: number;
  /** A temporary folder for this contender. */
  folder: string;
}

export interface Command {
  command: string;
  args: string[];
  env?: Record<string, string>;
  cwd?: string;
}

export interface Contender {
  name: string;
  title: string;
  job: Job;
  checksJson: boolean;
  /** True if the contender passes bodies on byte for byte. */
  exact: boolean;
  /** The only workloads to run; default: all. */
  workloads?: string[];
  /** Returns why the contender cannot run on this machine and how to fix that; undefined if it can run. */
  findMissing: () => string | undefined;
  version: () => string;
  /** Called before the first start, for instance for a build. */
  prepare?: () => void;
  start: (place: Place) => Command;
}

const here = import.meta.dirname;
const root = join(here, '..');
const NGINX_MODULES = '/usr/lib/nginx/modules';
const require = createRequire(import.meta.url);

/** PATH with Debian's folders for servers, which may be missing in a user's PATH. */
export const SEARCH_PATH = `${process.env['PATH'] ?? ''}:/usr/local/sbin:/usr/sbin:/sbin`;

export function hasProgram(name: string): boolean {
  return SEARCH_PATH.split(':').some((folder) => folder !== '' && existsSync(join(folder, name)));
}

function needBuild(): string | undefined {
  return existsSync(join(root, 'dist/command/main.js')) ? undefined : 'dist/ is missing: npm run build';
}

function readPackageVersion(folder: string): string {
  return (JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version: string }).version;
}

export function runNode(script: string, env: Record<string, string> = {}): Contender['start'] {
  return ({ port, backendPort }) => ({
    command: process.execPath,
    args: [join(here, script)],
    env: { NODE_ENV: 'production', PORT: String(port), BACKEND_URL: `http://127.0.0.1:${backendPort}`, ...env },
  });
}

/** Starts the built command with the settings in `env`. */
function runGateway(env: Record<string, string> = {}): Contender['start'] {
  return (place) => {
    const settings = { HOST: '127.0.0.1', ADMIN_HOST: '127.0.0.1', ADMIN_PORT: '0', LOG_LEVEL: 'warn', ...env };
    const command = runNode('../dist/command/main.js', settings)(place);
    return { ...command, args: [...command.args, 'serve'] };
  };
}

/** Writes the configuration `name` for `place`. Returns its path. */
function writeConfiguration(name: string, place: Place): string {
  const names: Record<string, string | number> = {
    ...place,
    contenders: join(here, 'contenders'),
    modules: NGINX_MODULES,
  };
  const text = readFileSync(join(here, 'contenders', name), 'utf8');
  const file = join(place.folder, name);
  mkdirSync(place.folder, { recursive: true });
  writeFileSync(
    file,
    text.replace(/\{\{(\w+)\}\}/g, (_, key: string) => String(names[key] ?? '')),
  );
  return file;
}

function runNginx(configuration: string): Contender['start'] {
  return (place) => ({
    command: 'nginx',
    args: ['-p', place.folder, '-e', 'stderr', '-c', writeConfiguration(configuration, place)],
  });
}

export function runHaproxy(configuration: string): Contender['start'] {
  return (place) => ({ command: 'haproxy', args: ['-db', '-f', writeConfiguration(configuration, place)] });
}

/** A Next.js site in contenders/, which is built once. */
function inNext(site: string): Pick<Contender, 'prepare' | 'start'> {
  const cwd = join(here, 'contenders', site);
  const env = { NODE_ENV: 'production', NEXT_TELEMETRY_DISABLED: '1' };
  const next = (): string => require.resolve('next/dist/bin/next');
  return {
    prepare: () => {
      rmSync(join(cwd, 'build'), { recursive: true, force: true });
      const options = { cwd, env: { ...process.env, ...env }, stdio: 'ignore' } as const;
      execFileSync(process.execPath, [next(), 'build'], options);
    },
    start: ({ port, backendPort }) => ({
      command: process.execPath,
      args: [next(), 'start', '--port', String(port), '--hostname', '127.0.0.1'],
      cwd,
      env: { ...env, BACKEND_URL: `http://127.0.0.1:${backendPort}` },
    }),
  };
}

type Shared = Pick<Contender, 'job' | 'checksJson' | 'exact' | 'findMissing' | 'version'>;

const floor: Shared = {
  job: 'none',
  checksJson: false,
  exact: true,
  findMissing: () => undefined,
  version: () => process.versions.node,
};
const gateway: Shared = {
  job: 'gateway',
  checksJson: true,
  exact: true,
  findMissing: needBuild,
  version: () => readPackageVersion(root),
};

/** The common fields of proxies that are installed on the system and pass bytes on. */
function program(name: string, versionFlag: string): Shared {
  return {
    job: 'proxy',
    checksJson: false,
    exact: true,
    findMissing: () => (hasProgram(name) ? undefined : `${name} is not installed: apt-get install ${name}`),
    version: () => {
      const options = { encoding: 'utf8', env: { ...process.env, PATH: SEARCH_PATH } } as const;
      const { stdout, stderr } = spawnSync(name, [versionFlag], options);
      return /\d+\.\d+(\.\d+)?/.exec(`${stdout}${stderr}`)?.[0] ?? 'unknown';
    },
  };
}

/** The common fields of npm packages: a proxy, or a framework on which the gateway's job is written by hand. */
function npmPackage(name: string, job: 'proxy' | 'gateway'): Shared {
  const folder = join(here, 'node_modules', name);
  return {
    job,
    checksJson: job === 'gateway',
    exact: job === 'proxy',
    findMissing: () => (existsSync(folder) ? undefined : `the package ${name} is missing: npm --prefix bench ci`),
    version: () => readPackageVersion(folder),
  };
}

const nginx = program('nginx', '-v');
const nextPackage = npmPackage('next', 'gateway');

export const CONTENDERS: Contender[] = [
  { ...floor, name: 'node-net', title: 'node:net alone', start: runNode('contenders/node-net.ts') },
  { ...floor, name: 'node-http', title: 'node:http alone', job: 'proxy', start: runNode('contenders/node-http.js') },
  { ...gateway, name: 'gateway', title: 'Work Item Gateway', start: runGateway() },
  { ...gateway, name: 'gateway-plugin', title: 'Fastify plugin', start: runNode('contenders/plugin.js') },
  { ...gateway, name: 'gateway-info', title: 'Work Item Gateway, log at info', workloads: ['item'], start: runGateway({ LOG_LEVEL: 'info' }) },
  {
    ...nginx,
    name: 'nginx-lua',
    title: 'nginx + Lua',
    job: 'gateway',
    checksJson: true,
    findMissing: () =>
      hasProgram('nginx') && existsSync(join(NGINX_MODULES, 'ngx_http_lua_module.so'))
        ? undefined
        : 'nginx with Lua is not installed: apt-get install nginx libnginx-mod-http-lua lua-cjson',
    start: runNginx('nginx-lua.conf'),
  },
  { ...program('haproxy', '-v'), name: 'haproxy', title: 'HAProxy', start: runHaproxy('haproxy.cfg') },
  { ...nginx, name: 'nginx', title: 'nginx proxy_pass', start: runNginx('nginx.conf') },
  {
    ...program('caddy', 'version'),
    name: 'caddy',
    title: 'Caddy',
    start: (place) => ({
      command: 'caddy',
      args: ['run', '--adapter', 'caddyfile', '--config', writeConfiguration('Caddyfile', place)],
      env: { GOMAXPROCS: '1', XDG_CONFIG_HOME: place.folder, XDG_DATA_HOME: place.folder },
    }),
  },
  {
    ...npmPackage('@fastify/http-proxy', 'proxy'),
    name: 'fastify-http-proxy',
    title: '@fastify/http-proxy',
    start: runNode('contenders/fastify-http-proxy.js'),
  },
  {
    ...npmPackage('http-proxy-middleware', 'proxy'),
    name: 'express',
    title: 'http-proxy-middleware',
    start: runNode('contenders/express.js'),
  },
  { ...npmPackage('hono', 'gateway'), name: 'hono', title: 'Hono, fetch', start: runNode('contenders/hono.js') },
  { ...nextPackage, name: 'next', title: 'Next.js handlers', ...inNext('next') },
  {
    ...gateway,
    name: 'next-gateway',
    title: 'Next.js route',
    findMissing: () => needBuild() ?? nextPackage.findMissing(),
    ...inNext('next-gateway'),
  },
]; // prettier-ignore

export function findContender(name: string): Contender {
  const found = CONTENDERS.find((one) => one.name === name);
  if (found === undefined) throw new Error(`there is no contender ${name}`);
  return found;
}
