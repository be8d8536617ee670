// Request targets that parsers, routers and gateways read in different ways. A misread target could reach an operation
// without passing the hooks of the server.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { RawClient, type Headers } from './raw-client.ts';

const text = readFileSync(new URL('../vectors/targets.txt', import.meta.url), 'utf8');
const sections = text.split('\n\n').map((section) => section.trim().split(/\s+/));

/** Returns the parts of targets that the section `name` lists. */
function partsOf(name: string): string[] {
  return sections.find(([first]) => first === name)?.slice(1) ?? assert.fail(name);
}

const authorities = [...partsOf('authorities'), '', 'a'.repeat(300)];
const paths = [...partsOf('paths'), ''];
const long = ['5'.repeat(101), '5'.repeat(5_000), 'x'.repeat(101), 'x'.repeat(5_000)];
const ids = [...partsOf('ids'), '', '5`', ...long, '%35'.repeat(200), '%25'.repeat(2_000)];
const longPaths = ['x'.repeat(101), '%78'.repeat(200)].map((part) => `/${part}/api/work-items`);
const collections = [...partsOf('collections'), '', ...longPaths];

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
  for (const scheme of partsOf('schemes')) {
    for (const authority of ['x', '%ff', '']) targets.add(`${scheme}${authority}${prefix}/api/work-items/5`);
  }
  // Targets with a space are left out, because a space would end the target.
  return [...targets].filter((target) => target !== '' && !/[\s\0]/.test(target));
}

const takesBody = new Set(['PUT', 'POST', 'PATCH', 'QUERY']);
// Sent with each body, since Fastify refuses a body without a content type.
const type = ['Content-Type', 'application/json'] as const;

/** Sends all requests on four connections; calls `each` with each request and the status of its reply (0: no reply). */
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
        // After such a reply, the server reads nothing more on this connection.
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
