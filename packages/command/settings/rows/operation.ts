// Settings: what the gateway shows, logs and traces, how it ends, and the stand-in backend.

import {
  boolean,
  choice,
  database,
  host,
  name,
  nameOrMachine,
  optionalAddress,
  ratio,
  secretHeaders,
} from '../../options/kinds.ts';
import { embedded, everywhere, gateway, ms, msLimit, port, type Row } from '../../options/row.ts';
import { samplerNames } from '../../options/tracing.ts';

export const operationRows = {
  instanceName: {
    kind: nameOrMachine,
    group: 'pages',
    default: '',
    help: "What the dashboard calls this gateway; without it, the name of the machine. It stands in its header and its tab's title, for instance `gateway-2 (staging)`.",
    commands: gateway,
  },
  docs: {
    kind: boolean,
    group: 'pages',
    default: false,
    invertedIn: ['dev'],
    help: 'API reference at /docs and OpenAPI document at /openapi.json for clients; without it both are 404.',
    commands: gateway,
  },
  shutdownDelayMs: ms(
    0,
    'How long to go on serving after SIGTERM; /readyz says 503 meanwhile, so that a load balancer can look elsewhere.',
    'shutdown',
    0,
  ),
  shutdownTimeoutMs: msLimit(
    'shutdownTimeoutMs',
    'How long requests under way may take after that delay; then they are cut and the exit code is 1.',
    'shutdown',
  ),
  logLevel: {
    kind: choice('debug', 'info', 'warn', 'error', 'fatal', 'silent'),
    group: 'log',
    default: 'info',
    help: 'Least severe log line to write; `info` has one line a request, `warn` only failures.',
    commands: everywhere,
  },
  logFormat: {
    kind: choice('auto', 'pretty', 'json'),
    group: 'log',
    default: 'auto',
    help: '`auto` is pretty on a terminal and JSON lines otherwise. Pretty lines need the package pino-pretty, which a clone has, and neither the npm package nor the image: without it `auto` is JSON lines on a terminal too.',
    commands: everywhere,
  },
  logClient: {
    kind: boolean,
    group: 'log',
    default: true,
    help: "Whether the log has clients' addresses, subjects (of their tokens) and agents; where not, the dashboard's failed calls have no addresses either.",
    commands: gateway,
  },
  otelExporterOtlpEndpoint: {
    kind: optionalAddress,
    group: 'traces',
    default: '',
    help: 'Collector that traces are exported to, by OTLP over HTTP; for instance `http://localhost:4318`, to which `/v1/traces` is added. Without it nothing is traced.',
    commands: gateway,
  },
  otelExporterOtlpHeaders: {
    kind: secretHeaders,
    group: 'traces',
    default: '',
    help: 'Headers for the collector, such as its key; `name=value` separated by commas, percent-encoded. Never shown anywhere: set it by the variable, since a flag can be read in the list of processes.',
    commands: gateway,
  },
  otelServiceName: {
    kind: name,
    group: 'traces',
    default: 'work-item-gateway',
    help: 'What traces call this service.',
    commands: gateway,
  },
  otelTracesSampler: {
    kind: choice(...samplerNames),
    group: 'traces',
    default: 'parentbased_always_on',
    help: 'Which calls are traced; those that begin with `parentbased_` do as the client has decided where it has a trace, and as their other half says where it has none.',
    commands: gateway,
  },
  otelTracesSamplerArg: {
    kind: ratio,
    group: 'traces',
    default: 1,
    help: 'Share of traces that the samplers with `traceidratio` take; 0.01 is one in a hundred. The others do not look at it.',
    commands: gateway,
  },
  embeddedBackendHost: {
    kind: host,
    group: 'embeddedBackend',
    default: 'localhost',
    help: 'Address for the embedded backend to listen on.',
    commands: embedded,
  },
  embeddedBackendPort: port(
    5104,
    'Port for the embedded backend to listen on; 0 picks a free one.',
    'embeddedBackend',
    embedded,
  ),
  embeddedBackendDatabase: {
    kind: database,
    group: 'embeddedBackend',
    default: ':memory:',
    help: 'SQLite file that the embedded backend keeps its work items in; `:memory:` forgets them at the end.',
    commands: embedded,
  },
} as const satisfies Record<string, Row>;
