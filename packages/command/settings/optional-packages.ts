// Packages that only those install who want what they do: optional peers in package.json. A setting that wants one that is
// not there is a problem at the start, and not a failure later.

interface Wishing {
  readonly otelExporterOtlpEndpoint?: string | undefined;
  readonly logFormat?: string | undefined;
}

const wishes: readonly {
  readonly setting: keyof Wishing;
  readonly isWanted: (settings: Wishing) => boolean;
  readonly packages: readonly string[];
}[] = [
  {
    setting: 'otelExporterOtlpEndpoint',
    isWanted: ({ otelExporterOtlpEndpoint = '' }) => otelExporterOtlpEndpoint !== '',
    packages: [
      '@opentelemetry/api',
      '@opentelemetry/core',
      '@opentelemetry/exporter-trace-otlp-proto',
      '@opentelemetry/resources',
      '@opentelemetry/sdk-trace',
    ],
  },
  {
    setting: 'logFormat',
    isWanted: ({ logFormat }) => logFormat === 'pretty',
    packages: ['pino-pretty'],
  },
];

/** One problem for each setting whose packages are not all installed; `variableOf` names a setting as its user does. */
export function findMissingPackages(
  settings: Wishing,
  variableOf: (name: keyof Wishing) => string,
  isThere: (name: string) => boolean = isInstalled,
): string[] {
  return wishes
    .filter(({ isWanted }) => isWanted(settings))
    .map(({ setting, packages }) => ({ setting, missing: packages.filter((name) => !isThere(name)) }))
    .filter(({ missing }) => missing.length > 0)
    .map(
      ({ setting, missing }) =>
        `${variableOf(setting)} needs ${missing.length === 1 ? 'a package that is' : 'packages that are'} not installed: run \`npm install ${missing.join(' ')}\` where work-item-gateway is installed, or leave the setting out`,
    );
}

/** Whether an import of `name` would find it. */
export function isInstalled(name: string): boolean {
  try {
    import.meta.resolve(name);
    return true;
  } catch {
    return false;
  }
}
