// The error for a missing package or part that a guard needs.

/** The message says what to do. */
export class MissingPackageError extends Error {}

/** Runs `load`. If the package is not installed, rejects with a MissingPackageError that names the package. */
export async function explainMissing<T>(option: string, packageName: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new MissingPackageError(`${option} needs the package ${packageName}: run \`npm install ${packageName}\``, {
      cause: error,
    });
  }
}
