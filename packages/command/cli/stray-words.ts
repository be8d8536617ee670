// Explains the words of a command line that are neither flags of the command nor their values [D32].

import { joinWithOr, suggest } from '../../core/options/similar.ts';
import { commands } from '../commands/commands.ts';
import { commandNames, type Command } from '../settings/groups.ts';
import { flagOf, mostUsed, settingNames, settingsOf, variableOf } from '../settings/settings.ts';

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
      const flag = flagFor(word);
      if (flag !== undefined && flagsOf(command).includes(flag)) return `unexpected argument: did you mean ${flag}?`;
      const shown = word === first && /^[a-z][a-z-]{0,19}$/i.test(word) ? ` '${word}'` : '';
      if (hasCommand || word !== first) return `unexpected argument${shown}: ${command} takes flags only`;
      return `unknown command${shown}: must be ${joinWithOr(commandNames)}${suggest(word.toLowerCase(), commandNames)}`;
    }),
  ];
}

// Returns the flag that was left out before `word`, or for which `word` is a variable with its value.
function flagFor(word: string): string | undefined {
  if (/^https?:/i.test(word)) return flagOf('backendUrl');
  if (/^\d{2,5}$/.test(word)) return flagOf('port');
  return settingNames.filter((name) => word.startsWith(`${variableOf(name)}=`)).map(flagOf)[0];
}

// Flags of this program, each with flags of other programs that do the same.
const otherNames: readonly (readonly [flag: string, ...others: readonly string[]])[] = [
  [flagOf('settingsFile'), '--config', '--env-file', '-c', '-f'],
  [flagOf('backendUrl'), '--backend', '--upstream', '--target', '--url', '-u'],
  [flagOf('host'), '--listen', '--bind', '--address'],
  [flagOf('logLevel'), '--verbose', '--debug', '--quiet'],
  ['--help', '-h'],
  ['--version', '-v'],
];
const ownNameOf = (other: string): string | undefined => otherNames.find((names) => names.includes(other, 1))?.[0];
// The digits may be a value, such as a port.
const shortForm = /^--?[a-z](?=\d*$)/i;

function describeUnknownFlag(command: Command, given: string): string {
  const known = [...flagsOf(command), '--help', '--version'];
  const written = given.toLowerCase().replaceAll('_', '-');
  const others = commandNames.filter((name) => flagsOf(name).includes(written));
  const [short] = shortForm.exec(given) ?? [];
  if (short === undefined && others.length === 0 && !/^--?[a-z][a-z_-]{0,39}$/i.test(given)) {
    return `an argument (not shown) begins with a hyphen, but is not a flag of ${command}`;
  }
  if (known.includes(given)) return `${given} takes no value`;
  if (others.length > 0 && !known.includes(written)) {
    return `${written} is not a flag of ${command}, only of ${joinWithOr(others)}`;
  }
  const meant = short === undefined ? (ownNameOf(written) ?? written) : findLongForm(short, command);
  return `${short ?? given} is not a flag of ${command}${suggest(meant, known)}`;
}

// Returns the only flag with the letter of `short` at its beginning, or else at the beginning of a word. If several begin
// with the letter, the flag must be one that is often used. If there is no such flag, returns `short`.
function findLongForm(short: string, command: Command): string {
  const letter = short.slice(-1);
  const start = `-${letter.toLowerCase()}`;
  const all = flagsOf(command).filter((flag) => flag.includes(start));
  const first = all.filter((flag) => flag.startsWith(`-${start}`));
  const used = [...mostUsed.map(flagOf), ...Object.keys(commands[command].ownFlags ?? {})];
  const candidates = [first.filter((flag) => used.includes(flag)).slice(0, 1), first, all];
  return ownNameOf(`-${letter}`) ?? candidates.find(({ length }) => length === 1)?.[0] ?? short;
}
