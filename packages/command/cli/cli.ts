// The command line: parses commands and flags, runs the command, returns the exit code. Flags come from the settings table.
// All problems are reported together, before anything starts [D32].

import { Command as Program, CommanderError, Help, Option } from 'commander';

import { joinWithOr } from '../../core/options/similar.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import { version } from '../../core/version.ts';
import type { Terminal } from '../commands/command.ts';
import { commands } from '../commands/commands.ts';
import type { Parts } from '../service/process-parts.ts';
import {
  briefOf,
  defaultOf,
  flagOf,
  groupForHelp,
  rowOf,
  type SettingName,
  SettingsError,
  variableOf,
} from '../settings/settings.ts';
import { type Command, commandNames } from '../settings/groups.ts';
import { resolveSettings } from '../settings/resolve.ts';
import { findInvocation, programName, type Invocation } from './invocation.ts';
import { findStrayWords, flagsOf } from './stray-words.ts';

// Width of the help if the output is not a terminal. Each setting fits in one line, so grep prints a whole setting.
const unboundColumns = 200;
const indent = ' '.repeat(6);
// Largest length of a list of choices in the help, in characters. Longer lists are only in docs/settings.md.
const choicesLengthMax = 70;
const starting: readonly Command[] = ['serve', 'dev', 'backend'];
// npm's own setting of this name is often in a file of npm's settings.
const settingOfNpm = '--audit';
// Makes commander accept a value for a switch, too. The help does not show this text.
const switchValue = ' [value]';
const aboutSettings = `
Give each setting as a flag, or as the environment variable that is in brackets
after the flag's description. The flag takes precedence. To turn a switch off,
add false (--docs false). docs/settings.md describes each setting in full.
`;

/** Runs the command in `argv` (without node and script). Resolves with the exit code. */
export async function runCli(argv: readonly string[], terminal: Terminal, parts: Partial<Parts>): Promise<number> {
  let exitCode = 0;
  const invocation = findInvocation(terminal.environment, terminal.script);
  const describeExamples = (lines: readonly (readonly [Command, string])[]): string =>
    `\nExamples:\n${lines.map(([name, flags]) => `  ${invocation.line(name, flags)}\n`).join('')}`;
  // The commands inherit the configuration below, up to and including `configureHelp`.
  const program = new Program(programName)
    .helpOption('-h, --help', 'print this help')
    .exitOverride()
    // runCommand() reports stray words and unknown flags, together with the other problems.
    .allowExcessArguments()
    .configureOutput({
      writeOut: terminal.write,
      writeErr: terminal.writeError,
      getOutHelpWidth: () => terminal.columns ?? unboundColumns,
    })
    .configureHelp({
      minWidthToWrap: 30,
      formatItem,
      optionTerm: ({ flags }) => flags.replace(switchValue, '').replace(/\[(.*)\]/, '<$1>'),
    })
    .description('A JSON-over-HTTP gateway for work items.')
    .version(version, '-V, --version', 'print the version')
    .helpCommand('help [command]', 'print the help of a command')
    .addHelpText('after', describeExamples(commandNames.map((name) => [name, commands[name].examples[0] ?? ''])));
  for (const name of commandNames) {
    const { summary, description, examples } = commands[name];
    const command = program
      .command(name, { isDefault: name === 'serve' })
      .summary(summary)
      .description(description)
      .usage('[flags]')
      .allowUnknownOption()
      .addHelpText('after', aboutSettings + describeExamples(examples.map((flags) => [name, flags])))
      .action(async (flags: Record<string, string | true>) => {
        const line = { name, flags, strayWords: command.args, argv, invocation };
        exitCode = await runCommand(line, terminal, parts);
      });
    if (invocation.isNpmScript) {
      command.configureHelp({ ...command.configureHelp(), commandUsage: () => invocation.line(name, '[flags]') });
    }
    createOptions(name).forEach((option) => command.addOption(option));
    // The version flag is added last, so that it follows the settings in the help.
    command.version(version, '-V, --version', 'print the version');
  }
  try {
    await program.parseAsync(argv, { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode;
    throw error;
  }
}

// On a narrow terminal, puts the description of a setting below the flag.
function formatItem(term: string, termWidth: number, description: string, help: Help): string {
  const { helpWidth = unboundColumns } = help;
  if (termWidth < helpWidth / 3) return Help.prototype.formatItem.call(help, term, termWidth, description, help);
  const text = help.boxWrap(description, helpWidth - indent.length);
  return `  ${term}\n${text.replaceAll(/^/gm, indent)}`;
}

// Declares the values of flags as optional, because commander would end the program at the first missing value.
function createOptions(name: Command): Option[] {
  const own = Object.entries(commands[name].ownFlags ?? {}).map(([flag, { placeholder, help }]) =>
    new Option(placeholder === undefined ? flag : `${flag} [${placeholder}]`, help).helpGroup('Kinds of check:'),
  );
  const options = groupForHelp(name).flatMap(([title, settings]) =>
    settings.map((setting) => createOption(setting, name).helpGroup(`${title}:`)),
  );
  return [...own, ...options];
}

function createOption(name: SettingName, command: Command): Option {
  const { choices: words = [], isSwitch = false, placeholder } = rowOf(name).kind;
  const choices = joinWithOr(words);
  const shown = choices === '' || choices.length > choicesLengthMax ? '' : `${choices}; `;
  const facts = `${shown}default ${defaultOf(name, command) || 'none'}; ${variableOf(name)}`;
  return new Option(flagOf(name) + (isSwitch ? switchValue : ` [${placeholder}]`), `${briefOf(name)} (${facts})`);
}

/** A command line as parsed by commander. */
interface CommandLine {
  readonly name: Command;
  /** The given flags; the keys are their names in camel case. A flag without a value is `true`. */
  readonly flags: Readonly<Record<string, string | true>>;
  /** Words that are neither known flags nor values of known flags. */
  readonly strayWords: readonly string[];
  readonly argv: readonly string[];
  readonly invocation: Invocation;
}

async function runCommand(line: CommandLine, terminal: Terminal, parts: Partial<Parts>): Promise<number> {
  const { name, argv, invocation } = line;
  const { environment } = terminal;
  const entry = commands[name];
  const known = [...findFlagsOfNpm(name, environment, invocation), ...findStrayWords(name, line.strayWords, argv)];
  const given: Partial<Record<SettingName, string>> = {};
  const ownFlags: Record<string, string | true> = {};
  for (const [setting, value] of Object.entries(line.flags) as [SettingName, string | true][]) {
    const flag = flagOf(setting);
    if (flag in (entry.ownFlags ?? {})) {
      ownFlags[flag] = value;
    } else if (value === true && rowOf(setting).kind.isSwitch !== true) {
      known.push(`${flag} needs a value`);
    } else {
      given[setting] = String(value);
    }
  }
  try {
    known.push(...((await entry.findProblems?.(ownFlags, parts)) ?? []));
    const resolve = (isReload = false) => resolveSettings(name, given, environment, known, isReload);
    return await entry.run({ resolved: resolve(), resolveAgain: () => resolve(true), ownFlags, terminal, parts });
  } catch (error) {
    if (!(error instanceof SettingsError || error instanceof StartError)) throw error;
    const problems = error instanceof SettingsError ? error.problems : error.message.split('\n');
    // The contract check (`check` with flags that are not settings) exits 2 for wrong usage, so that a pipeline can tell
    // wrong usage from an unsuitable backend [D61].
    const exitCode = Object.keys(ownFlags).length > 0 ? 2 : 1;
    if ('--json' in ownFlags) {
      const report = { schema: 'work-item-gateway/problems/1', version, exitCode, problems };
      terminal.write(`${JSON.stringify(report)}\n`);
      return exitCode;
    }
    terminal.writeError(problems.map((problem) => `error: ${problem}\n`).join(''));
    const start = starting.includes(name) ? 'Nothing was started. ' : '';
    const help = `${start}\`${invocation.line(name, '--help')}\` lists every setting.\n`;
    if (error instanceof SettingsError) terminal.writeError(help);
    return exitCode;
  }
}

/** Finds flags that npm took as its own because no `--` preceded them. The gateway does not see such flags [D32]. */
function findFlagsOfNpm(name: Command, environment: Terminal['environment'], invocation: Invocation): string[] {
  if (!invocation.isNpmScript) return [];
  return flagsOf(name)
    .filter((flag) => flag !== settingOfNpm && `npm_config_${flag.slice(2).replaceAll('-', '_')}` in environment)
    .map((flag) => {
      const example = invocation.line(name, `${flag} ...`);
      return `npm took ${flag} as a flag of its own: put \`--\` before it, as in ${example}`;
    });
}
