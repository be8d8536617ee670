// Packages that only those install who want what they do: optional peers in package.json. A setting that wants one that is
// not there is a problem at the start, and not a failure later.

interface Wishing {
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

/** One problem for each setting whose packages are not all installed; `variableOf` names a setting as its user does. */
export function findMissingPackages(
  { otelExporterOtlpEndpoint = '', logFormat }: Wishing,
  variableOf: (name: keyof Wishing) => string,
  isThere: (name: string) => boolean = isInstalled,
): string[] {
  const wishes = {
    otelExporterOtlpEndpoint: otelExporterOtlpEndpoint === '' ? [] : tracePackages,
    logFormat: logFormat === 'pretty' ? ['pino-pretty'] : [],
  };
  return Object.entries(wishes).flatMap(([setting, packages]) => {
    const missing = packages.filter((name) => !isThere(name));
    return missing.length === 0
      ? []
      : `${variableOf(setting as keyof Wishing)} needs ${missing.length === 1 ? 'a package that is' : 'packages that are'} not installed: run \`npm install ${missing.join(' ')}\` where work-item-gateway is installed, or leave the setting out`;
  });
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
