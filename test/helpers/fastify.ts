// The Fastify that tests run with: the newest, and the oldest that the package says it works with.

import newest from 'fastify';

export type FastifyVersion = 'newest' | 'oldest';

/** That Fastify's factory. The oldest is an alias in package.json; its own types, those of another package, stay out. */
export async function loadFastify(version: FastifyVersion): Promise<typeof newest> {
  const oldest = 'fastify-oldest';
  return version === 'newest' ? newest : ((await import(oldest)) as { default: typeof newest }).default;
}

/** For suites that run with one of them: TEST_FASTIFY=oldest takes the oldest. */
export const Fastify = await loadFastify((process.env['TEST_FASTIFY'] ?? 'newest') as FastifyVersion);
