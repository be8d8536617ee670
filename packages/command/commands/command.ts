// The interface of a command, and the data that a command receives when it runs.

import type { GivenFlags, Parts } from '../service/process-parts.ts';
import type { HeldSignals } from '../service/held-signals.ts';
import type { ResolvedSettings } from '../settings/settings.ts';

export interface Terminal {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly pid: number;
  /** The file that Node runs. */
  readonly script: string | undefined;
  /** Width of the terminal in columns; undefined if standard output is not a terminal, or its width is unknown. */
  readonly columns: number | undefined;
  readonly signals: HeldSignals;
  /** True if standard input, output or error was a terminal at the start. */
  readonly isInteractive: boolean;
  readonly write: (text: string) => void;
  readonly writeError: (text: string) => void;
}

export interface CommandRun {
  readonly resolved: ResolvedSettings;
  /** Reads the settings again, from the same flags and variables, and from the settings file as it is now. */
  readonly resolveAgain: () => ResolvedSettings;
  readonly ownFlags: GivenFlags;
  readonly terminal: Terminal;
  readonly parts: Partial<Parts>;
}

/** The lines that a check prints. If there are `problems`, the check has failed. */
export interface CheckResult {
  readonly lines?: readonly string[];
  readonly problems?: readonly string[];
}

export interface CommandEntry {
  readonly summary: string;
  readonly description: string;
  /** For each example in the help, the text of its flags. */
  readonly examples: readonly string[];
  /** The command's flags that are not settings. A switch has no placeholder. */
  readonly ownFlags?: Readonly<Record<string, { readonly placeholder?: string; readonly help: string }>>;
  /** Resolves with the problems in the given flags. Rejects with a StartError. */
  readonly findProblems?: (own: GivenFlags, parts: Partial<Parts>) => Promise<readonly string[]>;
  /** Resolves with the exit code. Rejects with a StartError. */
  readonly run: (run: CommandRun) => Promise<number>;
}
