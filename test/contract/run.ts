// Runs the contract check in this process against a backend of the test.

import assert from 'node:assert/strict';
import { checkContract, type ContractReport } from '../../packages/contract-check/contract.ts';
import type { ContractOptions } from '../../packages/contract-check/session.ts';
import { defaultTemplate } from '../../packages/contract-check/items.ts';
import { gatewayRows } from '../../packages/core/options/gateway-options.ts';
import { defaultsOf } from '../../packages/core/options/rows.ts';
import type { ItemBackend } from './item-backend.ts';

export type Settings = Partial<ContractOptions['settings']>;

export const never = new AbortController().signal;

export function runContract(
  url: string,
  settings: Settings = {},
  options: Partial<Omit<ContractOptions, 'settings'>> = {},
): Promise<ContractReport> {
  return checkContract({
    settings: { ...defaultsOf(gatewayRows), backendUrl: new URL(url), ...settings },
    tls: undefined,
    write: defaultTemplate,
    stop: never,
    cut: never,
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
