// A viewer of the dashboard: receives the messages that the gateway sends to the dashboard's page.

import assert from 'node:assert/strict';

import type { Message } from '../../packages/dashboard/state.ts';
import { poll } from './changes.ts';
import { RawClient, requestBytes } from './raw-client.ts';

export const events = '/dashboard/events';

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
    const status = /^HTTP\/1\.1 (\d+)/.exec(this.client.unread.toString('latin1', 0, 12))?.[1];
    return status === undefined ? undefined : Number(status);
  }

  /** The complete messages. */
  get messages(): Message[] {
    return [...this.client.unread.toString('utf8').matchAll(/^data: (.*)\n\n/gm)].map(
      ([, data = '']) => JSON.parse(data) as Message,
    );
  }

  async message(isIt: (message: Message) => boolean, expected: string): Promise<Message> {
    await poll(() => this.messages.some(isIt), expected);
    return this.messages.find(isIt) ?? assert.fail(expected);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client[Symbol.asyncDispose]();
  }
}
