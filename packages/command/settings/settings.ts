// The settings of the command, as the table in setting-rows.ts describes them. The rows of this table define flags, variables,
// defaults, checks, help and docs/settings.md. Values are shown without secrets.

import type { ValueOf } from '../../core/options/rows.ts';
import { settingGroups, toVariable, type Command, type Row, type SettingGroup } from './groups.ts';
import { settingsTable } from './setting-rows.ts';

export type SettingName = keyof typeof settingsTable;

export function rowOf(name: SettingName): Row {
  return settingsTable[name];
}

/** All settings, valid and frozen. */
export type Settings = { readonly [Name in SettingName]: ValueOf<(typeof settingsTable)[Name]> };

/** The source of a setting's value. `socket`: a socket that another process opened is used instead. */
export type SettingSource = 'default' | 'file' | 'environment' | 'flag' | 'socket';

export interface ResolvedSettings {
  readonly command: Command;
  readonly settings: Settings;
  readonly sources: Readonly<Record<SettingName, SettingSource>>;
  /** The texts shown for settings whose source is `socket`. */
  readonly sockets?: Readonly<Partial<Record<SettingName, string>>>;
}

export class SettingsError extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.name = 'SettingsError';
    this.problems = problems;
  }
}

/** The settings that most operators change. The help begins with them, and README.md lists them. */
export const mostUsed: readonly SettingName[] = [
  'backendUrl',
  'host',
  'port',
  'workers',
  'adminPort',
  'docs',
  'logLevel',
];
// A command with fewer of them needs no group for them.
const mostUsedMin = 5;

export const settingNames = Object.keys(settingsTable) as SettingName[];

/** Converts `requestBytesMax` to `--request-bytes-max`. */
export function flagOf(name: SettingName): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

export const variableOf: (name: SettingName) => string = toVariable;

export function settingsOf(command: Command): SettingName[] {
  return settingNames.filter((name) => rowOf(name).commands.includes(command));
}

/** The start of the setting's help, up to the first `;` or `.`. */
export function briefOf(name: SettingName): string {
  return rowOf(name).help.replace(/[;.](?: .*)?$/s, '');
}

export function groupSettings(names: readonly SettingName[]): [SettingGroup, SettingName[]][] {
  return (Object.keys(settingGroups) as SettingGroup[])
    .map((group): [SettingGroup, SettingName[]] => [group, names.filter((name) => rowOf(name).group === group)])
    .filter(([, members]) => members.length > 0);
}

export function groupForHelp(command: Command): [title: string, members: readonly SettingName[]][] {
  const names = settingsOf(command);
  const used = mostUsed.filter((name) => names.includes(name));
  const first = used.length < mostUsedMin ? [] : used;
  const others = groupSettings(names.filter((name) => !first.includes(name)));
  const groups = others.map(([group, members]): [string, SettingName[]] => [settingGroups[group].title, members]);
  return first.length === 0 ? groups : [['Most used', first], ...groups];
}

export function defaultOf(name: SettingName, command: Command): string {
  const { default: standard, invertedIn = [] } = rowOf(name);
  return String(typeof standard === 'boolean' ? standard !== invertedIn.includes(command) : standard);
}

export function showValue(name: SettingName, settings: Settings): string {
  const text = String(settings[name]);
  return rowOf(name).kind.show?.(text) ?? text;
}

/** Marks settings that have no effect, because another process (such as systemd) passed `sockets`. */
export function withSockets(
  resolved: ResolvedSettings,
  sockets: NonNullable<ResolvedSettings['sockets']>,
): ResolvedSettings {
  const sources = Object.keys(sockets).map((name) => [name, 'socket'] as const);
  return { ...resolved, sources: { ...resolved.sources, ...Object.fromEntries(sources) }, sockets };
}

export function showInForce(name: SettingName, { settings, sockets }: ResolvedSettings): string {
  return sockets?.[name] ?? showValue(name, settings);
}

export function describeSettings(resolved: ResolvedSettings) {
  return settingsOf(resolved.command).map((name) => ({
    variable: variableOf(name),
    flag: flagOf(name),
    value: showInForce(name, resolved),
    unit: rowOf(name).kind.unit,
    source: resolved.sources[name],
    help: rowOf(name).help,
  }));
}

function changedSettings(before: Settings, after: Settings): SettingName[] {
  return settingNames.filter((name) => String(before[name]) !== String(after[name]));
}

/**
 * Plans a reload from `before` to `after`. `hasWorkers`: worker processes serve the clients. `needsConnections`: only new
 * connections can have the new values. `kept`: settings that keep their old values until a restart.
 */
export function planReload(before: Settings, after: Settings, hasWorkers: boolean) {
  // With workers, the share of each changes, too.
  const ofWorkers = hasWorkers ? 'connections' : 'restart';
  const changed = Map.groupBy(changedSettings(before, after), (name) => {
    const { changeNeeds } = rowOf(name);
    return changeNeeds === 'workers' ? ofWorkers : changeNeeds;
  });
  return { needsConnections: changed.has('connections'), kept: changed.get('restart') ?? [] };
}

/** The changed settings as `old → new`, for the log. */
export function describeChanges(before: Settings, after: Settings): Partial<Record<SettingName, string>> {
  return Object.fromEntries(
    changedSettings(before, after).map((name) => [name, `${showValue(name, before)} → ${showValue(name, after)}`]),
  );
}
