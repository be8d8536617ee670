// Reads the state that the dashboard's page fetches.

import assert from 'node:assert/strict';

import type { Details, Message } from '../../packages/dashboard/state.ts';
import { poll } from './changes.ts';
import { request } from './raw-client.ts';

export const statePath = '/dashboard/state';

/** Reads the whole state again and again until `isIt` accepts it. */
export async function readState(
  port: number,
  isIt: (state: Message & Details) => boolean = () => true,
  expected = 'a state',
): Promise<Message & Details> {
  let state: (Message & Details) | undefined;
  await poll(async () => {
    const reply = await request(port, 'GET', statePath);
    assert.equal(reply.status, 200, reply.text);
    state = JSON.parse(reply.text) as Message & Details;
    return isIt(state);
  }, expected);
  return state ?? assert.fail(expected);
}
