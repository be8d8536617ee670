// A fleet under load and faults: `npm run fleet [-- --rate 300 --minutes 6 --before FOLDER --publish]`. Three gateways of two
// workers, two HAProxy with one address (deploy/haproxy.cfg, deploy/keepalived.conf), Redis with a replica and Sentinels, two
// backends behind one name, an issuer of tokens and a collector of traces. Clients read and write during the faults of steps.ts.
// The exit code is 0 if all requirements are met: a fault explains each lost call, which was in flight at the fault or sent at
// most 2 s later (5 s for a frozen gateway), no write was done twice, and the rate limit was kept. `--before` upgrades from the
// version built in that folder. `--sabotage` breaks one part of the fleet after another; its exit code is 0 if the run noticed
// each break. As root on Linux, each host is a network namespace. Elsewhere all hosts are addresses of the loopback interface:
// there is one balancer, and no host is cut off. Report and picture go to test-output/; `--publish` also puts both into docs/.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { record } from '../../bench/figures.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { haproxyProgram } from '../helpers/haproxy.ts';
import { isServed, MarkedLoad } from './marked-load.ts';
import { redisPrograms, withoutRedis } from '../helpers/redis.ts';
import { Fleet, type Sabotage } from './fleet-parts.ts';
import { clientAddress, isSeparate, runInNamespaces, stopSignals, timeoutMs, withoutNamespaces } from './network.ts';
import { drawPicture, type Second } from './picture.ts';
import { sabotages, steps } from './steps.ts';
import { judge } from './verdict.ts';

function fail(problem: string): never {
  console.error(problem);
  process.exit(1);
}

function readFlags() {
  try {
    return parseArgs({
      options: {
        rate: { type: 'string', default: '300' },
        minutes: { type: 'string', default: '6' },
        before: { type: 'string' },
        only: { type: 'string' },
        sabotage: { type: 'boolean', default: false },
        publish: { type: 'boolean', default: false },
      },
    }).values;
  } catch (error) {
    fail(`${(error as Error).message}\n${usage}`);
  }
}

const usage =
  'usage: npm run fleet [-- --rate N (50 to 5000) --minutes N --before FOLDER --only TEXT,TEXT --sabotage --publish]';
const values = readFlags();
const [rate, minutes] = [values.rate, values.minutes].map(Number) as [number, number];
if (!(rate >= 50 && rate <= 5_000) || !(minutes > 0)) fail(usage);
const { before } = values;
if (before !== undefined && !existsSync(join(before, 'dist/command/main.js')))
  fail(`--before: there is no built version in ${before} (dist/command/main.js); run npm ci && npm run build there`);
const only = values.only?.split(',');
for (const text of only ?? []) {
  if (!steps.some(({ name }) => name.includes(text)))
    fail(`--only: no step has "${text}" in its name; the steps:\n${steps.map(({ name }) => `  ${name}`).join('\n')}`);
}
const missing = [
  haproxyProgram === undefined && 'haproxy is not installed (apt-get install haproxy)',
  withoutRedis,
  noOpenssl,
  process.platform !== 'linux' && 'hosts need the addresses 127.0.0.0/8, which only Linux has',
].filter((each) => each !== false);
if (missing.length > 0) fail(`the fleet cannot run here: ${missing.join('; ')}`);
const noNamespaces = withoutNamespaces();
if (!isSeparate && noNamespaces === undefined) {
  process.exit(
    await runInNamespaces({ 'backends.example.com': ['backend-1', 'backend-2'], 'issuer.example.com': ['issuer'] }),
  );
}
if (!isSeparate) {
  console.log(`runs on the loopback interface, with one balancer and without cutting off hosts: ${noNamespaces ?? ''}`);
  const folder = mkdtempSync(join(tmpdir(), 'fleet-'));
  process.env['TMPDIR'] = folder;
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
}
// Exits by itself on a signal: otherwise the signal would end this process without its child processes.
for (const signal of stopSignals) process.once(signal, () => process.exit(1));
const parent = process.ppid;
setInterval(() => {
  if (process.ppid !== parent) fail('the process that began this run was killed');
}, 1_000).unref();
const deadline = setTimeout(() => fail(`not done within ${minutes} minutes`), minutes * 60_000);

/** Starts a fleet, takes the steps whose names contain a text of `wanted` (default: all steps), and judges the run. */
async function run(wanted: readonly string[] | undefined, sabotage: Sabotage = {}) {
  await using fleet = await Fleet.start(sabotage, values.sabotage ? undefined : before);
  const load = new MarkedLoad(fleet.balancer, {
    rate,
    connections: Math.ceil(rate / 10),
    addressOf: clientAddress,
    timeoutMs,
    token: fleet.token,
  });
  fleet.startedAt = performance.now();
  try {
    for (const gateway of fleet.gateways) await gateway.serves();
    for (const step of steps) {
      if (wanted?.some((text) => step.name.includes(text)) === false) continue;
      if (step.isCut === true && !isSeparate) continue;
      await step.run(fleet);
      // The pause separates the steps in the picture, and the late losses of a step from the losses of the next step.
      await new Promise((done) => setTimeout(done, 1_000));
    }
  } catch (error) {
    // Printed now, because stopping the fleet may fail, too.
    console.error(error);
    throw error;
  } finally {
    await load.stop();
  }
  const tookS = (performance.now() - fleet.startedAt) / 1_000;
  const verdict = judge({ calls: load.calls, isComplete: wanted === undefined, ...fleet.evidence() });
  return { fleet, load, verdict, tookS };
}

function secondsOf({ calls }: MarkedLoad, startedAt: number, tookS: number): Second[] {
  const inSecond = Map.groupBy(calls, ({ endedAt }) => Math.floor((endedAt - startedAt) / 1_000));
  // Without the last second, which is incomplete.
  return Array.from({ length: Math.max(1, Math.floor(tookS)) }, (_, second) => {
    const ended = inSecond.get(second) ?? [];
    const served = ended.filter(isServed).length;
    return { served, lost: ended.length - served };
  });
}

function versionOf(program: string, pattern: RegExp): string {
  const { stdout } = spawnSync(program, ['-v'], { encoding: 'utf8' });
  return pattern.exec(stdout)?.[1] ?? 'unknown';
}

async function report({ fleet, load, verdict, tookS }: Awaited<ReturnType<typeof run>>): Promise<void> {
  const date = new Date().toISOString().slice(0, 10);
  const haproxy = versionOf(haproxyProgram ?? '', /version (\d+\.\d+)/);
  const redis = versionOf(redisPrograms[0]?.program ?? '', /v=(\S+)/);
  const cores = `${cpus().length} cores`;
  const hosts = isSeparate ? 'network namespaces' : 'loopback';
  const machine = `${cores}, Node ${process.versions.node}, HAProxy ${haproxy}, Redis ${redis}, ${hosts}`;
  const seconds = secondsOf(load, fleet.startedAt, tookS);
  const { lostOtherwise, writesTwice } = verdict;
  const logs = fleet.balancers.flatMap((balancer) => balancer.lines());
  const text = JSON.stringify(
    { date, machine, tookS, ...verdict, marks: fleet.marks, seconds, haproxy: logs },
    undefined,
    2,
  );
  const output = resolve(import.meta.dirname, '../../test-output');
  mkdirSync(output, { recursive: true });
  writeFileSync(join(output, 'fleet.json'), `${text}\n`);
  const lost = verdict.calls - verdict.served;
  const picture = drawPicture({
    title: `Three gateways behind two balancers: ${verdict.calls.toLocaleString('en')} calls, calls a second over time`,
    note: `${date} · ${cores} for everything, ${cpus()[0]?.model ?? 'unknown'} · Node ${process.versions.node} · red: ${lost} lost calls, ${lostOtherwise.length} without a fault`,
    seconds,
    marks: fleet.marks,
  });
  writeFileSync(join(output, 'fleet.svg'), picture);
  if (values.publish) {
    writeFileSync(resolve(import.meta.dirname, '../../docs/images/fleet.svg'), picture);
    const rows = verdict.losses.map(({ name, lost: count, lostButDone, recoveredMs }) => ({
      fault: name,
      lost: count,
      done: lostButDone,
      recoveredMs: Math.round(recoveredMs),
    }));
    const counts = { writesTwice: writesTwice.length, lostOtherwise: lostOtherwise.length };
    await record({ fleet: { date, machine, calls: verdict.calls, seconds: Math.round(tookS), ...counts, rows } });
  }

  console.log(`\n${verdict.calls} calls in ${Math.round(tookS)} s, ${verdict.served} served\n`);
  console.log('| Fault | Calls lost | Lost calls whose write was done | Time from the fault to the last lost call |');
  console.log('| --- | --: | --: | --: |');
  for (const { name, lost: count, lostButDone, recoveredMs } of verdict.losses) {
    console.log(`| ${name} | ${count} | ${lostButDone} | ${(recoveredMs / 1_000).toFixed(1)} s |`);
  }
  console.log(`\nlost without a fault: ${lostOtherwise.length}, writes done twice: ${writesTwice.length}`);
  console.log(
    `reads sent to a backend again: ${verdict.readsAgain}; report: test-output/fleet.json, test-output/fleet.svg`,
  );
  for (const call of lostOtherwise.slice(0, 20)) {
    console.error('lost:', `${((call.sentAt - fleet.startedAt) / 1_000).toFixed(2)} s`, JSON.stringify(call));
  }
}

if (values.sabotage) {
  for (const { name, wanted, expected, ...sabotage } of sabotages) {
    const { verdict } = await run(wanted, sabotage);
    const isSeen = verdict.problems.some((problem) => expected.test(problem));
    console.log(`${isSeen ? 'seen' : 'NOT SEEN'}: ${name}: ${verdict.problems.join('; ') || 'no problem'}`);
    if (!isSeen) process.exitCode = 1;
  }
} else {
  const done = await run(only);
  await report(done);
  for (const problem of done.verdict.problems) console.error(`violated: ${problem}`);
  const [load = 0] = loadavg();
  if (done.verdict.problems.length > 0 && load > 2 * availableParallelism())
    console.error(
      `the machine had ${load.toFixed(0)} processes for ${availableParallelism()} cores: repeat the run when nothing else runs`,
    );
  const isMet = done.verdict.problems.length === 0;
  console.log(isMet ? 'All requirements are met.' : 'Some requirements are violated.');
  process.exitCode = isMet ? 0 : 1;
}
clearTimeout(deadline);
