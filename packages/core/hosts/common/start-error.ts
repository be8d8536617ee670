// The error for a start that failed for a reason that the operator can fix.

import type { GatewayErrorCode } from './gateway-error.ts';

const listenCode: GatewayErrorCode = 'ERR_GATEWAY_LISTEN';

/** The message says what to do; `code` is the error code of the OS, if there is one. */
export class StartError extends Error {
  readonly code: string;

  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'StartError';
    this.code = (cause as Partial<NodeJS.ErrnoException> | undefined)?.code ?? listenCode;
  }
}
