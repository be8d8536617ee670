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
  /** Passes bodies byte for byte. */
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

function needProgram(name: string, packages = name): () => string | undefined {
  return () => (hasProgram(name) ? undefined : `${name} is not installed: apt-get install ${packages}`);
}

function needBuild(): string | undefined {
  return existsSync(join(root, 'dist/command/main.js')) ? undefined : 'dist/ is missing: npm run build';
}

function needPackage(name: string): () => string | undefined {
  return () =>
    existsSync(join(here, 'node_modules', name))
      ? undefined
      : `the package ${name} is missing: npm --prefix bench ci`;
}

function readVersion(command: string, args: string[]): string {
  const { stdout, stderr } = spawnSync(command, args, {
    encoding: 'utf8',
    env: { ...process.env, PATH: SEARCH_PATH },
  });
  return /\d+\.\d+(\.\d+)?/.exec(`${stdout}${stderr}`)?.[0] ?? 'unknown';
}

function readPackageVersion(folder: string): string {
  return (JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version: string }).version;
}

/** A Next.js site in contenders/, which is built once. */
function inNext(site: string): Pick<Contender, 'prepare' | 'start'> {
  const folder = join(here, 'contenders', site);
  return {
    prepare: () => {
      rmSync(join(folder, 'build'), { recursive: true, force: true });
      execFileSync(process.execPath, [require.resolve('next/dist/bin/next'), 'build'], {
        cwd: folder,
        env: { ...process.env, NEXT_TELEMETRY_DISABLED: '1' },
        stdio: 'ignore',
      });
    },
    start: ({ port, backendPort }) => ({
      command: process.execPath,
      args: [
        require.resolve('next/dist/bin/next'),
        'start',
        '--port',
        String(port),
        '--hostname',
        '127.0.0.1',
      ],
      cwd: folder,
      env: {
        NODE_ENV: 'production',
        NEXT_TELEMETRY_DISABLED: '1',
        BACKEND_URL: `http://127.0.0.1:${String(backendPort)}`,
      },
    }),
  };
}

function peerVersion(name: string): () => string {
  return () => readPackageVersion(join(here, 'node_modules', name));
}

const nodeVersion = (): string => process.versions.node;
const nothingMissing = (): undefined => undefined;

export function runNode(script: string, env: Record<string, string> = {}): (place: Place) => Command {
  return ({ port, backendPort }) => ({
    command: process.execPath,
    args: [join(here, script)],
    env: {
      NODE_ENV: 'production',
      PORT: String(port),
      BACKEND_URL: `http://127.0.0.1:${String(backendPort)}`,
      ...env,
    },
  });
}

/** Starts the built command with the settings in `env`. */
function runGateway(env: Record<string, string>): (place: Place) => Command {
  return (place) => {
    const base = runNode('../dist/command/main.js', {
      HOST: '127.0.0.1',
      ADMIN_HOST: '127.0.0.1',
      ADMIN_PORT: '0',
      ...env,
    })(place);
    return { ...base, args: [...base.args, 'serve'] };
  };
}

/** Writes the configuration `name` for `place`. Returns its path. */
export function writeConfiguration(name: string, place: Place): string {
  const names: Record<string, string> = {
    port: String(place.port),
    backendPort: String(place.backendPort),
    folder: place.folder,
    contenders: join(here, 'contenders'),
    modules: NGINX_MODULES,
  };
  const text = readFileSync(join(here, 'contenders', name), 'utf8');
  const file = join(place.folder, name);
  mkdirSync(place.folder, { recursive: true });
  writeFileSync(
    file,
    text.replace(/\{\{(\w+)\}\}/g, (_, key: string) => names[key] ?? ''),
  );
  return file;
}

function runNginx(configuration: string): (place: Place) => Command {
  return (place) => ({
    command: 'nginx',
    args: ['-p', place.folder, '-e', 'stderr', '-c', writeConfiguration(configuration, place)],
  });
}

export const CONTENDERS: Contender[] = [
  {
    name: 'direct',
    title: 'no gateway: load straight to the backend',
    job: 'none',
    checksJson: false,
    exact: true,
    findMissing: nothingMissing,
    version: nodeVersion,
    start: () => ({ command: '', args: [] }),
  },
  {
    name: 'node-net',
    title: 'floor: node:net on both sides, no HTTP',
    job: 'none',
    checksJson: false,
    exact: true,
    findMissing: nothingMissing,
    version: nodeVersion,
    start: runNode('contenders/node-net.ts'),
  },
  {
    name: 'node-http',
    title: 'floor: node:http on both sides',
    job: 'proxy',
    checksJson: false,
    exact: true,
    findMissing: nothingMissing,
    version: nodeVersion,
    start: runNode('contenders/node-http.ts'),
  },
  {
    name: 'gateway',
    title: 'Work Item Gateway',
    job: 'gateway',
    checksJson: true,
    exact: true,
    findMissing: needBuild,
    version: () => readPackageVersion(root),
    start: runGateway({ LOG_LEVEL: 'warn' }),
  },
  {
    name: 'gateway-plugin',
    title: 'Work Item Gateway as a Fastify plugin',
    job: 'gateway',
    checksJson: true,
    exact: true,
    findMissing: needBuild,
    version: () => readPackageVersion(root),
    start: runNode('contenders/plugin.ts'),
  },
  {
    name: 'gateway-info',
    title: 'Work Item Gateway, metrics on, log at info',
    job: 'gateway',
    checksJson: true,
    exact: true,
    workloads: ['item'],
    findMissing: needBuild,
    version: () => readPackageVersion(root),
    start: runGateway({ LOG_LEVEL: 'info' }),
  },
  {
    name: 'gateway-workers',
    title: 'Work Item Gateway, two workers',
    job: 'gateway',
    checksJson: true,
    exact: true,
    workloads: ['item'],
    findMissing: needBuild,
    version: () => readPackageVersion(root),
    start: runGateway({ LOG_LEVEL: 'warn', WORKERS: '2' }),
  },
  {
    name: 'nginx-lua',
    title: 'nginx + Lua (cjson)',
    job: 'gateway',
    checksJson: true,
    exact: true,
    findMissing: () =>
      hasProgram('nginx') && existsSync(join(NGINX_MODULES, 'ngx_http_lua_module.so'))
        ? undefined
        : 'nginx with Lua is not installed: apt-get install nginx libnginx-mod-http-lua lua-cjson',
    version: () => readVersion('nginx', ['-v']),
    start: runNginx('nginx-lua.conf'),
  },
  {
    name: 'haproxy',
    title: 'HAProxy',
    job: 'proxy',
    checksJson: false,
    exact: true,
    findMissing: needProgram('haproxy'),
    version: () => readVersion('haproxy', ['-v']),
    start: (place) => ({ command: 'haproxy', args: ['-db', '-f', writeConfiguration('haproxy.cfg', place)] }),
  },
  {
    name: 'nginx',
    title: 'nginx proxy_pass',
    job: 'proxy',
    checksJson: false,
    exact: true,
    findMissing: needProgram('nginx'),
    version: () => readVersion('nginx', ['-v']),
    start: runNginx('nginx.conf'),
  },
  {
    name: 'caddy',
    title: 'Caddy',
    job: 'proxy',
    checksJson: false,
    exact: true,
    findMissing: needProgram('caddy'),
    version: () => readVersion('caddy', ['version']),
    start: (place) => ({
      command: 'caddy',
      args: ['run', '--adapter', 'caddyfile', '--config', writeConfiguration('Caddyfile', place)],
      env: { GOMAXPROCS: '1', XDG_CONFIG_HOME: place.folder, XDG_DATA_HOME: place.folder },
    }),
  },
  {
    name: 'fastify-http-proxy',
    title: '@fastify/http-proxy',
    job: 'proxy',
    checksJson: false,
    exact: true,
    findMissing: needPackage('@fastify/http-proxy'),
    version: peerVersion('@fastify/http-proxy'),
    start: runNode('contenders/fastify-http-proxy.ts'),
  },
  {
    name: 'express',
    title: 'http-proxy-middleware on Express',
    job: 'proxy',
    checksJson: false,
    exact: true,
    findMissing: needPackage('http-proxy-middleware'),
    version: peerVersion('http-proxy-middleware'),
    start: runNode('contenders/express.ts'),
  },
  {
    name: 'hono',
    title: 'Hono on Node, fetch',
    job: 'gateway',
    checksJson: true,
    exact: false,
    findMissing: needPackage('hono'),
    version: peerVersion('hono'),
    start: runNode('contenders/hono.ts'),
  },
  {
    name: 'next',
    title: 'Next.js route handlers',
    job: 'gateway',
    checksJson: true,
    exact: false,
    findMissing: needPackage('next'),
    version: peerVersion('next'),
    ...inNext('next'),
  },
  {
    name: 'next-gateway',
    title: 'Work Item Gateway in a Next.js route',
    job: 'gateway',
    checksJson: true,
    exact: true,
    findMissing: () => needBuild() ?? needPackage('next')(),
    version: () => readPackageVersion(root),
    ...inNext('next-gateway'),
  },
];
