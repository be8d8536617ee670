// The transitions of `ClientConnection`. With this import, every connection in the process checks each of its transitions
// against the table. The process of a test file that sees a transition outside the table fails at its end.

import { ClientConnection } from '../../packages/core/http1/client-connection.ts';

// The event, the states of reading and of writing before it, and the states after it. `same`: the state before.
// `#goesOnAfter` decides whether a reply is the last one on the connection.
const transitions: readonly (readonly [event: string, reading: string, writing: string, after: string, afterWriting: string])[] = [
  ['the first byte of a head', 'new idle', 'nothing', 'head', 'same'],
  ['the head ends', 'head', 'nothing', 'body whole', 'continue reply'],
  ['the handler calls `holdBody`', 'body', 'continue reply', 'held', 'same'],
  ['a held body goes on', 'held', 'continue reply', 'body', 'same'],
  ['`readBody` sends 100 Continue', 'body whole over', 'continue', 'same', 'reply'],
  ['the body ends', 'body', 'continue reply', 'whole', 'same'],
  ['the body is malformed, late or cut off', 'body held', 'continue reply', 'over', 'same'],
  ['no memory for what was sent ahead', 'whole', 'continue reply', 'over', 'same'],
  ['a reply before the body ends', 'body', 'reply', 'same', 'replied'],
  ['the body ends after its reply', 'body', 'replied', 'idle', 'nothing'],
  ['a reply', 'whole', 'reply', 'idle', 'nothing'],
  ['the last reply, or the client leaves', 'body held whole over', 'continue reply', 'over', 'ended'],
  ['a broken body after its reply, or the client leaves', 'body', 'replied', 'over', 'ended'],
  ['a malformed or late head, or the client leaves', 'new idle head', 'nothing', 'over', 'ended'],
]; // prettier-ignore

const allowed = new Set<string>();
for (const [, readings, writings, afters, aftersWriting] of transitions) {
  for (const reading of readings.split(' ')) {
    for (const writing of writings.split(' ')) {
      for (const after of afters.replace('same', reading).split(' ')) {
        for (const afterWriting of aftersWriting.replace('same', writing).split(' ')) {
          allowed.add(`${reading}/${writing} > ${after}/${afterWriting}`);
        }
      }
    }
  }
}

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
  if (before !== after && !allowed.has(`${before} > ${after}`)) illegal.add(`${before} > ${after}`);
  enter.apply(this, to);
};
