// Checks at the start that the packages which a setting needs are installed. They are optional peers in package.json.

interface PackageSettings {
  readonly otelExporterOtlpEndpoint?: string | undefined;
  readonly logFormat?: string | undefined;
}

const tracePackages = [
  '@opentelemetry/api',
  '@opentelemetry/core',
  '@opentelemetry/exporter-trace-otlp-proto',
  '@opentelemetry/resources',
  '@opentelemetry/sdk-trace',
];

/** One problem for each setting whose packages are not all installed. */
export function findMissingPackages(
  { otelExporterOtlpEndpoint = '', logFormat }: PackageSettings,
  variableOf: (name: keyof PackageSettings) => string,
  isThere: (name: string) => boolean = isInstalled,
): string[] {
  const needed = {
    otelExporterOtlpEndpoint: otelExporterOtlpEndpoint === '' ? [] : tracePackages,
    logFormat: logFormat === 'pretty' ? ['pino-pretty'] : [],
  };
  return Object.entries(needed).flatMap(([setting, packages]) => {
    const missing = packages.filter((name) => !isThere(name));
    return missing.length === 0
      ? []
      : `${variableOf(setting as keyof PackageSettings)} needs ${missing.length === 1 ? 'a package that is' : 'packages that are'} not installed: run \`npm install ${missing.join(' ')}\` where work-item-gateway is installed, or leave the setting out`;
  });
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
