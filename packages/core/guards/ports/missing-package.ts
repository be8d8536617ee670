// Reports a missing package or part that a guard needs.

/** The message says what to do. */
export class MissingPackageError extends Error {}

/** Returns what is missing and what to do, if the package is not installed. */
export function findMissingPackage(option: string, packageName: string): string | undefined {
  // A bundle contains its packages, so they need not be installed.
  const { url } = import.meta as { readonly url?: string };
  if (url?.includes('/guards/ports/') !== true) return undefined;
  try {
    import.meta.resolve(packageName);
    return undefined;
  } catch (error) {
    return isNotInstalled(error) ? describeMissing(option, packageName) : undefined;
  }
}

/** Returns the error for a package that could not be loaded: a MissingPackageError if the package is not installed. */
export function explainLoading(option: string, packageName: string, error: unknown): unknown {
  return isNotInstalled(error)
    ? new MissingPackageError(describeMissing(option, packageName), { cause: error })
    : error;
}

function isNotInstalled(error: unknown): boolean {
  // The second code comes from bundles.
  return ['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND'].includes((error as NodeJS.ErrnoException).code ?? '');
}

function describeMissing(option: string, packageName: string): string {
  return `${option} needs the package ${packageName}: run \`npm install ${packageName}\``;
}
