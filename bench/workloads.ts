// The workloads: requests, expected replies and number of connections.
import type { ListName } from './backend.ts';
import type { Shot } from './load.ts';
import { CREATED_ITEM, ITEM, LISTS, SENT_ITEM } from './work-items.ts';

export type Job = 'gateway' | 'proxy' | 'none';

interface Call {
  method: string;
  path: string;
  body?: Buffer;
  /** The reply of a contender that does the gateway's job. */
  status: number;
  replyBody: Buffer;
  /** The reply of a contender that only passes on the backend's answer. */
  proxied?: { status: number; body: Buffer };
}

export interface Workload {
  name: string;
  title: string;
  list: ListName;
  connections: number;
  /** The calls, made in turn. A mix spreads each kind of call evenly. */
  calls: Call[];
}

const NOTHING = Buffer.alloc(0);
const SUCCESS = Buffer.from('{"success":true}');
const passedOn = { status: 204, body: NOTHING };

const IDS = Array.from({ length: 16 }, (_, index) => index * 613 + 17);
const items = IDS.map((id): Call => ({
  method: 'GET',
  path: `/api/work-items/${String(id)}`,
  status: 200,
  replyBody: ITEM,
}));
const puts = IDS.map((id): Call => ({
  method: 'PUT',
  path: `/api/work-items/${String(id)}`,
  body: SENT_ITEM,
  status: 200,
  replyBody: SUCCESS,
  proxied: passedOn,
}));
const deletes = puts.map(({ body: _, ...call }): Call => ({ ...call, method: 'DELETE' }));
const post: Call = {
  method: 'POST',
  path: '/api/work-items',
  body: SENT_ITEM,
  status: 201,
  replyBody: CREATED_ITEM,
};

function makeListCall(name: keyof typeof LISTS): Call {
  return { method: 'GET', path: '/api/work-items', status: 200, replyBody: LISTS[name] };
}

/** 16 reads of an item, 2 of the list, 1 PUT and 1 POST in 20 calls. */
function makeMix(): Call[] {
  const mix = items.slice(0, 16);
  mix.splice(3, 0, makeListCall('list100'));
  mix.splice(8, 0, ...puts.slice(0, 1));
  mix.splice(13, 0, makeListCall('list100'));
  mix.splice(18, 0, post);
  return mix;
}

const kilobytes = (body: Buffer): string =>
  body.length < 1_000
    ? `${String(body.length)} B`
    : body.length < 1_000_000
      ? `${String(Math.round(body.length / 1_000))} KB`
      : `${(body.length / 1_000_000).toFixed(1)} MB`;

export const WORKLOADS: Workload[] = [
  { name: 'item', title: `GET item ${kilobytes(ITEM)}`, list: 'list100', connections: 64, calls: items },
  ...(['list100', 'list1000', 'list10000'] as const).map((name): Workload => ({
    name,
    title: `GET list ${kilobytes(LISTS[name])}`,
    list: name,
    // With 64 connections, the memory for 64 copies of the largest list would be the limit.
    connections: name === 'list10000' ? 16 : 64,
    calls: [makeListCall(name)],
  })),
  { name: 'put', title: `PUT ${kilobytes(SENT_ITEM)}`, list: 'list100', connections: 64, calls: puts },
  { name: 'post', title: `POST ${kilobytes(SENT_ITEM)}`, list: 'list100', connections: 64, calls: [post] },
  { name: 'delete', title: 'DELETE', list: 'list100', connections: 64, calls: deletes },
  { name: 'mixed', title: 'mixed', list: 'list100', connections: 64, calls: makeMix() },
];

/** Returns the expected reply of a contender with this job. */
export function expectReply(call: Call, job: Job): { status: number; body: Buffer } {
  if (job !== 'gateway' && call.proxied) return call.proxied;
  return { status: call.status, body: call.replyBody };
}

/** Returns the requests of a workload as bytes, each with its expected reply. */
export function makeShots(workload: Workload, job: Job): Shot[] {
  return workload.calls.map((call) => {
    const { status, body } = expectReply(call, job);
    const head = [
      `${call.method} ${call.path} HTTP/1.1`,
      'Host: 127.0.0.1',
      'Accept: application/json',
      'User-Agent: bench',
      ...(call.body ? ['Content-Type: application/json', `Content-Length: ${String(call.body.length)}`] : []),
    ];
    const request = Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), call.body ?? NOTHING]);
    return { request, status, bodyLength: body.length };
  });
}
