// Resolves the settings from flags, the environment and the settings file. Checks each setting alone, then their
// combinations.

import { findRateProblems } from '../../core/guards/options/rate-options.ts';
import { findTokenProblems } from '../../core/guards/options/token-options.ts';
import { quoteIfPlain } from '../../core/hosts/options/accepted-values.ts';
import { findCorsProblems } from '../../core/hosts/options/cors-options.ts';
import { Problem } from '../../core/hosts/options/problem.ts';
import { defaultOf } from './describe.ts';
import { findMissingPackages } from './optional-packages.ts';
import type { Command } from './row.ts';
import { readSettingsFile } from './settings-file.ts';
import {
  flagOf,
  rowOf,
  settingNames,
  SettingsError,
  settingsOf,
  variableOf,
  type ResolvedSettings,
  type SettingName,
  type Settings,
  type SettingSource,
} from './settings.ts';
import { findHttp2Problem, findTlsProblems } from './tls-settings.ts';

/**
 * Takes each setting from the flags, else the environment, else the settings file, else its default. An empty variable
 * counts as unset. Throws all problems as one SettingsError, those in `known` first. Certificate files are checked too,
 * except for `openapi`, and except on a reload, because then the certificate store checks them.
 */
export function resolveSettings(
  command: Command,
  flags: Readonly<Partial<Record<SettingName, string>>>,
  environment: Readonly<Record<string, string | undefined>>,
  known: readonly string[] = [],
  isReload = false,
): ResolvedSettings {
  const problems = [...known];
  const settings: Partial<Record<SettingName, unknown>> = {};
  const sources = {} as Record<SettingName, SettingSource>;
  const used = new Set(settingsOf(command));
  const file = used.has('settingsFile')
    ? readSettingsFile(flags.settingsFile ?? environment[variableOf('settingsFile')] ?? '', problems)
    : {};
  for (const name of settingNames) {
    const variable = variableOf(name);
    // Variables that only other commands use are ignored, valid or not.
    const unlessEmpty = (text = ''): string | undefined => (used.has(name) && text !== '' ? text : undefined);
    const candidates: readonly [SettingSource, string, string | undefined][] = [
      ['flag', flagOf(name), flags[name]],
      ['environment', variable, unlessEmpty(environment[variable])],
      ['file', `${variable} in the settings file`, unlessEmpty(file[variable])],
    ];
    const given = candidates.find(([, , text]) => text !== undefined);
    const [source, place, text = defaultOf(name, command)] = given ?? ['default', variable];
    const { kind } = rowOf(name);
    const value = kind.parse(text);
    sources[name] = source;
    if (value instanceof Problem) {
      const shown = kind.isSecret === true ? undefined : quoteIfPlain(text);
      problems.push(`${place} ${shown === undefined ? '' : `is ${shown}, but `}${value.text}`);
    } else {
      settings[name] = value;
    }
  }
  const read = settings as Partial<Settings>;
  const { host, port, adminHost, adminPort } = read;
  if (used.has('port') && port === adminPort && port !== 0 && port !== undefined && host === adminHost) {
    problems.push('PORT and ADMIN_PORT are the same: use a different port for each');
  }
  const isSet = (name: SettingName): boolean => sources[name] !== 'default';
  // `openapi` starts nothing.
  const starts = command !== 'openapi';
  const http2Problem = starts && read.http2 === true ? findHttp2Problem() : undefined;
  problems.push(
    ...findCorsProblems(read, variableOf),
    ...findTlsProblems(read, isSet, starts && !isReload),
    ...(http2Problem === undefined ? [] : [http2Problem]),
    ...findRateProblems(read, isSet, variableOf),
    ...findTokenProblems(read, isSet, variableOf),
    ...(starts ? findMissingPackages(read) : []),
  );
  if (problems.length > 0) {
    throw new SettingsError(problems);
  }
  return { command, settings: Object.freeze(settings) as Settings, sources: Object.freeze(sources) };
}
