// The state of one run of the check: its calls, its findings and the verdict on each operation.

import { Calls, type Call, type GatewayInForce } from '../backend-probe/calls.ts';
import { explainFailure, show, type Finding } from '../backend-probe/failures.ts';
import type { ClientTls } from '../core/hosts/dialing/open-socket.ts';
import { operations, type OperationName } from '../core/operations.ts';
import { findingOf, type FindingName } from './findings.ts';
import { idsOf, type Item, type ItemId, type Template } from './items.ts';

export interface ContractOptions {
  readonly settings: GatewayInForce;
  readonly tls: ClientTls | undefined;
  /** The item to create; undefined to write nothing. */
  readonly write: Template | undefined;
  /** Aborting this signal ends the check after cleaning up. */
  readonly stop: AbortSignal;
  /** Aborting this signal ends the check immediately. Calls in flight fail, and nothing is cleaned up. */
  readonly cut: AbortSignal;
  readonly idleWaitMsMax?: number;
  /** Answers that take at least this long are reported as slow. Default: half of the backend timeout. */
  readonly slowMs?: number;
}

export type Verdict = 'works' | 'broken' | 'not tried';

/** An item that may still exist, and that the check created or may have created. */
export interface Leftover {
  readonly id: string | undefined;
  readonly marker: string;
  readonly why: string;
  readonly remove: string;
}

/** Thrown to end the check, because the backend hangs or is unreachable, or because the operator stopped the check. */
export class Stopped extends Error {}

export class Session {
  readonly options: ContractOptions;
  readonly calls: Calls;
  readonly findings: Finding[] = [];
  readonly leftovers: Leftover[] = [];
  readonly verdicts = new Map<OperationName, Verdict>(operations.map(({ name }) => [name, 'not tried']));

  constructor(options: ContractOptions) {
    this.options = options;
    this.calls = new Calls(options.settings, options.tls, options.cut);
  }

  /** The id of an item; undefined if the item has no id, or several different ids. */
  idOf(item: Item): ItemId | undefined {
    const [first] = idsOf(item, this.options.settings.itemIdParsing);
    return first && this.hasNoOtherId(item, first.text) ? first : undefined;
  }

  hasNoOtherId(item: Item, id: string): boolean {
    return idsOf(item, this.options.settings.itemIdParsing).every(({ text }) => text === id);
  }

  /** Throws `Stopped` if the given signal is aborted. The default signal is `stop`. */
  stopIf({ aborted } = this.options.stop): void {
    if (aborted) throw new Stopped();
  }

  /** Makes a call. Throws `Stopped` if the check has been stopped. */
  async call(name: OperationName, id?: string, body?: Buffer): Promise<Call> {
    this.stopIf();
    return await this.#make(name, id, body);
  }

  /**
   * Makes a call for the clean-up, even after `stop`. A timeout becomes a finding; other failures do not. Throws
   * `Stopped` for a timeout and after `cut`.
   */
  async look(name: OperationName, id?: string): Promise<Call> {
    const call = await this.#make(name, id);
    if (call.outcome === 'timed-out') this.judge(call);
    return call;
  }

  async #make(name: OperationName, id?: string, body?: Buffer): Promise<Call> {
    this.stopIf(this.options.cut);
    const call = await this.calls.make(name, id, body);
    this.stopIf(this.options.cut);
    return call;
  }

  /**
   * Records a success, or a finding that explains the failure. Returns true for a success. Throws `Stopped` for a
   * timeout, because further calls would most likely time out too.
   */
  judge(call: Call): boolean {
    const { outcome, operation } = call;
    if (outcome !== 'ok') {
      this.add(explainFailure(call, this.options.settings.backendUrl));
    } else if (this.verdicts.get(operation.name) === 'not tried') {
      this.verdicts.set(operation.name, 'works');
    }
    if (outcome === 'timed-out') throw new Stopped();
    return outcome === 'ok';
  }

  tell(call: Call, name: FindingName, ...values: readonly (string | number)[]): void {
    this.add(findingOf(call, name, values));
  }

  /** Adds a finding about an odd id, but only one finding for each oddity. */
  tellOfId(call: Call, { text, kind, asked }: ItemId): void {
    if (kind === 'whole' && !text.startsWith('-')) return;
    const code = kind === 'whole' ? 'id-negative' : (`id-${kind}` as const);
    if (this.findings.every((finding) => finding.code !== code)) {
      const name = code === 'id-unusable' && asked !== undefined ? 'id-unusable:cut' : code;
      this.tell(call, name, show(kind === 'text' ? JSON.stringify(text) : text), show(asked ?? ''));
    }
  }

  /**
   * Adds a finding. If its severity is `breaks`, those of its operations that were called get the verdict `broken`.
   * Equal findings of several operations become one finding.
   */
  add(finding: Finding): void {
    const { code, severity, title, advice, operations: names } = finding;
    for (const name of names) {
      const isCalled = this.calls.made.some(({ operation }) => operation.name === name);
      if (severity === 'breaks' && isCalled) this.verdicts.set(name, 'broken');
    }
    const same = this.findings.find((each) => each.code === code && each.title === title && each.advice === advice);
    if (same === undefined) {
      this.findings.push(finding);
    } else {
      same.operations.push(...names.filter((name) => !same.operations.includes(name)));
    }
  }
}
