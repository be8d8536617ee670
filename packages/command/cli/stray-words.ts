// Explains the words of a command line that are neither flags of the command nor their values [D32].

import { joinWithOr, suggest } from '../../core/hosts/options/similar.ts';
import { commands } from '../commands/commands.ts';
import { commandNames, type Command } from '../settings/groups.ts';
import { flagOf, settingsOf } from '../settings/settings.ts';

/** The flags of the command's settings, and its flags that are not settings. */
export function flagsOf(command: Command): string[] {
  return [...settingsOf(command).map(flagOf), ...Object.keys(commands[command].ownFlags ?? {})];
}

/**
 * Returns the problems with arguments that are neither known flags nor values of known flags. A word after an unknown
 * flag may be a secret value. So a message shows only a word that is the first argument, or the first after the
 * command. The word must also have at most 20 characters, all of them letters or hyphens.
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
    return `an argument (not shown) begins with a hyphen, but is not a flag of ${command}`;
  }
  const known = [...flagsOf(command), '--help'];
  if (known.includes(flag)) return `${flag} takes no value`;
  const others = commandNames.filter((name) => flagsOf(name).includes(flag));
  return others.length > 0
    ? `${flag} is not a flag of ${command}, only of ${joinWithOr(others)}`
    : `${flag} is not a flag of ${command}${suggest(otherNames[flag] ?? flag.toLowerCase(), known)}`;
}
