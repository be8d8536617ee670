// Writes docs/settings.md from the settings table, grouped for a reader. A test fails when the file is stale.

import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { format, resolveConfig } from 'prettier';

import {
  defaultOf,
  describeValues,
  flagOf,
  settingNames,
  settingsOf,
  settingsTable,
  unitOf,
  variableOf,
  type Command,
  type SettingName,
} from '../src/settings.ts';

interface Group {
  readonly title: string;
  readonly introduction: string;
  readonly settings: readonly SettingName[];
}

const commands: readonly Command[] = ['serve', 'dev', 'backend', 'check', 'openapi'];

const groups: readonly Group[] = [
  {
    title: 'Listening',
    introduction:
      'Clients and operators have a listener each. A port that is in use ends the start; no other one is tried.',
    settings: ['host', 'port', 'adminHost', 'adminPort'],
  },
  {
    title: 'Processes',
    introduction:
      'How many processes serve clients, and where settings can stand that are to be read again while they run. Workers are described in [operating.md](operating.md).',
    settings: ['workers', 'portSharing', 'settingsFile'],
  },
  {
    title: 'Backend',
    introduction: 'Where the work items are, and how an id becomes part of the address.',
    settings: ['backendUrl', 'itemIdParsing'],
  },
  {
    title: 'Limits',
    introduction: 'What clients and the backend can make the gateway hold.',
    settings: [
      'connectionsMax',
      'requestHeadBytesMax',
      'requestBytesMax',
      'responseBytesMax',
      'inFlightMax',
      'bufferedBytesMax',
    ],
  },
  {
    title: 'Time limits',
    introduction:
      'All in milliseconds. The first three are towards the backend, the others towards clients. How they fit together with those of a load balancer and of the backend is in [operating.md](operating.md).',
    settings: [
      'backendTimeoutMs',
      'backendConnectTimeoutMs',
      'backendIdleTimeoutMs',
      'requestHeadersTimeoutMs',
      'requestTimeoutMs',
      'replyStallTimeoutMs',
      'idleTimeoutMs',
    ],
  },
  {
    title: 'Documentation',
    introduction: 'What the gateway tells clients about itself.',
    settings: ['docs'],
  },
  {
    title: 'Process',
    introduction: 'How the process ends.',
    settings: ['shutdownDelayMs', 'shutdownTimeoutMs'],
  },
  { title: 'Log', introduction: 'What goes to standard output.', settings: ['logLevel', 'logFormat'] },
  {
    title: 'Embedded backend',
    introduction:
      'For the stand-in backend of development, demonstrations and tests: see [embedded-backend.md](embedded-backend.md).',
    settings: ['embeddedBackendHost', 'embeddedBackendPort', 'embeddedBackendDatabase'],
  },
];

const settingsDocPath = fileURLToPath(new URL('../docs/settings.md', import.meta.url));

/** The text of docs/settings.md, formatted. Throws when a setting is in no group or in two. */
export async function createSettingsDoc(): Promise<string> {
  const grouped = groups.flatMap(({ settings }) => settings);
  if (grouped.toSorted().join() !== settingNames.toSorted().join()) {
    throw new Error('every setting belongs to exactly one group of docs/settings.md');
  }
  const text = `# Settings

<!-- Written by \`npm run docs\` from src/settings.ts. Change that file, not this one. -->

Each setting is an environment variable and a flag. A flag goes before a variable, and a variable before the
default; an empty variable counts as unset. A flag takes its value behind a space or a \`=\`. A variable of
another command is not looked at; a flag of another command is an error.

Every problem is listed at once; then nothing is started and the exit code is 1. \`work-item-gateway check\` reads the
settings, reports their problems, and asks the backend once for its work items. \`serve\` logs the settings in
force when it is ready, and which of them came from a flag or a variable.

${groups.map(describeGroup).join('\n')}`;
  return await format(text, { ...(await resolveConfig(settingsDocPath)), parser: 'markdown' });
}

function describeGroup({ title, introduction, settings }: Group): string {
  return `## ${title}\n\n${introduction}\n\n${settings.map(describeSetting).join('\n')}`;
}

function describeSetting(name: SettingName): string {
  const unit = unitOf(name);
  const takes = `${describeValues(name)}${unit === undefined ? '' : ` ${unit}`}`;
  const users = commands.filter((command) => settingsOf(command).includes(name));
  return `### \`${variableOf(name)}\`

${settingsTable[name].help}

- flag: \`${flagOf(name)}\`
- default: ${describeDefaults(name, users, unit)}
- takes: ${takes}
- commands: ${users.join(', ')}
`;
}

/** The default; where commands differ in it, each with its commands. */
function describeDefaults(name: SettingName, users: readonly Command[], unit: string | undefined): string {
  const fallbacks = [...new Set(users.map((command) => defaultOf(name, command)))];
  return fallbacks
    .map((fallback) => {
      const text = `${fallback === '' ? 'none' : `\`${fallback}\``}${describeAmount(Number(fallback), unit)}`;
      const where = users.filter((command) => defaultOf(name, command) === fallback);
      return fallbacks.length === 1 ? text : `${text} in ${where.join(', ')}`;
    })
    .join('; ');
}

/** A default in a larger unit, ` (10 MiB)` or ` (30 s)`; nothing where the number says enough. */
function describeAmount(amount: number, unit: string | undefined): string {
  if (unit === 'bytes') {
    const [size, name] = amount < 1_073_741_824 ? [1_048_576, 'MiB'] : [1_073_741_824, 'GiB'];
    return ` (${amount / size} ${name})`;
  }
  return unit === 'ms' && amount >= 1_000 ? ` (${amount / 1_000} s)` : '';
}

if (import.meta.main) {
  writeFileSync(settingsDocPath, await createSettingsDoc());
}
