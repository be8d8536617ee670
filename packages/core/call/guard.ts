// The guard interface. A guard decides whether a request may proceed. For this it uses data outside the request, such
// as a counter or an issuer's keys. `joinGuards` combines several guards into one. The guards are in guards/.

import type { RequestHead } from '../http1/head.ts';
import type { OperationName } from '../operations.ts';
import type { CallOutcome } from '../outcomes.ts';
import type { FixedReply } from '../replies.ts';

/** A request for an operation. The item id and the body may still be invalid. */
export interface GuardedRequest {
  readonly head: RequestHead;
  readonly operation: OperationName;
  /** The client's address, from the connection or from trusted proxies; undefined if unknown [D46]. */
  readonly client: string | undefined;
  /** The client's identity, if an earlier guard has established it. */
  readonly identity: string | undefined;
}

/** A guard's decision: admitted, or refused with a fixed reply. */
export type Admission = {
  /** Header fields to add to the reply in both cases, as name, value, name, value; undefined if there are none. */
  readonly headers?: readonly string[] | undefined;
} & (
  | { readonly isAdmitted: true; readonly identity: string | undefined }
  | {
      readonly isAdmitted: false;
      readonly identity?: string | undefined;
      readonly reply: FixedReply;
      readonly outcome: CallOutcome;
      /** The reason, for the log. Never contains a token or its content. */
      readonly cause: string | undefined;
      readonly flaw?: string | undefined;
    }
);

export interface Guard {
  /** Returns a promise only if it must wait: a promise delays the request. An exception or rejection is a bug [D28]. */
  admit(request: GuardedRequest): Admission | Promise<Admission>;
}

/** Combines `guards` into a guard that calls them in turn, until a guard refuses; undefined if `guards` is empty. */
export function joinGuards([first, ...others]: readonly Guard[]): Guard | undefined {
  const rest = others.length === 0 ? undefined : joinGuards(others);
  if (first === undefined || rest === undefined) return first;
  const goOn = (request: GuardedRequest, admission: Admission): Admission | Promise<Admission> => {
    const { isAdmitted, identity, headers } = admission;
    if (!isAdmitted) return admission;
    const next = rest.admit({ ...request, identity });
    if (headers === undefined) return next;
    const join = (each: Admission): Admission => ({ ...each, headers: [...headers, ...(each.headers ?? [])] });
    return next instanceof Promise ? next.then(join) : join(next);
  };
  return {
    admit: (request) => {
      const admission = first.admit(request);
      return admission instanceof Promise ? admission.then((each) => goOn(request, each)) : goOn(request, admission);
    },
  };
}
