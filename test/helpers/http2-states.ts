// Compares each change of state of HTTP/2 connections and their exchanges with the tables of the source.

import assert from 'node:assert/strict';
import { after } from 'node:test';
import { connectionStates, Http2Connection } from '../../packages/core/hosts/http2/http2.ts';
import { exchangeStates, Http2Exchange } from '../../packages/core/hosts/http2/http2-exchange.ts';

const wrong: string[] = [];

interface Owner<State> {
  enter(state: State, since?: number): void;
}

function check<State extends string>(
  prototype: Owner<State>,
  table: Readonly<Record<State, { readonly next: readonly State[] }>>,
  first: readonly State[],
): void {
  const before = new WeakMap<Owner<State>, State>();
  const enter = Reflect.get<Owner<State>, 'enter'>(prototype, 'enter');
  prototype.enter = function (state: State, since?: number) {
    const from = before.get(this);
    const starts = from === undefined ? first : [from];
    if (!starts.some((each) => table[each].next.includes(state))) wrong.push(`${starts.join()} to ${state}`);
    before.set(this, state);
    enter.call(this, state, since);
  };
}

/** From now on, records the changes of state that the tables do not allow, and returns them. */
export function watchHttp2States(): readonly string[] {
  check(Http2Connection.prototype, connectionStates, ['new']);
  check(Http2Exchange.prototype, exchangeStates, ['body', 'answering']);
  return wrong;
}

/** Asserts, after the tests of a file, that the tables allow each change of state. */
export function checkHttp2States(): void {
  watchHttp2States();
  after(() => assert.deepEqual(wrong, []));
}
