// Measures the cost per call of each guard, of TLS and HTTP/2, and of a log line: the CPU time of the built command in two
// variants, with and without the feature, in turns. The call is a GET of one item over 64 keep-alive connections. For TLS and
// HTTP/2, h2load (Debian: nghttp2-client) makes the calls, and nginx is measured for comparison. For Redis (Debian:
// redis-server), 100 clients make 10,000 calls a second. Variants whose program is not installed are skipped and named. Flags:
// --rounds N (9), --seconds N (2), --only "name;name" (and the variants they are compared with), --bars to fail beyond the
// limits, --record to place the figures in the documents.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, openSync, rmSync } from 'node:fs';
import { createServer, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { makeCertificate } from './certificate.ts';
import { SEARCH_PATH, writeConfiguration } from './contenders.ts';
import { record } from './figures.ts';
import { listProcessTree, readProcessorMs } from './processes.ts';
import { machine, readResults, today, type GuardRow } from './results.ts';
import { Backend, findFreePort, Load, pin, stopAll } from './running.ts';
import { makeTokens } from './tokens.ts';
import { makeShots, WORKLOADS } from './workloads.ts';

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    seconds: { type: 'string', default: '2' },
    only: { type: 'string', default: '' },
    bars: { type: 'boolean', default: false },
    record: { type: 'boolean', default: false },
  },
});
const rounds = Number(flags.rounds);
const measureMs = Number(flags.seconds) * 1_000;
const redisRate = 10_000;
const clients = 100;
// h2load makes this number of calls per millisecond of the measured time: about the throughput of one core.
const h2loadRate = 12;

interface Variant {
  readonly name: string;
  /** Settings that the plain variant does not have; undefined for nginx. */
  readonly settings: Record<string, string> | undefined;
  /** Header lines, used in turn: each request has one of them. */
  readonly headers?: readonly string[];
  /** Calls per second; 0 for as many as possible. */
  readonly rate?: number;
  /** The log goes to a pipe with a reader, as in a container; otherwise it is discarded. */
  readonly isLogRead?: true;
  /** Arguments of h2load, which then replaces our load generator. */
  readonly h2load?: readonly string[];
  readonly scheme?: 'https';
  /** The variant to compare with, and the goal: at most these additional microseconds, or this factor. */
  readonly beside?: string;
  readonly moreUsMax?: number;
  readonly factorMax?: number;
}

const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-guards-'));
const has = (command: string): boolean =>
  spawnSync('sh', ['-c', `command -v ${command}`], { env: { PATH: SEARCH_PATH } }).status === 0;

const children: { kill: (signal: NodeJS.Signals) => boolean }[] = [];

function stopChildren(): void {
  for (const child of children) child.kill('SIGTERM');
  rmSync(folder, { recursive: true, force: true });
}

async function startRedis(): Promise<string> {
  const port = await findFreePort();
  children.push(
    spawn(
      'redis-server',
      ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'],
      {
        stdio: 'ignore',
      },
    ),
  );
  return `redis://127.0.0.1:${port}`;
}

/** Starts a collector that accepts everything. */
async function startCollector(): Promise<string> {
  const server = createServer((incoming, response) => {
    incoming.resume().on('end', () => response.end());
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  server.unref();
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const forwarded = Array.from({ length: clients }, (_, index) => `X-Forwarded-For: 203.0.113.${index + 1}`);
const secured = has('openssl') && has('h2load') ? makeCertificate(folder) : undefined;
const { tokens, settings: tokenSettings } = makeTokens(folder, 64);
const redisUrl = has('redis-server') ? await startRedis() : undefined;
const h1 = ['--h1', '-c', '64'];
const byProxy = { TRUSTED_PROXIES: '127.0.0.1' };
const generous = { ...byProxy, RATE_LIMIT: '1000000/1s' };

const variants: readonly (Variant | undefined)[] = [
  { name: 'plain', settings: {} },
  {
    name: 'remembered token',
    settings: tokenSettings,
    headers: tokens.map((token) => `Authorization: Bearer ${token}`),
    beside: 'plain',
    moreUsMax: 4,
  },
  {
    name: 'CORS',
    settings: { CORS_ORIGINS: 'https://app.example' },
    headers: ['Origin: https://app.example'],
    beside: 'plain',
    moreUsMax: 1,
  },
  {
    name: 'a log line a call',
    settings: { LOG_LEVEL: 'info' },
    isLogRead: true,
    beside: 'plain',
    factorMax: 1.1,
  },
  { name: 'behind a proxy', settings: byProxy, headers: forwarded },
  { name: 'rate limit', settings: generous, headers: forwarded, beside: 'behind a proxy', moreUsMax: 2 },
  {
    name: 'traces, 1 %',
    settings: {
      OTEL_EXPORTER_OTLP_ENDPOINT: await startCollector(),
      OTEL_TRACES_SAMPLER: 'traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0.01',
    },
    beside: 'plain',
    moreUsMax: 1,
  },
  { name: 'behind a proxy, 10,000/s', settings: byProxy, headers: forwarded, rate: redisRate },
  redisUrl === undefined
    ? undefined
    : {
        name: 'rate limit in Redis, 10,000/s',
        settings: { ...generous, RATE_LIMIT_REDIS_URL: redisUrl },
        headers: forwarded,
        rate: redisRate,
        beside: 'behind a proxy, 10,000/s',
        moreUsMax: 8,
      },
  ...(secured === undefined
    ? []
    : ([
        { name: 'plain, h2load', settings: {}, h2load: h1 },
        {
          name: 'TLS, HTTP/1.1',
          settings: secured,
          scheme: 'https',
          h2load: h1,
          beside: 'plain, h2load',
          factorMax: 1.7,
        },
        {
          name: 'TLS, HTTP/2, 32 streams',
          settings: { ...secured, HTTP2: 'true' },
          scheme: 'https',
          h2load: ['-c', '2', '-m', '32'],
          beside: 'TLS, HTTP/1.1',
          factorMax: 1.6,
        },
        ...(has('nginx')
          ? ([
              { name: 'nginx + Lua, TLS', settings: undefined, scheme: 'https', h2load: h1 },
            ] satisfies Variant[])
          : []),
      ] satisfies Variant[])),
];

const wanted = flags.only === '' ? [] : flags.only.split(';').map((name) => name.trim());
const names = variants.flatMap((each) => each?.name ?? []);
const unknown = wanted.filter((name) => !names.includes(name));
if (unknown.length > 0) {
  console.error(`--only: there is no ${unknown.join('; ')} here. There are: ${names.join('; ')}`);
  stopChildren();
  process.exit(1);
}

interface Running {
  readonly variant: Variant;
  readonly port: number;
  readonly pid: number;
  readonly costs: number[];
}

function statusOf(port: number, { scheme, headers = [] }: Variant): Promise<number> {
  const [name = 'accept', value = '*/*'] = (headers[0] ?? '').split(/: /);
  const request = scheme === 'https' ? requestHttps : requestHttp;
  return new Promise((resolve) => {
    request(
      {
        host: '127.0.0.1',
        port,
        path: '/api/work-items/17',
        agent: false,
        rejectUnauthorized: false,
        headers: headers.length === 0 ? {} : { [name]: value },
      },
      (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      },
    )
      .on('error', () => {
        resolve(0);
      })
      .end();
  });
}

/** Opens a pipe whose reader, on the other core, discards everything. */
function openReadPipe(name: string): number {
  const path = join(folder, name);
  execFileSync('mkfifo', [path]);
  const [program, args] = pin(1, 'dd', [`if=${path}`, 'of=/dev/null', 'bs=64k']);
  children.push(spawn(program, args, { stdio: 'ignore' }));
  // Blocks until the reader is there.
  return openSync(path, 'w');
}

async function start(variant: Variant, backendPort: number): Promise<Running> {
  const port = await findFreePort();
  let command = [process.execPath, join(import.meta.dirname, '../dist/command/main.js'), 'serve'];
  if (variant.settings === undefined) {
    const place = { port, backendPort, folder: join(folder, `nginx-${port}`) };
    const file = writeConfiguration('nginx-lua.conf', place);
    const secure = `ssl;\n ssl_certificate ${secured?.TLS_CERT_FILE ?? ''};\n ssl_certificate_key ${secured?.TLS_KEY_FILE ?? ''};`;
    execFileSync('sed', [
      '-i',
      `s#^ *listen .*#listen 127.0.0.1:${port} ${secure.replaceAll('\n', '\\n')}#`,
      file,
    ]);
    command = ['nginx', '-p', place.folder, '-e', 'stderr', '-c', file];
  }
  const [program = '', ...args] = command;
  const child = spawn(...pin(0, program, args), {
    env: {
      PATH: SEARCH_PATH,
      NODE_ENV: 'production',
      HOST: '127.0.0.1',
      PORT: String(port),
      ADMIN_HOST: '127.0.0.1',
      ADMIN_PORT: '0',
      LOG_LEVEL: 'warn',
      BACKEND_URL: `http://127.0.0.1:${backendPort}`,
      ...variant.settings,
    },
    stdio: ['ignore', variant.isLogRead ? openReadPipe(`log-${port}`) : 'ignore', 'inherit'],
  });
  children.push(child);
  for (let tries = 0; tries < 200; tries += 1) {
    if ((await statusOf(port, variant)) === 200) {
      return { variant, port, pid: child.pid ?? 0, costs: [] };
    }
    await delay(50);
  }
  throw new Error(`${variant.name} does not answer with 200`);
}

const processorMsOf = (pid: number): number =>
  [...readProcessorMs(listProcessTree(pid)).values()].reduce((sum, ms) => sum + ms, 0);

/** Returns the CPU time per call in microseconds. */
async function measureWithH2load({ variant, port, pid }: Running, milliseconds: number): Promise<number> {
  const url = `${variant.scheme ?? 'http'}://127.0.0.1:${port}/api/work-items/17`;
  const before = processorMsOf(pid);
  const [program, args] = pin(1, 'h2load', [
    ...(variant.h2load ?? []),
    '-n',
    String(Math.round(h2loadRate * milliseconds)),
    url,
  ]);
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'ignore'] });
  let text = '';
  child.stdout.on('data', (data: Buffer) => (text += data.toString()));
  await new Promise((resolve) => child.once('exit', resolve));
  const spent = processorMsOf(pid) - before;
  const [, succeeded = '0'] = /(\d+) succeeded/.exec(text) ?? [];
  if (Number(succeeded) === 0 || !/ 0 failed/.test(text) || !/ 0 5xx/.test(text)) {
    throw new Error(`${variant.name}: ${text}`);
  }
  return (spent * 1_000) / Number(succeeded);
}

try {
  const workload = WORKLOADS.find(({ name }) => name === 'item');
  if (workload === undefined) throw new Error('there is no workload "item"');
  const backend = await Backend.start();
  await backend.order({ list: workload.list });
  const load = await Load.start();
  const shots = makeShots(workload, 'gateway');
  const chosen = variants.filter(
    (each): each is Variant =>
      each !== undefined &&
      (wanted.length === 0 ||
        wanted.includes(each.name) ||
        variants.some((one) => one?.beside === each.name && wanted.includes(one.name))),
  );
  const running: Running[] = [];
  for (const variant of chosen) running.push(await start(variant, backend.port));
  const measure = async (one: Running, milliseconds: number, warmupMs: number): Promise<number> => {
    const { variant, port, pid } = one;
    if (variant.h2load !== undefined) return await measureWithH2load(one, milliseconds);
    const lines = variant.headers ?? [''];
    const result = await load.run({
      port,
      pid,
      ownPids: [backend.pid, process.pid, ...running.map((each) => each.pid)],
      connections: variant.rate === undefined ? workload.connections : clients,
      shots: lines.flatMap((line, index) => {
        const shot = shots[index % shots.length];
        if (shot === undefined) return [];
        const text = Buffer.from(shot.request).toString('latin1');
        return {
          ...shot,
          request: Buffer.from(line === '' ? text : text.replace('\r\n', `\r\n${line}\r\n`), 'latin1'),
        };
      }),
      warmupMs,
      warmupRequests: 0,
      measureMs: milliseconds,
      rate: variant.rate ?? 0,
    });
    return (result.processorMs * 1_000) / result.requests;
  };
  for (const one of running) await measure(one, 1_500, 1_500);
  for (let round = 0; round < rounds; round += 1) {
    // Alternates the order, so that a slow change of the machine's speed affects all alike.
    for (const one of round % 2 === 0 ? running : running.toReversed()) {
      one.costs.push(await measure(one, measureMs, 300));
    }
    console.log(
      `${round + 1}/${rounds}: ${running.map(({ variant, costs }) => `${variant.name} ${(costs.at(-1) ?? 0).toFixed(1)}`).join(', ')}`,
    );
  }
  const medianOf = (values: readonly number[]): number =>
    values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
  console.log('\n| door | µs a call | more, median of rounds | bar |\n| --- | ---: | ---: | ---: |');
  const rows: GuardRow[] = [];
  for (const { variant, costs } of running) {
    const row: GuardRow = { name: variant.name, date: today, rounds, us: medianOf(costs) };
    rows.push(row);
    const other = running.find((each) => each.variant.name === variant.beside);
    let more = '';
    let bar = '';
    let isOver = false;
    if (other !== undefined && variant.factorMax !== undefined) {
      const factor = medianOf(costs.map((cost, round) => cost / (other.costs[round] ?? NaN)));
      Object.assign(row, { comparedWith: other.variant.name, factor, goal: variant.factorMax });
      more = `x ${factor.toFixed(2)} of ${other.variant.name}`;
      bar = `x ${variant.factorMax}`;
      isOver = factor > variant.factorMax;
    } else if (other !== undefined && variant.moreUsMax !== undefined) {
      const us = medianOf(costs.map((cost, round) => cost - (other.costs[round] ?? NaN)));
      Object.assign(row, { comparedWith: other.variant.name, moreUs: us, goal: variant.moreUsMax });
      more = `${us.toFixed(1)} µs over ${other.variant.name}`;
      bar = `${variant.moreUsMax} µs`;
      isOver = us > variant.moreUsMax;
    }
    console.log(
      `| ${variant.name} | ${medianOf(costs).toFixed(1)} | ${more} | ${bar}${isOver ? ' (over)' : ''} |`,
    );
    if (isOver && flags.bars) process.exitCode = 1;
  }
  for (const command of ['openssl', 'h2load', 'redis-server', 'nginx'].filter((each) => !has(each))) {
    console.log(`skipped what needs ${command}, which is not installed`);
  }
  if (flags.record) {
    // A variant that did not run keeps its row.
    const kept = readResults().guards.rows.filter(({ name }) => !rows.some((row) => row.name === name));
    await record('guards', { date: today, machine, rows: [...rows, ...kept] });
  }
} finally {
  stopChildren();
  await stopAll();
}
process.exit();
