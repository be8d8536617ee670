// State shared by all requests of one Node server.

import { Deadlines } from '../../backend/deadlines.ts';
import type { Gateway } from '../../call/gateway.ts';
import type { ServerLimits } from '../../http1/connection.ts';
import { StallWatch } from '../clients/stall-watch.ts';
import type { RequestReceiver } from '../../http1/transport.ts';
import { watchOffers } from './upgrade-offers.ts';

export interface NodeHost {
  readonly gateway: Gateway;
  readonly stallWatch: StallWatch<RequestReceiver>;
  readonly bodyDeadlines: Deadlines;
}

type NodeLimits = Pick<ServerLimits, 'requestTimeoutMs' | 'replyStallTimeoutMs'>;

export function createNodeHost(gateway: Gateway, limits: NodeLimits): NodeHost {
  watchOffers();
  const stallWatch = new StallWatch<RequestReceiver>(limits.replyStallTimeoutMs, (incoming) => incoming.onStall());
  return { gateway, stallWatch, bodyDeadlines: new Deadlines(limits.requestTimeoutMs) };
}
