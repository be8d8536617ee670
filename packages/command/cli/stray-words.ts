// Explains the words of a command line that are neither flags of the command nor their values [D32].

import { joinWithOr, suggest } from '../../core/hosts/options/similar.ts';
import type { Terminal } from '../commands/command.ts';
import { commands } from '../commands/commands.ts';
import { commandNames, type Command } from '../settings/row.ts';
import { flagOf, settingsOf } from '../settings/settings.ts';
import type { Invocation } from './invocation.ts';

/** The flags of the command's settings, and its flags that are not settings. */
function flagsOf(command: Command): string[] {
  return [...settingsOf(command).map(flagOf), ...Object.keys(commands[command].ownFlags ?? {})];
}

/** Finds flags that npm took as its own because no `--` preceded them. The gateway does not see such flags [D32]. */
export function findFlagsOfNpm(
  command: Command,
  environment: Terminal['environment'],
  invocation: Invocation,
): string[] {
  return flagsOf(command)
    .filter(
      (flag) => invocation.isNpmScript && environment[`npm_config_${flag.slice(2).replaceAll('-', '_')}`] !== undefined,
    )
    .map(
      (flag) =>
        `npm took ${flag} as a flag of its own: put \`--\` before it, as in ${invocation.line(command, `${flag} ...`)}`,
    );
}

/**
 * Returns the problems with arguments that are neither a known flag nor its value. A word after an unknown flag may be a
 * secret value. So a problem names a word only if it has at most 20 letters and hyphens and is in the place of the command
 * or right after it.
 */
export function findStrayWords(command: Command, stray: readonly string[], argv: readonly string[]): string[] {
  const flags = stray.filter((word) => word.startsWith('-'));
  const words = flags[0] === undefined ? stray : stray.slice(0, stray.indexOf(flags[0]));
  const hasCommand = argv[0] === command;
  const first = argv[hasCommand ? 1 : 0];
  return [
    ...flags.map((flag) => describeUnknownFlag(command, flag.replace(/=.*/s, ''))),
    ...words.map((word) => {
      const shown = word === first && /^[a-z][a-z-]{0,19}$/i.test(word) ? ` '${word}'` : '';
      return shown === '' || hasCommand
        ? `unexpected argument${shown}: ${command} takes flags only`
        : `unknown command${shown}${suggest(word.toLowerCase(), commandNames) || `; commands: ${joinWithOr(commandNames)}`}`;
    }),
  ];
}

// Flags that users know from other programs, and the flag of this program that does the same.
const otherNames: Readonly<Record<string, string>> = { '--config': flagOf('settingsFile') };

function describeUnknownFlag(command: Command, flag: string): string {
  if (!/^--?[a-z][a-z-]{0,39}$/i.test(flag)) {
    return `an argument that begins with - (not shown) is not a flag of ${command}`;
  }
  if (flag === '--help' || flagsOf(command).includes(flag)) {
    return `${flag} takes no value`;
  }
  const others = commandNames.filter((name) => flagsOf(name).includes(flag));
  if (others.length > 0) {
    return `${flag} is not a flag of ${command}, only of ${joinWithOr(others)}`;
  }
  const known = [...flagsOf(command), '--help'];
  return `${flag} is not a flag of ${command}${suggest(otherNames[flag] ?? flag.toLowerCase(), known)}`;
}
