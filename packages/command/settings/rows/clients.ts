// Settings: where clients and operators call, and who of them may.

import { addressRanges, boolean, host, hostNames, origins } from '../../options/kinds.ts';
import { admin, gateway, limit, port, type Row } from '../../options/row.ts';

export const clientsRows = {
  host: {
    kind: host,
    group: 'listening',
    default: 'localhost',
    help: 'Address to listen on for clients; `localhost` is 127.0.0.1 and ::1, `0.0.0.0` and `::` are every address.',
    commands: gateway,
  },
  port: port(
    3000,
    'Port to listen on for clients; 0 picks a free one and the start-up line says which.',
    'listening',
    gateway,
  ),
  adminHost: {
    kind: host,
    group: 'listening',
    default: 'localhost',
    help: 'Address to listen on for the dashboard, /livez, /readyz and /metrics.',
    commands: admin,
  },
  adminPort: port(
    9464,
    'Port to listen on for the dashboard, /livez, /readyz and /metrics; 0 picks a free one.',
    'listening',
    admin,
  ),
  allowedHosts: {
    kind: hostNames,
    default: '',
    group: 'guards',
    help: 'Names under which clients may call; without any, all are right. For instance `items.example.com`: then a request whose `Host` is no IP address, not `localhost`, no name under `.localhost`, not HOST and none of these is answered with 403, whatever its port. A request without a name is served.',
    commands: gateway,
  },
  adminAllowedHosts: {
    kind: hostNames,
    default: '',
    group: 'guards',
    help: 'Further names under which the admin listener is called; for instance `gateway.internal,gateway.example.com`. It answers a request whose `Host` is an IP address, `localhost`, a name under `.localhost`, ADMIN_HOST or one of these, with any port, or that has none, and others with 403.',
    commands: gateway,
  },
  trustedProxies: {
    kind: addressRanges,
    default: '',
    group: 'guards',
    help: "Load balancers and proxies in front; for instance `10.0.0.0/8,192.168.1.7,2001:db8::/32`. Where one of them calls, the client's address is what their `x-forwarded-for` says, read from the right up to the first address that is not theirs. From nobody else is that header read.",
    commands: gateway,
  },
  corsOrigins: {
    kind: origins,
    default: '',
    group: 'cors',
    help: 'Origins whose pages may call and read replies; for instance `https://app.example.com,http://localhost:5173`. Each is written as browsers send it: scheme, host and, where it is not the usual one, port. `*` alone allows every page there is. Without any, no reply has a CORS header.',
    commands: gateway,
  },
  corsCredentials: {
    kind: boolean,
    default: false,
    group: 'cors',
    help: 'Whether these pages may call with cookies and client certificates. Tokens in `Authorization` need it not. Cannot be with `*`.',
    commands: gateway,
  },
  corsMaxAgeS: limit(
    'corsMaxAgeS',
    's',
    'How long browsers may remember what OPTIONS has told them; then they ask again. Chromium caps it at 7,200 s.',
    'cors',
  ),
} as const satisfies Record<string, Row>;
