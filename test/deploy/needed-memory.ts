// The memory that a gateway needs at the limits of its settings, according to docs/operating.md, Sizing.

import type { Settings } from '../../packages/command/settings/settings.ts';

const connectionBytes = { plain: 16_000, tls: 140_000, http2: 200_000 };

export function neededWithConnections(settings: Settings): number {
  const { bufferedBytesMax, connectionsMax, http2, tlsCertFile, workers } = settings;
  const kind = http2 ? 'http2' : tlsCertFile === '' ? 'plain' : 'tls';
  return (bufferedBytesMax * 4) / 3 + 200e6 * workers + connectionsMax * connectionBytes[kind];
}
