// The workloads: requests, expected replies and number of connections.
import type { Shot } from '../test/helpers/load.ts';
import { existing, formatBytes } from './tables.ts';
import { CREATED_ITEM, ITEM, makeList, SENT_ITEM } from './work-items.ts';

/** `gateway` is the gateway's job, `proxy` passes on the backend's answers, and `none` is a relay that does not read HTTP. */
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
  /** The number of items in the backend's list. */
  list: number;
  connections: number;
  /** The calls, made in turn. A mix spreads each kind of call evenly. */
  calls: Call[];
}

const NOTHING = Buffer.alloc(0);
const proxied = { status: 204, body: NOTHING };
const IDS = Array.from({ length: 16 }, (_, index) => index * 613 + 17);

const onItem = (method: string, rest: Omit<Call, 'method' | 'path'>): Call[] =>
  IDS.map((id) => ({ method, path: `/api/work-items/${id}`, ...rest }));
const done = { status: 200, replyBody: Buffer.from('{"success":true}'), proxied };
const items = onItem('GET', { status: 200, replyBody: ITEM });
const puts = onItem('PUT', { body: SENT_ITEM, ...done });
const deletes = onItem('DELETE', done);
const post: Call = { method: 'POST', path: '/api/work-items', body: SENT_ITEM, status: 201, replyBody: CREATED_ITEM };
const listCall = (length: number): Call => ({
  method: 'GET',
  path: '/api/work-items',
  status: 200,
  replyBody: makeList(length),
});

/** 16 reads of an item, 2 of the list, 1 PUT and 1 POST in 20 calls. */
function makeMix(): Call[] {
  const mix = items.slice(0, 16);
  mix.splice(3, 0, listCall(100));
  mix.splice(8, 0, ...puts.slice(0, 1));
  mix.splice(13, 0, listCall(100));
  mix.splice(18, 0, post);
  return mix;
}

const workload = (name: string, title: string, calls: Call[]): Workload => ({
  name,
  title,
  list: 100,
  connections: 64,
  calls,
});

/** Reads of a list of `length` items. */
export function listWorkload(length: number): Workload {
  const call = listCall(length);
  // Fewer connections for a large list, because memory would limit the rate if 64 copies of the list were in flight.
  const connections = length > 50_000 ? 2 : length > 5_000 ? 16 : 64;
  const title = `GET list ${formatBytes(call.replyBody.length)}`;
  return { ...workload(`list${length}`, title, [call]), list: length, connections };
}

export const ITEM_WORKLOAD = workload('item', `GET item ${formatBytes(ITEM.length)}`, items);
export const MIXED_WORKLOAD = workload('mixed', 'mixed', makeMix());
export const WORKLOADS: readonly Workload[] = [
  ITEM_WORKLOAD,
  listWorkload(100),
  listWorkload(1_000),
  workload('put', `PUT ${formatBytes(SENT_ITEM.length)}`, puts),
  workload('post', `POST ${formatBytes(SENT_ITEM.length)}`, [post]),
  workload('delete', 'DELETE', deletes),
];

/** Returns the expected reply of a contender with this job. */
export function expectReply(call: Call, job: Job): { status: number; body: Buffer } {
  if (job !== 'gateway' && call.proxied) return call.proxied;
  return { status: call.status, body: call.replyBody };
}

/** Returns a workload's requests as bytes, with the expected replies. Each request has one of the header lines `lines`, in turn. */
export function makeShots({ calls }: Workload, job: Job, lines: readonly string[] = ['']): Shot[] {
  return Array.from({ length: Math.max(calls.length, lines.length) }, (_, index) => {
    const call = existing(calls[index % calls.length]);
    const line = lines[index % lines.length];
    const { status, body } = expectReply(call, job);
    const head = [
      `${call.method} ${call.path} HTTP/1.1`,
      ...(line ? [line] : []),
      'Host: 127.0.0.1',
      'Accept: application/json',
      'User-Agent: bench',
      ...(call.body ? ['Content-Type: application/json', `Content-Length: ${call.body.length}`] : []),
    ];
    const request = Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), call.body ?? NOTHING]);
    return { request, status, body: body.length };
  });
}
