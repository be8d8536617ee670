// A backend client without a gateway, and a scripted backend.

import { BackendClient, type BackendRequest, type Outcome } from '../../packages/core/backend/client.ts';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import type { LookUp } from '../../packages/core/hosts/dialing/addresses.ts';
import { createOpenSocket, type ClientTls } from '../../packages/core/hosts/dialing/open-socket.ts';
import type { OpenSocket } from '../../packages/core/http1/backend-connection.ts';
import { BorrowedBytes, noBody } from '../../packages/core/http1/borrowed-bytes.ts';
import { within } from '../helpers/changes.ts';
import { ScriptedBackend } from '../helpers/scripted-backend.ts';

export const get: BackendRequest = {
  method: 'GET',
  path: '/api/WorkItem',
  body: noBody,
  requestId: 'id',
  headers: [],
  needsAnswer: true,
};
export const put: BackendRequest = {
  ...get,
  method: 'PUT',
  body: BorrowedBytes.ofConstant(Buffer.from('{}')),
  needsAnswer: false,
};
export const responseBytesMax = 1000;

export interface StartOptions {
  readonly basePath?: string;
  readonly budgetBytes?: number;
  readonly timeoutMs?: number;
  readonly connectTimeoutMs?: number;
  readonly connectionAgeMaxMs?: number;
  /** Default: the address of the scripted backend. */
  readonly backendUrl?: string;
  readonly lookUp?: LookUp;
  readonly tls?: ClientTls;
  /** Replaces dials. Default: each dial is made. */
  readonly change?: (open: OpenSocket) => OpenSocket;
}

/** Starts a client and a backend. */
export async function start({
  basePath = '',
  budgetBytes = 1_000_000,
  timeoutMs = 8_000,
  connectTimeoutMs = 5_000,
  connectionAgeMaxMs = 0,
  backendUrl: given,
  lookUp,
  tls,
  change = (open) => open,
}: StartOptions = {}) {
  const backend = await ScriptedBackend.start();
  const budget = new BufferBudget(budgetBytes);
  const backendUrl = new URL(given ?? backend.url + basePath);
  const client = new BackendClient({
    backendUrl,
    open: change(createOpenSocket(backendUrl, () => tls, lookUp)),
    timeoutMs,
    connectTimeoutMs,
    idleTimeoutMs: 60_000,
    connectionAgeMaxMs,
    responseBytesMax,
    budget,
  });
  const send = (request: BackendRequest) => {
    const outcomes: Outcome[] = [];
    const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
    const onOutcome = (outcome: Outcome) => {
      outcomes.push(outcome);
      resolve(outcome);
    };
    return { exchange: client.send(request, { onOutcome, onFault: reject }), outcome: promise, outcomes };
  };
  /** Makes a call, waits for its outcome and releases the answer's bytes. */
  const call = async (request: BackendRequest): Promise<Outcome> => {
    const outcome = await within(send(request).outcome, 'an outcome');
    if (outcome.kind === 'ok') outcome.body.release();
    return outcome;
  };
  return {
    backend,
    budget,
    client,
    send,
    call,
    [Symbol.asyncDispose]: async () => {
      await client.close();
      await backend.stop();
    },
  };
}
