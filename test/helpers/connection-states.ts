// The transitions of `ClientConnection`. With this import, every connection in the process checks each of its transitions
// against the table. The process of a test file that sees a transition outside the table fails at its end.

import { ClientConnection } from '../../packages/core/http1/client-connection.ts';

interface Transition {
  readonly event: string;
  /** The states of reading and of writing before it, separated by spaces. */
  readonly reading: string;
  readonly writing: string;
  /** The states after it. `same`: the state before. */
  readonly to: readonly [reading: string, writing: string];
}

// `#goesOnAfter` decides whether a reply is the last one on the connection.
const transitions: readonly Transition[] = [
  { event: 'the first byte of a head', reading: 'new idle', writing: 'nothing', to: ['head', 'same'] },
  { event: 'the head ends', reading: 'head', writing: 'nothing', to: ['body whole', 'continue reply'] },
  { event: 'the handler calls `holdBody`', reading: 'body', writing: 'continue reply', to: ['held', 'same'] },
  { event: 'a held body goes on', reading: 'held', writing: 'continue reply', to: ['body', 'same'] },
  { event: '`readBody` sends 100 Continue', reading: 'body whole over', writing: 'continue', to: ['same', 'reply'] },
  { event: 'the body ends', reading: 'body', writing: 'continue reply', to: ['whole', 'same'] },
  { event: 'the body is malformed, late or cut off', reading: 'body held', writing: 'continue reply', to: ['over', 'same'] },
  { event: 'no memory for what was sent ahead', reading: 'whole', writing: 'continue reply', to: ['over', 'same'] },
  { event: 'a reply before the body ends', reading: 'body', writing: 'reply', to: ['same', 'replied'] },
  { event: 'the body ends after its reply', reading: 'body', writing: 'replied', to: ['idle', 'nothing'] },
  { event: 'a reply', reading: 'whole', writing: 'reply', to: ['idle', 'nothing'] },
  { event: 'the last reply, or the client leaves', reading: 'body held whole over', writing: 'continue reply', to: ['over', 'ended'] },
  { event: 'a broken body after its reply, or the client leaves', reading: 'body', writing: 'replied', to: ['over', 'ended'] },
  { event: 'a malformed or late head, or the client leaves', reading: 'new idle head', writing: 'nothing', to: ['over', 'ended'] },
]; // prettier-ignore

/** The event of each transition of the table, by `reading/writing > reading/writing`. */
export const allowed = new Map<string, string>();
for (const { event, reading, writing, to } of transitions) {
  for (const [from, fromWriting] of pairsOf(reading, writing)) {
    for (const [after, afterWriting] of pairsOf(to[0].replace('same', from), to[1].replace('same', fromWriting))) {
      allowed.set(`${from}/${fromWriting} > ${after}/${afterWriting}`, event);
    }
  }
}

function pairsOf(firsts: string, seconds: string): [string, string][] {
  return firsts.split(' ').flatMap((first) => seconds.split(' ').map((second): [string, string] => [first, second]));
}

/** The transitions of all connections so far. */
export const seen = new Set<string>();

const illegal = new Set<string>();
process.on('exit', () => {
  if (illegal.size === 0) return;
  process.exitCode = 1;
  console.error(`transitions of a connection that are not in the table: ${[...illegal].join(', ')}`);
});

const states = new WeakMap<ClientConnection, string>();
// eslint-disable-next-line @typescript-eslint/unbound-method -- called with its connection
const { enter } = ClientConnection.prototype;
ClientConnection.prototype.enter = function (this: ClientConnection, ...to) {
  const before = states.get(this) ?? 'new/nothing';
  const after = [to[0], to[1] ?? before.split('/')[1]].join('/');
  states.set(this, after);
  const transition = `${before} > ${after}`;
  seen.add(transition);
  if (before !== after && !allowed.has(transition)) illegal.add(transition);
  enter.apply(this, to);
};
