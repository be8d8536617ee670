// The share of the limits that one process enforces. Everything that people read has the limits of the whole gateway.

import type { Settings } from './settings.ts';

type SharedLimit = 'connectionsMax' | 'inFlightMax' | 'bufferedBytesMax';

/** Returns the share of each process; all shares of a limit are equal. */
export function shareOf({ workers, ...limits }: Pick<Settings, 'workers' | SharedLimit>): Record<SharedLimit, number> {
  const share = (name: SharedLimit): number => Math.ceil(limits[name] / workers);
  return {
    connectionsMax: share('connectionsMax'),
    inFlightMax: share('inFlightMax'),
    bufferedBytesMax: share('bufferedBytesMax'),
  };
}
