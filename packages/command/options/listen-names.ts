// How an operator names what a listener listens on.

import type { ListenNames } from '../../core/hosts/common/listen.ts';

/** Of the listener whose variables begin with `prefix`: `--port (PORT)`. */
export function listenNames(prefix: '' | 'ADMIN_'): ListenNames {
  const nameOf = (variable: string): string =>
    `--${variable.toLowerCase().replaceAll('_', '-')} (${variable})`;
  return { host: nameOf(`${prefix}HOST`), port: nameOf(`${prefix}PORT`) };
}
