// Settings for people: in the help, in docs/settings.md, in the log and on the dashboard. What must not be shown is left out.

import type { Command } from '../options/row.ts';
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

/** What a setting is in `command` when nobody sets it, as text. */
export function defaultOf(name: SettingName, command: Command): string {
  const { default: standard, invertedIn = [] } = rowOf(name);
  return String(typeof standard === 'boolean' ? standard !== invertedIn.includes(command) : standard);
}

/** A setting in force, for people to read. */
export interface DescribedSetting {
  readonly variable: string;
  readonly flag: string;
  /** Without what must not be shown. */
  readonly value: string;
  readonly unit: string | undefined;
  readonly source: SettingSource;
  readonly help: string;
}

/** The value of a setting in force, without what must not be shown. */
export function showValue(name: SettingName, settings: Settings): string {
  const text = String(settings[name]);
  return rowOf(name).kind.show?.(text) ?? text;
}

/** The same where passed sockets take the place of some settings, as `sockets` says. */
export function withSockets(
  resolved: ResolvedSettings,
  sockets: Readonly<Partial<Record<SettingName, string>>>,
): ResolvedSettings {
  const names = Object.keys(sockets) as SettingName[];
  const sources = names.map((name) => [name, 'socket'] as const);
  return { ...resolved, sources: { ...resolved.sources, ...Object.fromEntries(sources) }, sockets };
}

/** The value of a setting in force, or of the socket that takes its place, without what must not be shown. */
export function showInForce(name: SettingName, { settings, sockets }: ResolvedSettings): string {
  return sockets?.[name] ?? showValue(name, settings);
}

/** The settings in force that the command has. */
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

/** The settings that differ. */
export function changedSettings(before: Settings, after: Settings): SettingName[] {
  return settingNames.filter((name) => String(before[name]) !== String(after[name]));
}

/** What has changed, for the log, without what must not be shown. */
export function describeChanges(before: Settings, after: Settings): Partial<Record<SettingName, string>> {
  return Object.fromEntries(
    changedSettings(before, after).map((name) => [
      name,
      `${showValue(name, before)} → ${showValue(name, after)}`,
    ]),
  );
}
