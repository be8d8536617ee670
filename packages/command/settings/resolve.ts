// Resolves the settings from flags, the environment and the settings file. Checks each setting alone, then their
// combinations.

import { findRateProblems } from '../../core/guards/options/rate-options.ts';
import { findTokenProblems } from '../../core/guards/options/token-options.ts';
import { quoteIfPlain } from '../../core/hosts/options/accepted-values.ts';
import { findCorsProblems } from '../../core/hosts/options/cors-options.ts';
import { Problem } from '../../core/hosts/options/problem.ts';
import { defaultOf } from './describe.ts';
import { findMissingPackages } from './optional-packages.ts';
import type { Command } from '../options/row.ts';
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
    const { kind } = rowOf(name);
    const flag = flags[name];
    // Variables that only other commands use are ignored, valid or not.
    const variable = used.has(name) ? givenText(environment[variableOf(name)]) : undefined;
    const line = used.has(name) ? givenText(file[variableOf(name)]) : undefined;
    const text = flag ?? variable ?? line ?? defaultOf(name, command);
    sources[name] =
      flag !== undefined ? 'flag' : variable !== undefined ? 'environment' : line !== undefined ? 'file' : 'default';
    const value = kind.parse(text);
    if (value instanceof Problem) {
      const given =
        sources[name] === 'flag'
          ? flagOf(name)
          : sources[name] === 'file'
            ? `${variableOf(name)} in the settings file`
            : variableOf(name);
      const shown = kind.isSecret === true ? undefined : quoteIfPlain(text);
      problems.push(`${given} ${shown === undefined ? '' : `is ${shown}, but `}${value.text}`);
    } else {
      settings[name] = value;
    }
  }
  if (
    used.has('port') &&
    settings.port === settings.adminPort &&
    settings.port !== 0 &&
    settings.port !== undefined &&
    settings.host === settings.adminHost
  ) {
    problems.push('PORT and ADMIN_PORT are the same: use a different port for each');
  }
  const read = settings as Partial<Settings>;
  const isSet = (name: SettingName): boolean => sources[name] !== 'default';
  problems.push(...findCorsProblems(read, variableOf));
  findTlsProblems(read, sources, !isReload && command !== 'openapi', problems);
  const ofHttp2 = settings.http2 === true && command !== 'openapi' ? findHttp2Problem() : undefined;
  problems.push(...(ofHttp2 === undefined ? [] : [ofHttp2]));
  problems.push(...findRateProblems(read, isSet, variableOf), ...findTokenProblems(read, isSet, variableOf));
  if (command !== 'openapi') {
    problems.push(...findMissingPackages(read, variableOf));
  }
  if (problems.length > 0) {
    throw new SettingsError(problems);
  }
  return { command, settings: Object.freeze(settings) as Settings, sources: Object.freeze(sources) };
}

function givenText(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}
