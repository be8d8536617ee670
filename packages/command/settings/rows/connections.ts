// Settings: the backend, TLS on both sides, and processes.

import { backendAddress, boolean, choice, file, milliseconds } from '../../../core/hosts/options/kinds.ts';
import { gatewayRows } from '../../../core/hosts/options/options.ts';
import { count, serverName } from '../../options/kinds.ts';
import { gateway, serving, settings } from '../../options/row.ts';

export const connectionsRows = {
  ...settings('backend', serving, {
    backendUrl: {
      kind: backendAddress,
      default: 'http://localhost:5104',
      help: 'Base address of the backend, http or https; it may include a base path.',
    },
  }),
  ...settings('tls', gateway, {
    tlsCertFile: {
      kind: file,
      default: '',
      help: "Certificate of the client listener; with TLS_KEY_FILE it makes the listener https only. A PEM file with the gateway's certificate first, then the intermediate certificates.",
    },
    tlsKeyFile: { kind: file, default: '', help: 'Private key of TLS_CERT_FILE; a PEM file without a pass phrase.' },
    tlsMinVersion: {
      kind: choice('1.2', '1.3'),
      default: '1.2',
      help: 'Oldest TLS version that clients may use; needs TLS_CERT_FILE.',
    },
    tlsClientCaFile: {
      kind: file,
      default: '',
      help: 'Authorities that client certificates must be issued by; clients without such a certificate are refused. A PEM file; needs TLS_CERT_FILE.',
    },
    tlsReloadMs: {
      kind: milliseconds,
      default: 10_000,
      help: 'Interval at which the certificate files are checked for changes; SIGHUP checks them immediately. Valid new certificates apply to new connections. Invalid new certificates are refused and logged.',
    },
    http2: {
      kind: boolean,
      default: false,
      help: 'Offer HTTP/2 to clients; clients that do not support HTTP/2 use HTTP/1.1. Needs TLS_CERT_FILE and Node 26.',
    },
  }),
  ...settings('tls', serving, {
    backendCaFile: {
      kind: file,
      default: '',
      help: "Authorities of the backend's certificate; they replace those that Node trusts. A PEM file; needs an https address in BACKEND_URL.",
    },
    backendCertFile: {
      kind: file,
      default: '',
      help: "Client certificate for connections to the backend; needs BACKEND_KEY_FILE. A PEM file with the gateway's certificate first, then the intermediate certificates.",
    },
    backendKeyFile: {
      kind: file,
      default: '',
      help: 'Private key of BACKEND_CERT_FILE; a PEM file without a pass phrase.',
    },
    backendServerName: {
      kind: serverName,
      default: '',
      help: "Name that the backend's certificate must be valid for; by default the host name in BACKEND_URL.",
    },
  }),
  ...settings('processes', serving, {
    workers: {
      kind: count(256),
      default: 1,
      help: 'Number of processes that serve clients on one port; `auto` is one per core. With 2 or more, a worker that ends is replaced, and SIGHUP replaces all workers one by one. Each worker has an equal share of CONNECTIONS_MAX, IN_FLIGHT_MAX and BUFFERED_BYTES_MAX.',
    },
    portSharing: {
      kind: choice('auto', 'cluster', 'reuse-port'),
      default: 'auto',
      help: 'How workers share the port; `cluster`: the primary process accepts connections and distributes them in turn, and no connection is lost when a worker is replaced. `reuse-port`: each worker has a listening socket of its own. That costs less if most connections carry only one call. But connections in the queue of a closing worker are reset, unless Linux runs with net.ipv4.tcp_migrate_req=1. `auto`: `reuse-port` with that Linux setting, otherwise `cluster`.',
    },
  }),
  ...settings('processes', ['serve', 'check', 'openapi', 'health'], {
    settingsFile: {
      kind: file,
      default: '',
      help: 'File of further settings, one VARIABLE=value per line; flags and environment variables take precedence. Read at the start and again on SIGHUP.',
    },
  }),
  ...settings('backend', gateway, { itemIdParsing: gatewayRows.itemIdParsing }),
};
