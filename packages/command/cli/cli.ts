// The command line: parses commands and flags, runs the command, returns the exit code. Flags come from the settings table.
// All problems are reported together, before anything starts [D32].

import { Command as Program, CommanderError, Option } from 'commander';

import { joinWithOr } from '../../core/hosts/options/similar.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import { version } from '../../core/version.ts';
import type { Terminal } from '../commands/command.ts';
import { commands } from '../commands/commands.ts';
import { settingGroups } from '../settings/groups.ts';
import { commandNames, type Command } from '../settings/row.ts';
import type { Parts } from '../service/parts.ts';
import { defaultOf } from '../settings/describe.ts';
import { resolveSettings } from '../settings/resolve.ts';
import {
  briefOf,
  flagOf,
  groupSettings,
  rowOf,
  SettingsError,
  settingsOf,
  variableOf,
  type ResolvedSettings,
  type SettingName,
} from '../settings/settings.ts';
import { findInvocation, programName, type Invocation } from './invocation.ts';
import { findFlagsOfNpm, findStrayWords } from './stray-words.ts';

/** Runs the command in `argv` (without node and script). Resolves with the exit code. */
export async function runCli(argv: readonly string[], terminal: Terminal, parts: Partial<Parts>): Promise<number> {
  let exitCode = 0;
  const invocation = findInvocation(terminal.environment, terminal.script);
  const program = new Program(programName)
    .description('A JSON-over-HTTP gateway for work items.')
    .version(version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand('help [command]', 'print the help of a command')
    .exitOverride()
    .configureOutput({
      writeOut: terminal.write,
      writeErr: terminal.writeError,
      getOutHelpWidth: () => terminal.columns ?? unboundColumns,
    })
    .addHelpText(
      'after',
      describeExamples(commandNames.map((name) => invocation.line(name, commands[name].examples[0] ?? ''))),
    );
  for (const name of commandNames) {
    const entry = commands[name];
    const command = program
      .command(name, { isDefault: name === 'serve' })
      .summary(entry.summary)
      .description(entry.description)
      .helpOption('-h, --help', 'print this help')
      .configureHelp({
        commandUsage: () =>
          invocation.isNpmScript ? invocation.line(name, '[flags]') : `${programName} ${name} [flags]`,
        optionTerm: ({ flags }) => flags.replace(switchValue, '').replace(/\[(.*)\]/, '<$1>'),
      })
      // runCommand() reports unknown flags and stray words, together with the other problems.
      .allowUnknownOption()
      .allowExcessArguments()
      .exitOverride()
      .addHelpText(
        'after',
        `${settingsOf(name).length === 0 ? '' : '\nEach setting can be a flag, or the environment variable in its brackets. A flag\ntakes precedence. docs/settings.md describes each setting in full.\n'}${describeExamples(entry.examples.map((flags) => invocation.line(name, flags)))}`,
      );
    for (const [flag, { placeholder, help }] of Object.entries(entry.ownFlags ?? {})) {
      // The value is optional for commander; createOption() says why.
      const option = new Option(placeholder === undefined ? flag : `${flag} [${placeholder}]`, help);
      command.addOption(settingsOf(name).length === 0 ? option : option.helpGroup('Contract:'));
    }
    for (const [group, settings] of groupSettings(settingsOf(name))) {
      for (const setting of settings) {
        command.addOption(createOption(setting, name).helpGroup(`${settingGroups[group].title}:`));
      }
    }
    // The version flag is added last, so that it follows the settings in the help.
    command.version(version, '-V, --version', 'print the version');
    command.action(async (flags: Record<string, string | true>) => {
      const line = { name, flags, strayWords: command.args, argv, invocation };
      exitCode = await runCommand(line, terminal, parts);
    });
  }
  try {
    await program.parseAsync(argv, { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) {
      return error.exitCode;
    }
    throw error;
  }
}

// Largest length of a list of choices in the help, in characters. Longer lists are only in docs/settings.md.
const choicesLengthMax = 70;

// Width of the help without a terminal: enough for one line per setting, so that grep finds a whole setting.
const unboundColumns = 160;

// A switch also accepts a value, but the help does not show it.
const switchValue = ' [value]';

function createOption(name: SettingName, command: Command): Option {
  const { choices: words = [], isSwitch = false, placeholder } = rowOf(name).kind;
  const choices = joinWithOr(words);
  const facts = [
    ...(choices === '' || choices.length > choicesLengthMax ? [] : [choices]),
    `default ${defaultOf(name, command) || 'none'}`,
    variableOf(name),
  ];
  // The value is optional for commander, which otherwise ends the program at the first missing value.
  const value = isSwitch ? switchValue : ` [${placeholder}]`;
  return new Option(`${flagOf(name)}${value}`, `${briefOf(name)} (${facts.join('; ')})`);
}

function describeExamples(lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}\n`).join('')}`;
}

/** A command line as parsed by commander. */
interface CommandLine {
  readonly name: Command;
  /** The given flags of the command, by their names in camel case; true for a flag without a value. */
  readonly flags: Readonly<Record<string, string | true>>;
  /** Words that are neither a known flag nor its value. */
  readonly strayWords: readonly string[];
  readonly argv: readonly string[];
  readonly invocation: Invocation;
}

async function runCommand(line: CommandLine, terminal: Terminal, parts: Partial<Parts>): Promise<number> {
  const { name, argv, invocation } = line;
  const { environment } = terminal;
  const entry = commands[name];
  const problems = [...findFlagsOfNpm(name, environment, invocation), ...findStrayWords(name, line.strayWords, argv)];
  const given: Partial<Record<SettingName, string>> = {};
  const ownFlags: Record<string, string | true> = {};
  for (const [setting, value] of Object.entries(line.flags) as [SettingName, string | true][]) {
    if (Object.hasOwn(entry.ownFlags ?? {}, flagOf(setting))) {
      ownFlags[flagOf(setting)] = value;
    } else if (value === true && rowOf(setting).kind.isSwitch === true) {
      given[setting] = 'true';
    } else if (value === true) {
      problems.push(`${flagOf(setting)} needs a value`);
    } else {
      given[setting] = value;
    }
  }
  // The contract check (`check` with flags that are not settings) exits 2 for wrong usage, so that a pipeline can tell
  // wrong usage from an unsuitable backend [D61].
  const wrongCallCode = name === 'check' && Object.keys(ownFlags).length > 0 ? 2 : 1;
  try {
    problems.push(...((await entry.findProblems?.(ownFlags, parts)) ?? []));
    const resolve = (isReload: boolean): ResolvedSettings =>
      resolveSettings(name, given, environment, problems, isReload);
    const resolved = resolve(false);
    return await entry.run({ resolved, resolveAgain: () => resolve(true), ownFlags, terminal, parts });
  } catch (error) {
    if (error instanceof SettingsError) {
      const help = `Nothing was started. \`${invocation.line(name, '--help')}\` lists every ${settingsOf(name).length === 0 ? 'flag' : 'setting'}.`;
      terminal.writeError(`${error.problems.map((problem) => `error: ${problem}\n`).join('')}${help}\n`);
      return wrongCallCode;
    }
    if (error instanceof StartError) {
      terminal.writeError(`error: ${error.message}\n`);
      return wrongCallCode;
    }
    throw error;
  }
}
