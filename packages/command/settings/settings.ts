// The settings of the command, as the table in rows.ts describes them. Flags, variables, defaults, checks, help and
// docs/settings.md come from its rows.

import type { TextKind } from '../../core/hosts/options/kinds.ts';
import { settingGroups, type SettingGroup } from './groups.ts';
import { toVariable, type Command, type Row } from './row.ts';
import { settingsTable } from './rows.ts';

export type SettingName = keyof typeof settingsTable;

type ValueOf<R> = R extends { readonly kind: TextKind<infer Value> } ? Value : never;

export function rowOf(name: SettingName): Row {
  return settingsTable[name];
}

/** All settings, valid and frozen. */
export type Settings = { readonly [Name in SettingName]: ValueOf<(typeof settingsTable)[Name]> };

/** The source of a setting's value. `socket`: a passed listening socket replaces the setting. */
export type SettingSource = 'default' | 'file' | 'environment' | 'flag' | 'socket';

export interface ResolvedSettings {
  readonly command: Command;
  readonly settings: Settings;
  readonly sources: Readonly<Record<SettingName, SettingSource>>;
  /** The texts shown for settings whose source is `socket`. */
  readonly sockets?: Readonly<Partial<Record<SettingName, string>>>;
}

/** All problems of the settings, each with its remedy. */
export class SettingsError extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.name = 'SettingsError';
    this.problems = problems;
  }
}

export const settingNames = Object.keys(settingsTable) as SettingName[];

/** `requestBytesMax` -> `--request-bytes-max`. */
export function flagOf(name: SettingName): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** `requestBytesMax` -> `REQUEST_BYTES_MAX`. */
export const variableOf: (name: SettingName) => string = toVariable;

export function settingsOf(command: Command): SettingName[] {
  return settingNames.filter((name) => rowOf(name).commands.includes(command));
}

/** The start of the setting's help, up to the first `;` or `.`. */
export function briefOf(name: SettingName): string {
  return rowOf(name).help.replace(/[;.](?: .*)?$/s, '');
}

/** Sorts `names` into their groups, in the order of the groups. */
export function groupSettings(names: readonly SettingName[]): [SettingGroup, SettingName[]][] {
  return (Object.keys(settingGroups) as SettingGroup[])
    .map((group): [SettingGroup, SettingName[]] => [group, names.filter((name) => rowOf(name).group === group)])
    .filter(([, members]) => members.length > 0);
}
