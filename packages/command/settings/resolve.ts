// Resolves the settings from flags, the environment and the settings file. Checks each setting alone, then together with
// others.

import { accessSync, constants } from 'node:fs';

import { findGuardProblems } from '../../core/options/guard-options.ts';
import { nameWithPath, quoteIfPlain } from '../../core/options/accepted-values.ts';
import { findCorsProblems } from '../../core/options/cors-options.ts';
import { Problem } from '../../core/options/problem.ts';
import type { Command } from './groups.ts';
import {
  defaultOf,
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
import { readSettingsFile } from './settings-file.ts';
import { findHttp2Problem, findTlsProblems } from './tls-settings.ts';
import { findCollector } from './trace-settings.ts';

/**
 * Takes each setting from the flags, else the environment, else the settings file, else its default. An empty variable
 * counts as unset. Throws one SettingsError with all problems, first the problems in `known`. Also checks the files that
 * the settings refer to. But `openapi` does not need these files, and on a reload the new service checks them.
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
    // Variables that this command does not use are ignored, even if they are invalid.
    const unlessEmpty = (text = ''): string | undefined => (used.has(name) && text !== '' ? text : undefined);
    const candidates: readonly [SettingSource, string, string | undefined][] = [
      ['flag', flagOf(name), flags[name]],
      ['environment', variable, unlessEmpty(environment[variable])],
      ['file', `${variable} in the settings file`, unlessEmpty(file[variable])],
    ];
    const given = candidates.find(([, , text]) => text !== undefined);
    const [source, place, text = defaultOf(name, command)] = given ?? ['default', variable];
    const { kind, isIgnored } = rowOf(name);
    const value = kind.parse(text);
    sources[name] = source;
    if (!(value instanceof Problem)) {
      settings[name] = value;
    } else if (isIgnored?.(settings) === true) {
      settings[name] = kind.parse(defaultOf(name, command));
      sources[name] = 'default';
    } else {
      const shown = kind.isSecret === true ? undefined : quoteIfPlain(text);
      problems.push(`${place} ${shown === undefined ? '' : `is ${shown}, but `}${value.text}`);
    }
  }
  const read = settings as Partial<Settings>;
  const { host, port, adminHost, adminPort, embeddedBackendHost, embeddedBackendPort } = read;
  for (const [name, otherHost, otherPort] of [
    ['ADMIN_PORT', adminHost, adminPort],
    ['EMBEDDED_BACKEND_PORT', embeddedBackendHost, command === 'dev' ? embeddedBackendPort : undefined],
  ] as const) {
    if (used.has('port') && port === otherPort && port !== 0 && port !== undefined && host === otherHost) {
      problems.push(`PORT and ${name} are the same: use a different port for each`);
    }
  }
  const isSet = (name: SettingName): boolean => sources[name] !== 'default';
  // `openapi` starts nothing, so it needs no files, packages or HTTP/2 support.
  const starts = command !== 'openapi';
  const http2Problem = starts && read.http2 === true ? findHttp2Problem() : undefined;
  problems.push(
    ...findCorsProblems(read, variableOf),
    ...findTlsProblems(read, isSet, starts && !isReload),
    ...(http2Problem === undefined ? [] : [http2Problem]),
    ...findGuardProblems(read, isSet, variableOf),
    ...(starts && !isReload ? findKeyFileProblems(read) : []),
    ...(starts ? findMissingPackages(read) : []),
  );
  if (problems.length > 0) throw new SettingsError(problems);
  return { command, settings: Object.freeze(settings) as Settings, sources: Object.freeze(sources) };
}

function findKeyFileProblems({ authIssuer = '', authJwksFile = '', authJwksUrl }: Partial<Settings>): string[] {
  // Without an issuer, or with AUTH_JWKS_URL, the file is not used and not checked here. Another check reports this.
  if (authIssuer === '' || authJwksFile === '' || authJwksUrl !== '') return [];
  try {
    accessSync(authJwksFile, constants.R_OK);
    return [];
  } catch (error) {
    const { code = String(error) } = error as NodeJS.ErrnoException;
    return [`${nameWithPath('AUTH_JWKS_FILE', authJwksFile)} cannot be read (${code})`];
  }
}

// Optional peer dependencies in package.json.
const tracePackages = [
  '@opentelemetry/api',
  '@opentelemetry/core',
  '@opentelemetry/exporter-trace-otlp-proto',
  '@opentelemetry/resources',
  '@opentelemetry/sdk-trace',
];

export function findMissingPackages(settings: Partial<Settings>, isThere = isInstalled): string[] {
  const collector = findCollector(settings);
  const needed: readonly (readonly [SettingName, readonly string[]])[] = [
    ...(collector === undefined ? [] : [[collector.setting, tracePackages] as const]),
    ...(settings.logFormat === 'pretty' ? [['logFormat', ['pino-pretty']] as const] : []),
  ];
  return needed.flatMap(([setting, packages]) => {
    const missing = packages.filter((name) => !isThere(name));
    const what = missing.length === 1 ? 'a package that is' : 'packages that are';
    const advice = `run \`npm install ${missing.join(' ')}\` where work-item-gateway is installed, or leave the setting out`;
    return missing.length === 0 ? [] : [`${variableOf(setting)} needs ${what} not installed: ${advice}`];
  });
}

export function isInstalled(name: string): boolean {
  try {
    import.meta.resolve(name);
    return true;
  } catch {
    return false;
  }
}
