// Whether a request of an operation may be called, as far as that takes more than a look at its head: the port of guards,
// and how several become one. What a guard looks at is its own affair, in guards/.

import type { RequestHead } from '../http1/head.ts';
import type { OperationName } from '../operations.ts';
import type { CallOutcome } from '../outcomes.ts';
import type { FixedReply } from '../replies.ts';

/** A request that leads to an operation, whatever its id and body are. */
export interface GuardedRequest {
  readonly head: RequestHead;
  readonly operation: OperationName;
  /** The client's address, as the connection or trusted proxies say it; undefined where it has gone [D46]. */
  readonly client: string | undefined;
  /** Whom an earlier guard has found the client to be; undefined where none has. */
  readonly identity: string | undefined;
}

/** What a guard says: let in, or refused with a fixed reply. */
export type Admission = {
  /** What the reply has beside its own headers, whatever it will be, as name, value, ...; undefined for nothing. */
  readonly headers?: readonly string[] | undefined;
} & (
  | { readonly isAdmitted: true; readonly identity: string | undefined }
  | {
      readonly isAdmitted: false;
      /** The client's identity, where a guard has established it: for the log. */
      readonly identity?: string | undefined;
      readonly reply: FixedReply;
      readonly outcome: CallOutcome;
      /** For the log: why. Never a token or what it says. */
      readonly cause: string | undefined;
      /** What is wrong with a token, as a code. */
      readonly flaw?: string | undefined;
    }
);

export interface Guard {
  /** At once where that is possible: a promise costs the call a turn. What it throws or rejects with is a fault [D28]. */
  admit(request: GuardedRequest): Admission | Promise<Admission>;
}

/** One guard that asks each of `guards` in turn, until one refuses; undefined for none. */
export function joinGuards(guards: readonly Guard[]): Guard | undefined {
  const [first, ...others] = guards;
  if (first === undefined) {
    return undefined;
  }
  const rest = joinGuards(others);
  if (rest === undefined) {
    return first;
  }
  const goOn = (request: GuardedRequest, admission: Admission): Admission | Promise<Admission> => {
    const { isAdmitted, identity, headers } = admission;
    if (!isAdmitted) {
      return admission;
    }
    const next = rest.admit({ ...request, identity });
    if (headers === undefined) {
      return next;
    }
    const join = (each: Admission): Admission => ({
      ...each,
      headers: [...headers, ...(each.headers ?? [])],
    });
    return next instanceof Promise ? next.then(join) : join(next);
  };
  return {
    admit: (request) => {
      const admission = first.admit(request);
      return admission instanceof Promise
        ? admission.then((each) => goOn(request, each))
        : goOn(request, admission);
    },
  };
}
