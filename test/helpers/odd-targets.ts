// Request targets that parsers, routers and gateways read in different ways. A misread target could reach an operation
// without passing the hooks of the server.

import assert from 'node:assert/strict';
import { RawClient, type Headers } from './raw-client.ts';

const authorities = [
  ...words(String.raw`
    x x:80 x: :80 127.0.0.1 [::1] [::1 ::1 x:99999 x:-1 x:8o %ff %zz % %f %C3 %C0%AF %ED%A0%80 %00 %20 %2f
    %2F.. %2e %3f %23 %E2%98%83 %31 %25ff %ff:80 x%ff user@x user:%ff@x x%40y x,y x;y x'y * .. . x.. - _
    xn-- xn--%ff 1.2.3.4.5 0x7f.1 256.256.256.256
`),
  '',
  'a'.repeat(300),
];
const schemes = words('http:// HTTP:// hTTp:// https:// HTTPS:// ftp:// ws:// file:// h://');
const paths = [...words('/api/work-items /api/work-items/5 /api/work-items/%zz ?/api/work-items/5'), ''];

const ids = [
  ...words(String.raw`
    5 05 +5 -5 %35 5x %205 5%20 5%2f 5%2F6 %2f5 5;x ;5 5%3bx 5,6 % %5 %zz 5%zz 5% 5%f 5%ff %ff5 %C3 5%C3
    %C0%B5 %ED%A0%80 %00 5%00 %255 %25 %2500 %u0035 %u00zz . .. %2e %2e%2e 5.. .5 5/ 5/. 5/.. /5 ./5 ../5
    5/6 * 5* :5 5: @5 5? 5?%zz ?5 5?x=/../6 5# 5#x 5\ \5 %5c5 5| 5" <5> 5^ {5} [5] 5%0d%0a 5%09 5&x 5=5
    ~5
`),
  '',
  '5`',
  '5'.repeat(101),
  '5'.repeat(5_000),
  'x'.repeat(101),
  'x'.repeat(5_000),
  '%35'.repeat(200),
  '%25'.repeat(2_000),
];

const collections = [
  ...words(String.raw`
    /api/work-items /API/work-items /Api/Work-Items /api/WORK-ITEMS /api/WorkItem /api/workitems
    //api/work-items /api//work-items ///api///work-items /./api/work-items /api/./work-items
    /../api/work-items /x/../api/work-items /api/x/../work-items /api/../api/work-items /%2e/api/work-items
    /x/%2e%2e/api/work-items /%61pi/work-items /api/work%2ditems /api%2fwork-items /%2fapi/work-items
    %2fapi/work-items /api/work-items%2f /api/work-items%20 /api/work-items%00 /api/work-items;x
    /api;x/work-items ;/api/work-items /;/api/work-items /api/work-items; /api\work-items \api\work-items
    /api%5cwork-items /\api/work-items /%5capi/work-items /%zz/api/work-items /%zz/../api/work-items
    /api/%zz/work-items /%ff/api/work-items /%/api/work-items /?/api/work-items /#/api/work-items
    ?/api/work-items #/api/work-items /?x=/api/work-items * */api/work-items *api/work-items api/work-items
    xapi/work-items ./api/work-items /x/api/work-items x:80 x:80/api/work-items x [::1]:80 127.0.0.1:80 :80
    %ff:80 http:/api/work-items http:api/work-items http:///api/work-items http:////api/work-items
    http:\\x/api/work-items http://x?/api/work-items http://x#/api/work-items http://x\/api/work-items
    http://x;/api/work-items http://x/http://x/api/work-items /http://x/api/work-items
    http://http://x/api/work-items http://x
`),
  '',
  `/${'x'.repeat(101)}/api/work-items`,
  `/${'%78'.repeat(200)}/api/work-items`,
];

function words(text: string): string[] {
  return text.trim().split(/\s+/);
}

/** Several hundred targets; `prefix` is the path at which the gateway is mounted. */
export function oddTargets(prefix = ''): readonly string[] {
  const mount = (target: string) => target.replaceAll(/\/(?=api\/work-items)/gi, `${prefix}/`);
  const targets = new Set<string>();
  for (const target of collections.map(mount)) targets.add(target).add(`${target}/5`).add(`${target}?x`);
  for (const id of ids) targets.add(`${prefix}/api/work-items/${id}`).add(`http://x${prefix}/api/work-items/${id}`);
  for (const authority of authorities) {
    for (const path of paths) targets.add(`http://${authority}${mount(path)}`);
    targets.add(`//${authority}${prefix}/api/work-items/5`);
  }
  for (const scheme of schemes) {
    for (const authority of ['x', '%ff', '']) targets.add(`${scheme}${authority}${prefix}/api/work-items/5`);
  }
  // A space would end the target.
  return [...targets].filter((target) => target !== '' && !/[\s\0]/.test(target));
}

const takesBody = new Set(['PUT', 'POST', 'PATCH', 'QUERY']);
// Sent with each body, since Fastify refuses a body without a content type.
const type = ['Content-Type', 'application/json'] as const;

/** Sends all requests on four connections; calls `each` with the status of each reply, 0 without a reply. */
export async function sendAll(
  port: number,
  requests: readonly { method: string; target: string; headers: Headers }[],
  each: (request: { method: string; target: string }, status: number) => void,
): Promise<void> {
  const left = requests.values();
  const send = async (): Promise<void> => {
    let client: RawClient | undefined;
    for (const { method, target, headers } of left) {
      client = client?.isOpen === true ? client : await RawClient.open(port);
      try {
        const options = takesBody.has(method) ? { headers: [type, ...headers], body: '{"a":1}' } : { headers };
        const reply = await client.call(method, target, options);
        each({ method, target }, reply.status);
        // The server reads nothing more on this connection.
        if (reply.status === 400 || reply.header('connection') === 'close') client.destroy();
      } catch {
        each({ method, target }, 0);
        client.destroy();
      }
    }
    client?.destroy();
  };
  await Promise.all(Array.from({ length: 4 }, send));
}

/** Each odd target with each of `methods`. */
export function requestsFor(methods: readonly string[], prefix = '', headers: Headers = []) {
  const targets = oddTargets(prefix);
  assert.ok(targets.length > 500, `${targets.length} odd targets`);
  return methods.flatMap((method) => targets.map((target) => ({ method, target, headers })));
}
