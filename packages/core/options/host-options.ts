// Options that several hosts have and the command does not have.

import { onlyInCode } from './kinds.ts';
import { timeLimitRows } from './limits.ts';
import { Problem } from './problem.ts';

const prefixPattern = /^(?:\/[^/?#]+)*$/;

const prefix = onlyInCode<string>((given) =>
  prefixPattern.test(given) ? given : new Problem('must start with a slash and not end with one'),
);

/** The options of the handlers for Node and fetch. */
export const handlerRows = {
  /** Path prefix before `/api/work-items`, as the client sends it, such as the base path of a site. Default: none. */
  prefix: { kind: prefix },
  /**
   * Timeout for receiving a request body, in milliseconds. A late body gets 408, and a Node server closes the connection
   * [D35]. Default 30,000.
   */
  requestTimeoutMs: timeLimitRows.requestTimeoutMs,
};
