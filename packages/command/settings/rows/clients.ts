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
      help: 'Further host names of the admin listener; for instance `gateway.internal,gateway.example.com`. A request is answered if it has no `Host`, or if its `Host` is, with any port, an IP address, `localhost`, a name under `.localhost`, ADMIN_HOST or one of these names. Other requests get 403.',
    },
    trustedProxies: gatewayRows.trustedProxies,
  }),
  ...settings('cors', gateway, corsRows),
};
