// Verifies a contender before it is measured: its replies to every call of the workload, and what its row in contenders.ts
// claims about JSON and exact bytes. If it does the gateway's job, its error replies are verified too.
import type { Contender } from './contenders.ts';
import { call, type Backend, type Reply, type RunningContender } from './running.ts';
import { EXACT_PROBE, NOT_JSON, PROBE_IDS } from './work-items.ts';
import { expectReply, type Workload } from './workloads.ts';

function describeReply(reply: Reply): string {
  return `${String(reply.status)} ${reply.body.subarray(0, 120).toString()}`;
}

function expectBytes(what: string, reply: Reply, status: number, body: Buffer | string): void {
  const expected = Buffer.from(body);
  if (reply.status === status && reply.body.equals(expected)) return;
  throw new Error(`${what}: ${describeReply(reply)} instead of ${describeReply({ status, body: expected })}`);
}

async function verifyCalls(
  { contender, port }: RunningContender,
  backend: Backend,
  workload: Workload,
): Promise<void> {
  await backend.order({ list: workload.list });
  for (const { method, path, body, ...rest } of workload.calls) {
    const reply = await call(port, method, path, body);
    const expected = expectReply({ method, path, ...rest }, contender.job);
    expectBytes(`${method} ${path}`, reply, expected.status, expected.body);
    if (!body) continue;
    const { lastBody } = await backend.order({ report: true });
    if (!Buffer.from(lastBody, 'latin1').includes(body))
      throw new Error(`${method} ${path}: the backend got other bytes`);
  }
}

function failure(message: string): string {
  return JSON.stringify({ error: message });
}

async function verifyErrors({ port }: RunningContender, backend: Backend): Promise<void> {
  const { requests } = await backend.order({ list: 'notJson' });
  expectBytes('a bad id', await call(port, 'GET', '/api/work-items/abc'), 400, failure('Invalid ID format'));
  for (const [method, path, verb] of [
    ['POST', '/api/work-items', 'create'],
    ['PUT', '/api/work-items/17', 'update'],
  ] as const)
    expectBytes(
      `${method} of a body that is not JSON`,
      await call(port, method, path, NOT_JSON),
      500,
      failure(`Failed to ${verb} work item`),
    );
  if ((await backend.order({ report: true })).requests !== requests)
    throw new Error('a refused request reached the backend');
  const missing = await call(port, 'GET', `/api/work-items/${String(PROBE_IDS.missing)}`);
  expectBytes('a missing item', missing, 404, failure('Work item not found'));
  const notJson = await call(port, 'GET', `/api/work-items/${String(PROBE_IDS.notJson)}`);
  expectBytes('an answer that is not JSON', notJson, 500, failure('Failed to fetch work item'));
  const list = await call(port, 'GET', '/api/work-items');
  expectBytes('a list that is not JSON', list, 500, failure('Failed to fetch work items'));
}

async function verifyMarks({ contender, port }: RunningContender): Promise<void> {
  const probe = await call(port, 'GET', `/api/work-items/${String(PROBE_IDS.exact)}`);
  const marks: [keyof Contender, boolean][] = [['exact', probe.body.equals(EXACT_PROBE)]];
  const notJson = await call(port, 'GET', `/api/work-items/${String(PROBE_IDS.notJson)}`);
  marks.push(['checksJson', notJson.status !== 200]);
  for (const [mark, seen] of marks)
    if (contender[mark] !== seen)
      throw new Error(`its row claims ${mark}: ${String(contender[mark])}, which is wrong`);
}

/** Throws a description of the first wrong reply. */
export async function verify(running: RunningContender, backend: Backend, workload: Workload): Promise<void> {
  await verifyCalls(running, backend, workload);
  await verifyMarks(running);
  if (running.contender.job === 'gateway') await verifyErrors(running, backend);
  await backend.order({ list: workload.list });
}
