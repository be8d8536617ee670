// The versions of Fastify that tests use: the newest, and the oldest that the package supports.

import newest from 'fastify';

type FastifyVersion = 'newest' | 'oldest';

/** The factory of a version. The oldest is a package alias in package.json; both versions have the types of the newest. */
export async function loadFastify(version: FastifyVersion): Promise<typeof newest> {
  const oldest = 'fastify-oldest';
  return version === 'newest' ? newest : ((await import(oldest)) as { default: typeof newest }).default;
}

/** For suites that run with one version: TEST_FASTIFY=oldest selects the oldest. */
export const Fastify = await loadFastify((process.env['TEST_FASTIFY'] ?? 'newest') as FastifyVersion);
