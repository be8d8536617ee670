// What the check finds: something that is wrong with the backend, with the call that showed it.

import type { OperationName } from '../core/operations.ts';
import type { Call } from '../backend-probe/calls.ts';
import { describeCame, describeReply } from '../backend-probe/describe.ts';
import type { FailureWords } from '../backend-probe/failures.ts';

export interface Finding {
  /** For programs; stays what it is. */
  readonly code: string;
  /** `breaks`: clients cannot use an operation as the specification has it. A warning fails nothing. */
  readonly severity: 'breaks' | 'warning';
  readonly operations: readonly OperationName[];
  readonly title: string;
  readonly asked: string;
  readonly came: string;
  readonly clients: string;
  readonly advice: string;
}

/** A finding in words. `clients` is there only where it is something else than the reply of the call that showed it. */
export interface Words extends FailureWords {
  readonly clients?: string;
}

/** A finding that `call` showed. */
export function findingOf(
  call: Call,
  severity: Finding['severity'],
  { code, title, advice, clients = describeReply(call) }: Words,
): Finding {
  const { operation, path } = call;
  return {
    code,
    severity,
    operations: [operation.name],
    title,
    asked: `${operation.method} ${path}`,
    came: describeCame(call),
    clients,
    advice,
  };
}
