// Reports a missing package or part that a guard needs.

/** The message says what to do. */
export class MissingPackageError extends Error {}

/** Returns what is missing and what to do, if the package is not installed. */
export function findMissingPackage(option: string, packageName: string): string | undefined {
  // A bundle contains its packages, so they need not be installed.
  if (!import.meta.url.includes('/guards/options/')) return undefined;
  try {
    import.meta.resolve(packageName);
    return undefined;
  } catch (error) {
    return isNotInstalled(error) ? describeMissing(option, packageName) : undefined;
  }
}

/** Runs `load`. If the package is not installed, rejects with a MissingPackageError that names the package. */
export async function explainMissing<T>(option: string, packageName: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    if (!isNotInstalled(error)) throw error;
    throw new MissingPackageError(describeMissing(option, packageName), { cause: error });
  }
}

function isNotInstalled(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND';
}

function describeMissing(option: string, packageName: string): string {
  return `${option} needs the package ${packageName}: run \`npm install ${packageName}\``;
}
