// The memory that a gateway needs at the limits of its settings, according to docs/operating.md, Sizing.

import type { Settings } from '../../packages/command/settings/settings.ts';

const connectionBytes = { plain: 5 * 1_024, tls: 50 * 1_024, http2: 83 * 1_024 };

export function neededWithConnections(settings: Settings): number {
  const { bufferedBytesMax, connectionsMax, http2, tlsCertFile, workers } = settings;
  const kind = http2 ? 'http2' : tlsCertFile === '' ? 'plain' : 'tls';
  return (bufferedBytesMax * 4) / 3 + 200e6 * workers + connectionsMax * connectionBytes[kind];
}
