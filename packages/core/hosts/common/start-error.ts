// The one error for what keeps a program from starting and its operator can put right.

/** Something outside keeps the program from starting; the message says what to do, `code` is the system's. */
export class StartError extends Error {
  readonly code: string | undefined;

  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'StartError';
    this.code = (cause as Partial<NodeJS.ErrnoException> | undefined)?.code;
  }
}
