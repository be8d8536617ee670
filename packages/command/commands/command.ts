// The interface of a command, and the data for a run of it.

import type { GivenFlags, Parts } from '../service/parts.ts';
import type { HeldSignals } from '../service/lifecycle.ts';
import type { ResolvedSettings } from '../settings/settings.ts';

export interface Terminal {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly pid: number;
  /** The file that Node runs. */
  readonly script: string | undefined;
  /** Width of the terminal in columns; undefined if standard output is not a terminal. */
  readonly columns: number | undefined;
  readonly signals: HeldSignals;
  /** True if standard input, output or error was a terminal at the start. */
  readonly isInteractive: boolean;
  readonly write: (text: string) => void;
  readonly writeError: (text: string) => void;
}

export interface CommandRun {
  readonly resolved: ResolvedSettings;
  /** Reads the settings again, from the same flags and variables and the current settings file. */
  readonly resolveAgain: () => ResolvedSettings;
  /** The flags given to the command, without those that are settings. */
  readonly ownFlags: GivenFlags;
  readonly terminal: Terminal;
  readonly parts: Partial<Parts>;
}

/** The result of a check, as lines of text; each of `problems` makes the check fail. */
export interface CheckResult {
  readonly lines?: readonly string[];
  readonly problems?: readonly string[];
}

export interface CommandEntry {
  readonly summary: string;
  readonly description: string;
  /** Flags for the examples in the help. */
  readonly examples: readonly string[];
  /** The command's flags that are not settings. A switch has no placeholder. */
  readonly ownFlags?: Readonly<Record<string, { readonly placeholder?: string; readonly help: string }>>;
  /** Resolves with the problems of the given flags. Rejects with a StartError. */
  readonly findProblems?: (own: GivenFlags, parts: Partial<Parts>) => Promise<readonly string[]>;
  /** Resolves with the exit code. Rejects with a StartError. */
  readonly run: (run: CommandRun) => Promise<number>;
}
