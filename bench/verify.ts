// Verifies a contender before it is measured: its replies to every call of its workloads, and what its row in contenders.ts
// claims about JSON and exact bytes. The error replies of contenders that do the gateway's job are verified too.
import type { Bench } from './bench.ts';
import { call, type Reply, type Running } from './running.ts';
import { EXACT_PROBE, NOT_JSON, PROBE_IDS } from './work-items.ts';
import { expectReply, type Workload } from './workloads.ts';

const describeReply = ({ status, body }: Reply): string => `${status} ${body.subarray(0, 120).toString()}`;

function expectBytes(what: string, reply: Reply, status: number, body: Buffer | string): void {
  const expected = { status, body: Buffer.from(body) };
  if (reply.status === status && reply.body.equals(expected.body)) return;
  throw new Error(`${what}: ${describeReply(reply)} instead of ${describeReply(expected)}`);
}

async function verifyCalls({ contender, port }: Running, bench: Bench, { calls, list }: Workload): Promise<void> {
  await bench.backend({ list });
  for (const one of calls) {
    const { method, path, body } = one;
    const expected = expectReply(one, contender.job);
    expectBytes(`${method} ${path}`, await call(port, path, { method, body }), expected.status, expected.body);
    if (!body) continue;
    const { lastBody } = await bench.backend();
    if (!Buffer.from(lastBody, 'latin1').includes(body))
      throw new Error(`${method} ${path}: the backend got other bytes`);
  }
}

async function verifyErrors({ port }: Running, bench: Bench): Promise<void> {
  const list = '/api/work-items';
  const expectFailure = async (path: string, status: number, error: string, method = 'GET') => {
    const body = method === 'GET' ? undefined : NOT_JSON;
    const reply = await call(port, path, { method, body });
    expectBytes(`${method} ${path}`, reply, status, JSON.stringify({ error }));
  };
  const { requests } = await bench.backend({ list: -1 });
  await expectFailure(`${list}/abc`, 400, 'Invalid ID format');
  await expectFailure(list, 500, 'Failed to create work item', 'POST');
  await expectFailure(`${list}/17`, 500, 'Failed to update work item', 'PUT');
  if ((await bench.backend()).requests !== requests) throw new Error('a refused request reached the backend');
  await expectFailure(`${list}/${PROBE_IDS.missing}`, 404, 'Work item not found');
  await expectFailure(`${list}/${PROBE_IDS.notJson}`, 500, 'Failed to fetch work item');
  await expectFailure(list, 500, 'Failed to fetch work items');
}

/** Throws a description of the first wrong reply. */
export async function verify(running: Running, bench: Bench, workloads: readonly Workload[]): Promise<void> {
  const { contender, port } = running;
  for (const workload of workloads) await verifyCalls(running, bench, workload);
  const exact = await call(port, `/api/work-items/${PROBE_IDS.exact}`);
  if (exact.body.equals(EXACT_PROBE) !== contender.exact) throw new Error('contenders.ts is wrong about exact bytes');
  const notJson = await call(port, `/api/work-items/${PROBE_IDS.notJson}`);
  if ((notJson.status !== 200) !== contender.checksJson) throw new Error('contenders.ts is wrong about JSON');
  if (contender.job === 'gateway') await verifyErrors(running, bench);
}
