// What is said when something that a guard needs is not there.

/** A package or a part that a guard needs is not there; the message says what to do. */
export class MissingPackageError extends Error {}

/** Runs `load`. Rejects with a MissingPackageError that names the package when a module of it is not found. */
export async function explainMissing<T>(
  option: string,
  packageName: string,
  load: () => Promise<T>,
): Promise<T> {
  try {
    return await load();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') {
      throw error;
    }
    throw new MissingPackageError(
      `${option} needs the package ${packageName}: run \`npm install ${packageName}\``,
      { cause: error },
    );
  }
}
