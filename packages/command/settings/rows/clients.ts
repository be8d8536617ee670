// Settings: the listeners of clients and operators, host names, proxies and CORS.

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
      help: 'Address to listen on for clients; `localhost` is 127.0.0.1 and ::1. `0.0.0.0` and `::` are all addresses.',
    },
    port: {
      kind: port,
      default: 3000,
      help: 'Port to listen on for clients; 0 picks a free one, which the start-up line shows.',
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
      help: 'Further host names of the admin listener; for instance `gateway.internal,gateway.example.com`. IP addresses, `localhost`, names under `.localhost` and ADMIN_HOST are always accepted. Ports are ignored. A request with any other `Host` gets 403. A request without `Host` is answered.',
    },
    trustedProxies: gatewayRows.trustedProxies,
  }),
  ...settings('cors', gateway, corsRows),
};
