// What a command is, and what it is run with.

import type { GivenFlags, Parts } from '../service/parts.ts';
import type { HeldSignals } from '../service/held-signals.ts';
import type { ResolvedSettings } from '../settings/settings.ts';

export interface Terminal {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Of this process. */
  readonly pid: number;
  /** The file that Node was told to run. */
  readonly script: string | undefined;
  /** Its width; undefined where there is no terminal. */
  readonly columns: number | undefined;
  readonly signals: HeldSignals;
  /** Standard input, output or error was a terminal at the start. */
  readonly isInteractive: boolean;
  readonly write: (text: string) => void;
  readonly writeError: (text: string) => void;
}

/** What stands for the value of each in the help, undefined for a switch; and what it is, in a few words. */
type OwnFlags = Readonly<Record<string, { readonly placeholder: string | undefined; readonly help: string }>>;

/** One run of a command. */
export interface CommandRun {
  readonly resolved: ResolvedSettings;
  /** Reads the settings anew: from the same flags, and a settings file that may have changed. */
  readonly resolveAgain: () => ResolvedSettings;
  /** The flags of the command's own that were given. */
  readonly ownFlags: GivenFlags;
  readonly terminal: Terminal;
  readonly parts: Partial<Parts>;
}

/** What a check has found, line by line; `problems` have to be put right. */
export interface CheckResult {
  readonly lines?: readonly string[];
  readonly problems?: readonly string[];
}

export interface CommandEntry {
  readonly summary: string;
  readonly description: string;
  /** Flags that it is run with. */
  readonly examples: readonly string[];
  /** Flags of its own that are no settings, by their names. */
  readonly ownFlags?: OwnFlags;
  /** What is wrong with those that were given. Rejects with a StartError. */
  readonly findProblems?: (own: GivenFlags, parts: Partial<Parts>) => Promise<readonly string[]>;
  /** Resolves with the exit code. Rejects with a StartError. */
  readonly run: (run: CommandRun) => Promise<number>;
}
