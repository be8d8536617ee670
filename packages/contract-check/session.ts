// What one run of the check knows: the calls it makes, what it has found, and which operations it could try.

import { operations, type OperationName } from '../core/operations.ts';
import type { ClientTls } from '../core/http1/client-connection.ts';
import { Calls, type Call, type GatewayInForce } from '../backend-probe/calls.ts';
import { explainFailure } from '../backend-probe/failures.ts';
import { createFinding, findingOf, type Finding, type FindingName } from './findings.ts';
import { idsOf, type Item, type ItemId } from './items.ts';
import type { Template } from './template.ts';

export interface ContractOptions {
  readonly settings: GatewayInForce;
  readonly tls: ClientTls | undefined;
  /** Undefined: nothing is written. */
  readonly write: Template | undefined;
  /** Aborted: nothing new is begun, and what was made is cleaned up. */
  readonly stop: AbortSignal;
  /** Aborted: nothing more is done at all, calls that are being made fail. */
  readonly cut: AbortSignal;
  /** How long to look whether the backend closes an idle connection, at most. */
  readonly idleWaitMsMax?: number;
  /** From here on an answer is slow. Default: half of the time that it may take. */
  readonly slowMs?: number;
}

export type Verdict = 'works' | 'broken' | 'not tried';

/** Something that the check has made and could not take away. */
export interface Leftover {
  /** Undefined where it is not known. */
  readonly id: string | undefined;
  readonly marker: string;
  readonly why: string;
  readonly remove: string;
}

/** There is no use in going on: the backend is stalled or away, or somebody wants an end. */
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

  /** The id of an item; undefined where it has none, or several that differ. */
  idOf(item: Item): ItemId | undefined {
    const ids = idsOf(item, this.options.settings.itemIdParsing);
    return ids.every(({ text }) => text === ids[0]?.text) ? ids[0] : undefined;
  }

  /** Whether the item has no id that differs from `id`. */
  hasNoOtherId(item: Item, id: string): boolean {
    return idsOf(item, this.options.settings.itemIdParsing).every(({ text }) => text === id);
  }

  /** Throws where there is to be an end. */
  stopIf({ aborted } = this.options.stop): void {
    if (aborted) {
      throw new Stopped();
    }
  }

  /** Makes a call, unless there is to be an end. */
  async call(name: OperationName, id?: string, body?: Buffer): Promise<Call> {
    this.stopIf();
    return await this.callAnyway(name, id, body);
  }

  /** The same for what cleans up. */
  async callAnyway(name: OperationName, id?: string, body?: Buffer): Promise<Call> {
    this.stopIf(this.options.cut);
    const call = await this.calls.make(name, id, body);
    this.stopIf(this.options.cut);
    return call;
  }

  /** The same for a call that may fail, and proves nothing then. */
  async look(name: OperationName, id?: string): Promise<Call> {
    const call = await this.callAnyway(name, id);
    if (isStalled(call)) {
      this.judge(call);
    }
    return call;
  }

  /** Records a success, or explains the failure. Throws `Stopped` if more calls are pointless. */
  judge(call: Call): boolean {
    const isWell = call.outcome === 'ok';
    if (!isWell) {
      this.#judgeBy(createFinding(call, explainFailure(call, this.options.settings.backendUrl)));
    } else if (this.verdicts.get(call.operation.name) === 'not tried') {
      this.verdicts.set(call.operation.name, 'works');
    }
    if (isStalled(call)) {
      throw new Stopped();
    }
    return isWell;
  }

  /** Something that `call` showed. What breaks keeps clients from using its operation. */
  tell(call: Call, name: FindingName, ...values: readonly (string | number)[]): void {
    this.#judgeBy(findingOf(call, name, values));
  }

  #judgeBy(finding: Finding): void {
    if (finding.severity === 'breaks') {
      for (const name of finding.operations) {
        this.verdicts.set(name, 'broken');
      }
    }
    this.add(finding);
  }

  /** What is the same for several operations is said once. */
  add(finding: Finding): void {
    const same = this.findings.findIndex(
      ({ code, title, advice }) =>
        code === finding.code && title === finding.title && advice === finding.advice,
    );
    const first = this.findings[same];
    if (first === undefined) {
      this.findings.push(finding);
    } else {
      const names = new Set([...first.operations, ...finding.operations]);
      this.findings[same] = { ...first, operations: [...names] };
    }
  }
}

/** More calls would only wait, each for its whole time. */
export function isStalled({ outcome }: Call): boolean {
  return outcome === 'timed-out';
}
