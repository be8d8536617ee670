// Compares each change of state of an exchange of node:http with the table of the source.

import { nodeExchangeStates, NodeExchange } from '../../packages/core/hosts/node/node-exchange.ts';

type State = keyof typeof nodeExchangeStates;

const before = new WeakMap<NodeExchange, State>();
const enter = Reflect.get<NodeExchange, 'enter'>(NodeExchange.prototype, 'enter');

NodeExchange.prototype.enter = function (state: State) {
  const from = before.get(this) ?? 'new';
  if (!nodeExchangeStates[from].includes(state)) {
    // An exception would only become a bug of the call.
    process.stderr.write(`an exchange goes from ${from} to ${state}\n`);
    process.exit(1);
  }
  before.set(this, state);
  enter.call(this, state);
};
