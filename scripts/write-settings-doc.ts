// Writes docs/settings.md from the table of settings, by group. A test fails if the file is stale.

import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { format, resolveConfig } from 'prettier';

import {
  defaultOf,
  flagOf,
  groupSettings,
  rowOf,
  type SettingName,
  settingNames,
  settingsOf,
  variableOf,
} from '../packages/command/settings/settings.ts';
import {
  changeNeeds,
  type Command,
  commandNames,
  type SettingGroup,
  settingGroups,
} from '../packages/command/settings/groups.ts';

const settingsDocPath = fileURLToPath(new URL('../docs/settings.md', import.meta.url));

/** The text of docs/settings.md, formatted. */
export async function createSettingsDoc(): Promise<string> {
  const text = `# Settings

<!-- Written by \`npm run docs\` from the tables in packages/command/settings/setting-rows.ts. Change the tables, not this file. -->

Each setting is an environment variable and a flag. Flags take precedence over variables, variables over the
settings file, and that file over defaults. An empty variable counts as unset. A space or a \`=\` separates
a flag from its value. Variables of another command are ignored, but a flag of another command is an error.

Under each setting is its flag, in parentheses the default (if any), then the accepted values. A flag alone means true.
A change takes effect for new connections, unless the entry says what it needs. The commands \`serve\`, \`dev\`, \`check\` and \`openapi\` have every
setting, unless its entry says otherwise.

If settings are invalid, the command lists every problem, starts nothing and exits with 1. \`npm run check\`
tests the settings and requests the backend's work items once. When \`serve\` is ready,
it logs the settings in force, and marks those that are not defaults.

${groupSettings(settingNames).map(describeGroup).join('\n')}`;
  return await format(text, { ...(await resolveConfig(settingsDocPath)), parser: 'markdown' });
}

function describeGroup([group, settings]: [SettingGroup, readonly SettingName[]]): string {
  const { title, introduction } = settingGroups[group];
  return `## ${title}\n\n${introduction}\n\n${settings.map(describeSetting).join('\n')}`;
}

function describeSetting(name: SettingName): string {
  const { kind, help, changeNeeds: needs } = rowOf(name);
  const users = commandNames.filter((command) => settingsOf(command).includes(name));
  const values = `${kind.takes.replace(/,? or empty .*$|; the flag alone .*$/, '')}${kind.unit === undefined ? '' : ` ${kind.unit}`}`;
  return `### \`${variableOf(name)}\`

${help}

- \`${flagOf(name)}\`${describeDefaults(name, users, kind.unit)}: ${values}${describeNeeds(needs)}${describeUsers(users)}
`;
}

function describeNeeds(needs: keyof typeof changeNeeds): string {
  return needs === 'connections' ? '' : `; a change needs ${changeNeeds[needs]}`;
}

const commandsOfMost: readonly Command[] = ['serve', 'dev', 'check', 'openapi'];

/** The commands of a setting, as the difference to the commands of most settings. */
function describeUsers(users: readonly Command[]): string {
  const added = users.filter((command) => !commandsOfMost.includes(command));
  const missing = commandsOfMost.filter((command) => !users.includes(command));
  if (missing.length > 1) return `; only in ${users.join(', ')}`;
  return `${missing.map((command) => `; not in ${command}`).join('')}${added.map((command) => `; also in ${command}`).join('')}`;
}

/** The default in parentheses, or empty; if commands have different defaults, each default with its commands. */
function describeDefaults(name: SettingName, users: readonly Command[], unit: string | undefined): string {
  const fallbacks = [...new Set(users.map((command) => defaultOf(name, command)))];
  if (fallbacks.every((fallback) => fallback === '')) return '';
  const texts = fallbacks.map((fallback) => {
    const text = `\`${fallback}\`${describeAmount(Number(fallback), unit)}`;
    const where = users.filter((command) => defaultOf(name, command) === fallback);
    return fallbacks.length === 1 ? text : `${text} in ${where.join(', ')}`;
  });
  return ` (${texts.join('; ')})`;
}

/** A default in a larger unit, such as `, 10 MiB` or `, 30 s`; empty for small numbers. */
function describeAmount(amount: number, unit: string | undefined): string {
  if (unit === 'bytes') {
    const [size, name] = (
      [
        [1_073_741_824, 'GiB'],
        [1_048_576, 'MiB'],
        [1_024, 'KiB'],
      ] as const
    ).find(([each]) => amount >= each) ?? [1, 'bytes'];
    return `, ${amount / size} ${name}`;
  }
  return unit === 'ms' && amount >= 1_000 ? `, ${amount / 1_000} s` : '';
}

if (import.meta.main) writeFileSync(settingsDocPath, await createSettingsDoc());
