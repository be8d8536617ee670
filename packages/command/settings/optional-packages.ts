// Checks at the start that the packages which a setting needs are installed. They are optional peers in package.json.

import { variableOf, type Settings } from './settings.ts';

const tracePackages = [
  '@opentelemetry/api',
  '@opentelemetry/core',
  '@opentelemetry/exporter-trace-otlp-proto',
  '@opentelemetry/resources',
  '@opentelemetry/sdk-trace',
];

/** One problem for each setting whose packages are not all installed. */
export function findMissingPackages(
  { otelExporterOtlpEndpoint = '', logFormat }: Partial<Pick<Settings, 'otelExporterOtlpEndpoint' | 'logFormat'>>,
  isThere = isInstalled,
): string[] {
  return [
    ...(otelExporterOtlpEndpoint === '' ? [] : describeMissing('otelExporterOtlpEndpoint', tracePackages, isThere)),
    ...(logFormat === 'pretty' ? describeMissing('logFormat', ['pino-pretty'], isThere) : []),
  ];
}

function describeMissing(setting: keyof Settings, packages: readonly string[], isThere: typeof isInstalled): string[] {
  const missing = packages.filter((name) => !isThere(name));
  const what = missing.length === 1 ? 'a package that is' : 'packages that are';
  const advice = `run \`npm install ${missing.join(' ')}\` where work-item-gateway is installed, or leave the setting out`;
  return missing.length === 0 ? [] : [`${variableOf(setting)} needs ${what} not installed: ${advice}`];
}

/** Tells whether `name` can be imported. */
export function isInstalled(name: string): boolean {
  try {
    import.meta.resolve(name);
    return true;
  } catch {
    return false;
  }
}
