// What is wrong with the words of a command line that are no flags of the command, nor their values [D32].

import { joinWithOr, suggest } from '../../core/hosts/options/similar.ts';
import type { Terminal } from '../commands/command.ts';
import { commands } from '../commands/commands.ts';
import { commandNames, type Command } from '../options/row.ts';
import { flagOf, settingsOf } from '../settings/settings.ts';
import type { Invocation } from './invocation.ts';

/** Those of its settings, and its own. */
function flagsOf(command: Command): string[] {
  return [...settingsOf(command).map(flagOf), ...Object.keys(commands[command].ownFlags ?? {})];
}

/** npm takes flags that are not behind `--` for its own, and a gateway would start without them [D32]. */
export function findFlagsOfNpm(
  command: Command,
  environment: Terminal['environment'],
  invocation: Invocation,
): string[] {
  return flagsOf(command)
    .filter(
      (flag) =>
        invocation.isNpmScript &&
        environment[`npm_config_${flag.slice(2).replaceAll('-', '_')}`] !== undefined,
    )
    .map(
      (flag) =>
        `npm has taken ${flag} for a flag of its own: put \`--\` before it, as in ${invocation.line(command, `${flag} ...`)}`,
    );
}

/**
 * The problems with arguments that are neither a known flag nor its value. What follows an unknown flag may be its value.
 * A value may be a secret: so a word is shown only where a command stands or right after it, and where it is plain.
 */
export function findStrayWords(
  command: Command,
  stray: readonly string[],
  argv: readonly string[],
): string[] {
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

// What other programs call it.
const otherNames: Readonly<Record<string, string>> = { '--config': flagOf('settingsFile') };

function describeUnknownFlag(command: Command, flag: string): string {
  if (!/^--?[a-z][a-z-]{0,39}$/i.test(flag)) {
    return `one argument begins with - and is not a flag of ${command}`;
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
