// The table of settings. A new setting is a row here. A setting that developers can also pass as an option has its row in
// the core.

import { rateRows, tokenRows } from '../../core/options/guard-options.ts';
import { corsRows } from '../../core/options/cors-options.ts';
import {
  backendAddress,
  boolean,
  choice,
  file,
  hostNames,
  integer,
  milliseconds,
  msMax,
} from '../../core/options/kinds.ts';
import { shutdownTimeoutRow, sizeLimitRows, timeLimitRows } from '../../core/options/limits.ts';
import { gatewayRows } from '../../core/options/gateway-options.ts';
import {
  count,
  database,
  exporters,
  host,
  name,
  nameOrMachine,
  onlyTrue,
  optionalAddress,
  port,
  ratio,
  resourceAttributes,
  secretHeaders,
  serverName,
} from './setting-kinds.ts';
import { settings, type Command } from './groups.ts';

const gateway: readonly Command[] = ['serve', 'dev', 'check', 'openapi'];
const serving: readonly Command[] = ['serve', 'check', 'openapi'];

export const settingsTable = {
  ...settings('listening', gateway, {
    host: {
      kind: host,
      default: 'localhost',
      help: 'Address to listen on for clients; `localhost` means 127.0.0.1 and ::1, `::` all addresses, `0.0.0.0` all IPv4 addresses.',
      changeNeeds: 'restart',
    },
    port: {
      kind: port,
      default: 3000,
      help: 'Port to listen on for clients; 0 picks a free one, which the start-up line shows.',
      changeNeeds: 'restart',
    },
  }),
  ...settings('listening', [...gateway, 'health'], {
    adminHost: {
      kind: host,
      default: 'localhost',
      help: 'Address to listen on for the dashboard, /livez, /readyz and /metrics.',
      changeNeeds: 'restart',
    },
    adminPort: {
      kind: port,
      default: 9464,
      help: 'Port to listen on for the dashboard, /livez, /readyz and /metrics; 0 picks a free one.',
      changeNeeds: 'restart',
    },
  }),
  ...settings('guards', gateway, {
    allowedHosts: gatewayRows.allowedHosts,
    adminAllowedHosts: {
      kind: hostNames,
      help: 'Further host names of the admin listener; for instance `gateway.internal,gateway.example.com`. The rules are those of ALLOWED_HOSTS, with ADMIN_HOST in place of HOST.',
      changeNeeds: 'nothing',
    },
    trustedProxies: gatewayRows.trustedProxies,
  }),
  ...settings('cors', gateway, corsRows),
  ...settings('rateLimit', gateway, rateRows),
  ...settings('tokens', gateway, tokenRows),
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
      help: "Certificate of the client listener; with this file and TLS_KEY_FILE the listener serves only https. A PEM file with the gateway's certificate first, then the intermediate certificates.",
    },
    tlsKeyFile: { kind: file, help: 'Private key of TLS_CERT_FILE; a PEM file without a pass phrase.' },
    tlsMinVersion: {
      kind: choice('1.2', '1.3'),
      default: '1.2',
      help: 'Oldest TLS version that clients may use; needs TLS_CERT_FILE.',
    },
    tlsClientCaFile: {
      kind: file,
      help: 'Authorities that issue client certificates; a client without such a certificate is refused. A PEM file; needs TLS_CERT_FILE.',
    },
    tlsReloadMs: {
      kind: milliseconds,
      default: 10_000,
      help: 'Interval at which the certificate files are checked for changes; SIGHUP checks them immediately. Unusable certificates are refused and logged.',
      changeNeeds: 'nothing',
    },
    http2: {
      kind: boolean,
      default: false,
      help: 'Offers HTTP/2 to clients; clients that do not support HTTP/2 use HTTP/1.1. Needs TLS_CERT_FILE and Node 26.',
    },
  }),
  ...settings('tls', serving, {
    backendCaFile: {
      kind: file,
      help: "Authorities of the backend's certificate; they replace the authorities that Node trusts. A PEM file; needs an https address in BACKEND_URL.",
    },
    backendCertFile: {
      kind: file,
      help: "Client certificate for connections to the backend; needs BACKEND_KEY_FILE. A PEM file with the gateway's certificate first, then the intermediate certificates.",
    },
    backendKeyFile: { kind: file, help: 'Private key of BACKEND_CERT_FILE; a PEM file without a pass phrase.' },
    backendServerName: {
      kind: serverName,
      help: "Name that the backend's certificate must be valid for; by default the host name in BACKEND_URL.",
    },
  }),
  ...settings('processes', serving, {
    workers: {
      kind: count(256),
      default: 1,
      help: 'Number of processes that serve clients on one port; `auto` is one per core. With 2 or more, a worker that ends is replaced, and SIGHUP reloads the workers one by one. Each worker has an equal share of CONNECTIONS_MAX, IN_FLIGHT_MAX and BUFFERED_BYTES_MAX.',
      changeNeeds: 'workers',
    },
  }),
  ...settings('processes', [...serving, 'health'], {
    settingsFile: {
      kind: file,
      help: 'File of further settings, one VARIABLE=value per line; flags and environment variables take precedence. The file is UTF-8 and is read at the start and again on SIGHUP. Quotation marks around a value are removed. A `#` at the start of a line or after white space begins a comment.',
      changeNeeds: 'nothing',
    },
  }),
  ...settings('backend', gateway, { itemIdParsing: gatewayRows.itemIdParsing }),
  ...settings('limits', gateway, sizeLimitRows),
  ...settings('timeLimits', gateway, timeLimitRows),
  ...settings('pages', gateway, {
    instanceName: {
      kind: nameOrMachine,
      help: "Name of this gateway in the dashboard's header and tab title; for instance `gateway-2 (staging)`. By default the host name of the machine.",
      changeNeeds: 'nothing',
    },
    docs: {
      kind: boolean,
      default: false,
      invertedIn: ['dev'],
      help: 'Serves the API reference at /docs and the OpenAPI document at /openapi.json; if false, both paths get 404.',
    },
  }),
  ...settings('shutdown', gateway, {
    shutdownDelayMs: {
      kind: integer('ms', 0, msMax),
      default: 0,
      help: 'Time to keep serving after SIGTERM; meanwhile /readyz answers 503, so that load balancers stop sending requests.',
      changeNeeds: 'nothing',
    },
    shutdownTimeoutMs: { ...shutdownTimeoutRow, changeNeeds: 'nothing' },
  }),
  ...settings('log', [...gateway, 'backend'], {
    logLevel: {
      kind: choice('debug', 'info', 'warn', 'error', 'fatal', 'silent'),
      default: 'info',
      help: 'Lowest level of log lines to write; `info` has one line per request, `warn` only failures.',
      changeNeeds: 'nothing',
    },
    logFormat: {
      kind: choice('auto', 'pretty', 'json'),
      default: 'auto',
      help: 'Format of log lines; `auto` is pretty on a terminal and JSON otherwise. Pretty lines need the package pino-pretty, which a git clone has. Without it, `auto` is JSON on a terminal too.',
      changeNeeds: 'nothing',
    },
  }),
  ...settings('log', gateway, {
    logClient: {
      kind: boolean,
      default: true,
      help: "Logs clients' addresses, token subjects and user agents; if false, the dashboard's failed calls have no addresses either.",
    },
  }),
  ...settings('traces', gateway, {
    otelSdkDisabled: { kind: onlyTrue, default: 'false', help: 'If true, nothing is traced.' },
    otelTracesExporter: { kind: exporters, default: 'otlp', help: 'With `none`, nothing is traced.' },
    otelExporterOtlpEndpoint: {
      kind: optionalAddress,
      help: "Address of the traces' collector (OTLP over HTTP); for instance `http://localhost:4318`. The gateway adds `/v1/traces`.",
    },
    otelExporterOtlpHeaders: {
      kind: secretHeaders,
      help: 'Headers for requests to the collector, such as an API key; percent-encoded and never shown. Use the variable, because a flag is visible in the list of processes.',
    },
    otelExporterOtlpTracesEndpoint: {
      kind: optionalAddress,
      help: 'Address for traces alone; used as it is, in place of OTEL_EXPORTER_OTLP_ENDPOINT.',
    },
    otelExporterOtlpTracesHeaders: {
      kind: secretHeaders,
      help: 'Headers for traces alone; sent in place of OTEL_EXPORTER_OTLP_HEADERS, and never shown.',
    },
    otelServiceName: {
      kind: name,
      help: 'Name of this service in traces; by default `service.name` in OTEL_RESOURCE_ATTRIBUTES, or else `work-item-gateway`.',
    },
    otelResourceAttributes: {
      kind: resourceAttributes,
      help: 'Attributes of this service in traces; percent-encoded, for instance `deployment.environment.name=staging`.',
    },
    otelTracesSampler: {
      kind: choice(
        'always_on',
        'always_off',
        'traceidratio',
        'parentbased_always_on',
        'parentbased_always_off',
        'parentbased_traceidratio',
      ),
      default: 'parentbased_always_on',
      help: "Sampler that selects the calls to trace. A `parentbased_` sampler follows the decision in the client's trace context; if the client sent no trace context, `parentbased_X` decides like `X`.",
    },
    otelTracesSamplerArg: {
      kind: ratio,
      default: 1,
      help: 'Share of calls that the `traceidratio` samplers trace; 0.01 is 1 in 100. Other samplers ignore it.',
      isIgnored: ({ otelTracesSampler }) => !String(otelTracesSampler).endsWith('traceidratio'),
    },
  }),
  ...settings('embeddedBackend', ['dev', 'backend'], {
    embeddedBackendHost: {
      kind: host,
      default: 'localhost',
      help: 'Address that the embedded backend listens on.',
      changeNeeds: 'restart',
    },
    embeddedBackendPort: {
      kind: port,
      default: 5104,
      help: 'Port that the embedded backend listens on; 0 picks a free one.',
      changeNeeds: 'restart',
    },
    embeddedBackendDatabase: {
      kind: database,
      default: ':memory:',
      help: 'SQLite file for the work items of the embedded backend; with `:memory:` they are lost when the process ends.',
      changeNeeds: 'restart',
    },
  }),
};
