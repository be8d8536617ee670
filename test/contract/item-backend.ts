// A scripted backend that stores work items, and the contract check against it, in this process.

import assert from 'node:assert/strict';
import { checkContract, type ContractReport } from '../../packages/contract-check/contract.ts';
import type { ContractOptions } from '../../packages/contract-check/session.ts';
import { defaultTemplate } from '../../packages/contract-check/items.ts';
import { gatewayRows } from '../../packages/core/options/gateway-options.ts';
import { defaultsOf } from '../../packages/core/options/rows.ts';
import { answer, noContent, ScriptedBackend, type Answer, type Exchange } from '../helpers/scripted-backend.ts';

export type Item = Record<string, unknown>;

export type Operation = 'list' | 'create' | 'read' | 'update' | 'delete';

/** Returns an answer to send instead of the usual one, or undefined. `id` comes from the path. */
export type Instead = (exchange: Exchange, backend: ItemBackend, id: string) => Answer | undefined;

/** Its functions in `instead` can replace any answer. */
export class ItemBackend implements AsyncDisposable {
  readonly scripted: ScriptedBackend;
  readonly items = new Map<string, Item>();
  /** Ids of created items. */
  readonly created = new Set<string>();
  /** The operation of each request, in order. */
  readonly asked: Operation[] = [];
  /** The PUT and DELETE requests. */
  readonly writes: { readonly method: string; readonly id: string }[] = [];
  instead: Partial<Record<Operation, Instead>> = {};
  /** Called before each answer. */
  onRequest: (operation: Operation) => void = () => undefined;
  nextId = 4;

  private constructor(scripted: ScriptedBackend) {
    this.scripted = scripted;
    for (const id of ['1', '2', '3']) {
      this.items.set(id, { id: Number(id), title: `of another owner, ${id}` });
    }
    scripted.answers((exchange) => this.#answer(exchange));
  }

  static async start(): Promise<ItemBackend> {
    return new ItemBackend(await ScriptedBackend.start());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.scripted.stop();
  }

  /** Carries out the request and returns the usual answer. */
  usual(operation: Operation, body: Buffer, id: string): Answer {
    switch (operation) {
      case 'list':
        return answer(JSON.stringify([...this.items.values()]));
      case 'create': {
        const item = this.add(JSON.parse(body.toString()) as Item);
        return answer(JSON.stringify(item), { status: 201 });
      }
      case 'read': {
        const item = this.items.get(id);
        return item === undefined ? answer('{}', { status: 404 }) : answer(JSON.stringify(item));
      }
      case 'update':
        if (!this.items.has(id)) return answer('{}', { status: 404 });
        this.items.set(id, { ...(JSON.parse(body.toString()) as Item), id: Number(id) });
        return noContent;
      case 'delete':
        return this.items.delete(id) ? noContent : answer('{}', { status: 404 });
    }
  }

  add(item: Item): Item {
    const id = this.nextId;
    this.nextId += 1;
    this.created.add(String(id));
    this.items.set(String(id), { id, ...item });
    return { id, ...item };
  }

  #answer(exchange: Exchange): Promise<void> | void {
    const { method, target, body } = exchange.request;
    const [, id = ''] = /\/api\/WorkItem\/?(.*)$/.exec(target) ?? [];
    const operation = writes[method] ?? (id === '' ? 'list' : 'read');
    this.asked.push(operation);
    if (operation === 'update' || operation === 'delete') this.writes.push({ method, id });
    this.onRequest(operation);
    const given = this.instead[operation]?.(exchange, this, id) ?? this.usual(operation, body, id);
    return given(exchange);
  }
}

const writes: Readonly<Record<string, Operation>> = { POST: 'create', PUT: 'update', DELETE: 'delete' };

export type Settings = Partial<ContractOptions['settings']>;

export function runContract(
  url: string,
  settings: Settings = {},
  options: Partial<Omit<ContractOptions, 'settings'>> = {},
): Promise<ContractReport> {
  return checkContract({
    settings: { ...defaultsOf(gatewayRows), backendUrl: new URL(url), ...settings },
    tls: undefined,
    write: defaultTemplate,
    stop: new AbortController().signal,
    cut: new AbortController().signal,
    idleWaitMsMax: 1,
    ...options,
  });
}

/** The findings in the form `breaks create: empty-success`. */
export function codesOf({ findings }: ContractReport): string[] {
  return findings.map(({ severity, operations, code }) => `${severity} ${operations.join(',')}: ${code}`);
}

/** Asserts that the check wrote only to items that it created, and that the other items exist. */
export function assertOthersUntouched(backend: ItemBackend): void {
  for (const { method, id } of backend.writes) {
    assert.ok(backend.created.has(id), `${method} of ${id}, an item of another owner`);
  }
  for (const id of ['1', '2', '3']) {
    assert.deepEqual(backend.items.get(id), { id: Number(id), title: `of another owner, ${id}` });
  }
}

/** The check's items that still exist. */
export function leftIn(backend: ItemBackend): string[] {
  return [...backend.created].filter((id) => backend.items.has(id));
}
