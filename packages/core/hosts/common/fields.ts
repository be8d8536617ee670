// Converts header fields between the gateway's form and the form of a host whose HTTP library parses and writes heads.

import { fieldNames, type FieldName } from '../../http1/fields.ts';
import type { Reply } from '../../http1/transport.ts';
import { noContent } from '../../http1/writer.ts';
import { splitList } from '../../text/lists.ts';

const known: ReadonlySet<string> = new Set(fieldNames);

/** Returns `name` in lower case; undefined if the gateway does not read that field. */
export function fieldNameOf(name: string): FieldName | undefined {
  const lowerCase = name.toLowerCase();
  return known.has(lowerCase) ? (lowerCase as FieldName) : undefined;
}

// Fields with a list as their value, to which both the host and the gateway may add members.
const listFields: ReadonlySet<string> = new Set([
  'vary',
  'access-control-expose-headers',
  'ratelimit',
  'ratelimit-policy',
]);

/** Has the headers that the host's code has set for a reply. */
export interface HostHeaders {
  getHeader(name: string): number | string | readonly string[] | undefined;
}

/** Returns the value of a reply's field. The gateway's value replaces the host's, but a list keeps the host's members. */
export function mergeField(name: string, ours: string, host: HostHeaders): string {
  const ofHost = listFields.has(name) ? host.getHeader(name) : undefined;
  if (ofHost === undefined || typeof ofHost === 'number') return ours;
  const members = splitList([ofHost].flat().join());
  if (members.includes('*')) return '*';
  const known = new Set(members.map((member) => member.toLowerCase()));
  return [...members, ...splitList(ours).filter((member) => !known.has(member.toLowerCase()))].join(', ');
}

interface ReplyFields extends Pick<Reply, 'head' | 'added' | 'requestId'> {
  readonly body: { readonly length: number };
}

/** Lists the headers that `writeReplyHead` writes, except connection headers: name, value, name, value. */
export function listReplyHeaders({ head, added, requestId, body }: ReplyFields): string[] {
  return head.status === noContent
    ? [...head.headers, ...added, 'x-request-id', requestId]
    : [...head.headers, ...added, 'content-length', String(body.length), 'x-request-id', requestId];
}
