// Reads the state that the dashboard's page fetches.

import assert from 'node:assert/strict';

import type { Details, Message } from '../../packages/dashboard/state.ts';
import { poll } from './changes.ts';
import { request } from './raw-client.ts';

export const statePath = '/dashboard/state';

type State = Message & Details;

/** Reads the whole state again and again until `isIt` accepts it. */
export async function readState(
  port: number,
  isIt: (state: State) => boolean = () => true,
  expected = 'a state',
): Promise<State> {
  let state: State | undefined;
  await poll(async () => {
    const reply = await request(port, 'GET', statePath);
    assert.equal(reply.status, 200, reply.text);
    return isIt((state = JSON.parse(reply.text) as State));
  }, expected);
  return state ?? assert.fail(expected);
}
