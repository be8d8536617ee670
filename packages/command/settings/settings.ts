// Every setting of the command, by its name: flags, variables, defaults, checks, help and docs/settings.md come from these
// rows. A new one is a row in rows/, and its use.

import { rateRows } from '../../core/guards/options/rate-options.ts';
import { tokenRows } from '../../core/guards/options/token-options.ts';
import type { TextKind } from '../../core/hosts/options/kinds.ts';
import { sizeLimitRows, timeLimitRows } from '../../core/hosts/options/limits.ts';
import { settingGroups, type SettingGroup } from '../options/groups.ts';
import { gateway, settings, toVariable, type Command, type Row } from '../options/row.ts';
import { clientsRows } from './rows/clients.ts';
import { connectionsRows } from './rows/connections.ts';
import { operationRows } from './rows/operation.ts';

const settingsTable = {
  ...clientsRows,
  ...settings('rateLimit', gateway, rateRows),
  ...settings('tokens', gateway, tokenRows),
  ...connectionsRows,
  ...settings('limits', gateway, sizeLimitRows),
  ...settings('timeLimits', gateway, timeLimitRows),
  ...operationRows,
};

export type SettingName = keyof typeof settingsTable;

type ValueOf<R> = R extends { readonly kind: TextKind<infer Value> } ? Value : never;

export function rowOf(name: SettingName): Row {
  return settingsTable[name];
}

/** Every setting, checked. Frozen. */
export type Settings = { readonly [Name in SettingName]: ValueOf<(typeof settingsTable)[Name]> };

/** Where a setting's value came from; `socket`: from a listening socket that was passed on, and nobody looks at the setting. */
export type SettingSource = 'default' | 'file' | 'environment' | 'flag' | 'socket';

export interface ResolvedSettings {
  readonly command: Command;
  readonly settings: Settings;
  readonly sources: Readonly<Record<SettingName, SettingSource>>;
  /** What is shown in place of settings whose source is `socket`. */
  readonly sockets?: Readonly<Partial<Record<SettingName, string>>>;
}

/** What is wrong with the settings: every problem at once, each with what to do. */
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

/** The settings that `command` has. */
export function settingsOf(command: Command): SettingName[] {
  return settingNames.filter((name) => rowOf(name).commands.includes(command));
}

/** What a setting sets, in a few words. */
export function briefOf(name: SettingName): string {
  return rowOf(name).help.replace(/[;.](?: .*)?$/s, '');
}

/** The groups that have any of `names`, in their order, each with those of them that it has. */
export function groupSettings(names: readonly SettingName[]): [SettingGroup, SettingName[]][] {
  return (Object.keys(settingGroups) as SettingGroup[])
    .map((group): [SettingGroup, SettingName[]] => [
      group,
      names.filter((name) => rowOf(name).group === group),
    ])
    .filter(([, members]) => members.length > 0);
}
