// A call that is in flight until the test ends it.

import { after } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, type ScriptedBackend } from '../helpers/scripted-backend.ts';

/** Sends `bytes` to the gateway at `port`; `backend` answers with `then` after the returned `open` is called. */
export async function holdCall(
  backend: ScriptedBackend,
  { port }: { readonly port: number },
  bytes = requestBytes('GET', '/api/work-items/5'),
  then = answer('{"id":5}'),
) {
  const gate = createGate();
  backend.answersOnce(async (exchange) => {
    await Promise.race([gate.opened, exchange.closed]);
    await then(exchange);
  });
  const held = backend.requests.length + 1;
  const client = await RawClient.open(port);
  after(() => client.destroy());
  client.send(bytes);
  await backend.until(() => backend.requests.length === held, 'the held call');
  return { client, open: gate.open };
}
