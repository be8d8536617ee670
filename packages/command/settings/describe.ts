// Describes settings for the help, docs/settings.md, the log and the dashboard, without secrets.

import type { Command } from './row.ts';
import {
  flagOf,
  rowOf,
  settingNames,
  settingsOf,
  variableOf,
  type ResolvedSettings,
  type SettingName,
  type Settings,
  type SettingSource,
} from './settings.ts';

/** The default of a setting in `command`, as text. */
export function defaultOf(name: SettingName, command: Command): string {
  const { default: standard, invertedIn = [] } = rowOf(name);
  return String(typeof standard === 'boolean' ? standard !== invertedIn.includes(command) : standard);
}

/** A setting in force, for display. */
export interface DescribedSetting {
  readonly variable: string;
  readonly flag: string;
  /** Without secrets. */
  readonly value: string;
  readonly unit: string | undefined;
  readonly source: SettingSource;
  readonly help: string;
}

/** The value of a setting, without secrets. */
export function showValue(name: SettingName, settings: Settings): string {
  const text = String(settings[name]);
  return rowOf(name).kind.show?.(text) ?? text;
}

/**
 * Marks the settings that are replaced by sockets which another process (such as systemd) passed to this one. `sockets` has
 * the text to show for each of these settings.
 */
export function withSockets(
  resolved: ResolvedSettings,
  sockets: Readonly<Partial<Record<SettingName, string>>>,
): ResolvedSettings {
  const names = Object.keys(sockets) as SettingName[];
  const sources = names.map((name) => [name, 'socket'] as const);
  return { ...resolved, sources: { ...resolved.sources, ...Object.fromEntries(sources) }, sockets };
}

/** The value of a setting, or the socket that replaces it, without secrets. */
export function showInForce(name: SettingName, { settings, sockets }: ResolvedSettings): string {
  return sockets?.[name] ?? showValue(name, settings);
}

export function describeSettings(resolved: ResolvedSettings): DescribedSetting[] {
  return settingsOf(resolved.command).map((name) => ({
    variable: variableOf(name),
    flag: flagOf(name),
    value: showInForce(name, resolved),
    unit: rowOf(name).kind.unit,
    source: resolved.sources[name],
    help: rowOf(name).help,
  }));
}

/** The names of the settings whose values differ between `before` and `after`. */
export function changedSettings(before: Settings, after: Settings): SettingName[] {
  return settingNames.filter((name) => String(before[name]) !== String(after[name]));
}

/** The changed settings as `old → new`, for the log, without secrets. */
export function describeChanges(before: Settings, after: Settings): Partial<Record<SettingName, string>> {
  return Object.fromEntries(
    changedSettings(before, after).map((name) => [name, `${showValue(name, before)} → ${showValue(name, after)}`]),
  );
}
