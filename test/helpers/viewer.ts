// A viewer of the dashboard: what its page would be sent.

import assert from 'node:assert/strict';

import type { Message } from '../../packages/dashboard/state.ts';
import { poll } from './changes.ts';
import { RawClient, requestBytes } from './raw-client.ts';

export const events = '/dashboard/events';

/** A viewer that reads what it is sent. */
export class Viewer implements AsyncDisposable {
  readonly client: RawClient;

  private constructor(client: RawClient) {
    this.client = client;
  }

  static async open(port: number): Promise<Viewer> {
    const client = await RawClient.open(port);
    client.send(requestBytes('GET', events));
    return new Viewer(client);
  }

  get status(): number | undefined {
    const match = /^HTTP\/1\.1 (\d+)/.exec(this.client.unread.toString('latin1', 0, 12));
    return match === null ? undefined : Number(match[1]);
  }

  /** The messages that have come in full. */
  get messages(): Message[] {
    return [...this.client.unread.toString('utf8').matchAll(/^data: (.*)\n\n/gm)].map(
      ([, data = '']) => JSON.parse(data) as Message,
    );
  }

  async message(isIt: (message: Message) => boolean, expected: string): Promise<Message> {
    let found: Message | undefined;
    await poll(() => {
      found = this.messages.find(isIt);
      return found !== undefined;
    }, expected);
    assert.ok(found);
    return found;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client[Symbol.asyncDispose]();
  }
}
