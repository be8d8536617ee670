// Settings: the backend, TLS towards both sides, and processes.

import { backendAddress, boolean, choice, file, milliseconds } from '../../../core/hosts/options/kinds.ts';
import { gatewayRows } from '../../../core/hosts/options/options.ts';
import { count, serverName } from '../../options/kinds.ts';
import { gateway, serving, settings } from '../../options/row.ts';

export const connectionsRows = {
  ...settings('backend', serving, {
    backendUrl: {
      kind: backendAddress,
      default: 'http://localhost:5104',
      help: "The backend's base address, http or https; it may carry a base path.",
    },
  }),
  ...settings('tls', gateway, {
    tlsCertFile: {
      kind: file,
      default: '',
      help: 'Certificate that clients are shown; together with TLS_KEY_FILE it makes the client listener https, and nothing else. A PEM file with the own certificate first, then those between it and its authority.',
    },
    tlsKeyFile: {
      kind: file,
      default: '',
      help: 'Private key of TLS_CERT_FILE; in PEM format and without a pass phrase.',
    },
    tlsMinVersion: {
      kind: choice('1.2', '1.3'),
      default: '1.2',
      help: 'Oldest version of TLS that clients may speak; needs TLS_CERT_FILE.',
    },
    tlsClientCaFile: {
      kind: file,
      default: '',
      help: 'Authorities of client certificates; a client without a certificate of one of them is not let in. A PEM file; needs TLS_CERT_FILE.',
    },
    tlsReloadMs: {
      kind: milliseconds,
      default: 10_000,
      help: 'How often the certificate files are compared with those in force; SIGHUP does it at once. Valid ones take over for new connections, others are refused with a line in the log.',
    },
    http2: {
      kind: boolean,
      default: false,
      help: 'Whether clients that can may speak HTTP/2; the others speak HTTP/1.1 as before. Needs TLS_CERT_FILE, and Node 26.',
    },
  }),
  ...settings('tls', serving, {
    backendCaFile: {
      kind: file,
      default: '',
      help: "Authorities of the backend's certificate; in place of those that Node trusts. A PEM file; needs an https address in BACKEND_URL.",
    },
    backendCertFile: {
      kind: file,
      default: '',
      help: 'Certificate that the backend is shown; together with BACKEND_KEY_FILE. A PEM file with the own certificate first, then those between it and its authority.',
    },
    backendKeyFile: {
      kind: file,
      default: '',
      help: 'Private key of BACKEND_CERT_FILE; in PEM format and without a pass phrase.',
    },
    backendServerName: {
      kind: serverName,
      default: '',
      help: "Name that the backend's certificate must have; where it is not the one in BACKEND_URL.",
    },
  }),
  ...settings('processes', serving, {
    workers: {
      kind: count(256),
      default: 1,
      help: 'Processes that serve clients on one port; `auto` is one a core. From 2 on a dead one is replaced, SIGHUP replaces them all one by one, and each has an equal share of CONNECTIONS_MAX, IN_FLIGHT_MAX and BUFFERED_BYTES_MAX.',
    },
    portSharing: {
      kind: choice('auto', 'cluster', 'reuse-port'),
      default: 'auto',
      help: 'How workers share the port. `cluster`: the primary process takes connections and deals them out in turn; no connection is lost when a worker is replaced. `reuse-port`: each worker has a listening socket of its own, which costs less where most connections carry one call only, but resets what waits in the queue of one that closes, unless Linux runs with net.ipv4.tcp_migrate_req=1; `auto` takes it only there.',
    },
  }),
  ...settings('processes', ['serve', 'check', 'openapi', 'health'], {
    settingsFile: {
      kind: file,
      default: '',
      help: 'File of further settings, one VARIABLE=value a line; flags and the environment go before it. Read at the start and again on SIGHUP.',
    },
  }),
  ...settings('backend', gateway, { itemIdParsing: gatewayRows.itemIdParsing }),
};
