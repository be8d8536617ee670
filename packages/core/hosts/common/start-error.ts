// The error for a start that failed for a reason that the operator can fix.

/** The message says what to do; `code` is the error code of the OS, if any. */
export class StartError extends Error {
  readonly code: string | undefined;

  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'StartError';
    this.code = (cause as Partial<NodeJS.ErrnoException> | undefined)?.code;
  }
}
