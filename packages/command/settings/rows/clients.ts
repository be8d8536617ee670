// Settings: where clients and operators call, and who of them may.

import { corsRows } from '../../../core/hosts/options/cors-options.ts';
import { hostNames } from '../../../core/hosts/options/kinds.ts';
import { gatewayRows } from '../../../core/hosts/options/options.ts';
import { host, port } from '../../options/kinds.ts';
import { admin, gateway, settings } from '../../options/row.ts';

export const clientsRows = {
  ...settings('listening', gateway, {
    host: {
      kind: host,
      default: 'localhost',
      help: 'Address to listen on for clients; `localhost` is 127.0.0.1 and ::1, `0.0.0.0` and `::` are every address.',
    },
    port: {
      kind: port,
      default: 3000,
      help: 'Port to listen on for clients; 0 picks a free one and the start-up line says which.',
    },
  }),
  ...settings('listening', admin, {
    adminHost: {
      kind: host,
      default: 'localhost',
      help: 'Address to listen on for the dashboard, /livez, /readyz and /metrics.',
    },
    adminPort: {
      kind: port,
      default: 9464,
      help: 'Port to listen on for the dashboard, /livez, /readyz and /metrics; 0 picks a free one.',
    },
  }),
  ...settings('guards', gateway, {
    allowedHosts: gatewayRows.allowedHosts,
    adminAllowedHosts: {
      kind: hostNames,
      default: '',
      help: 'Further names under which the admin listener is called; for instance `gateway.internal,gateway.example.com`. It answers a request whose `Host` is an IP address, `localhost`, a name under `.localhost`, ADMIN_HOST or one of these, with any port, or that has none, and others with 403.',
    },
    trustedProxies: gatewayRows.trustedProxies,
  }),
  ...settings('cors', gateway, corsRows),
};
