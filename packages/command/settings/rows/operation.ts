// Settings: what the gateway shows, logs and traces, how it ends, and the stand-in backend.

import { boolean, choice, integer, msMax } from '../../../core/hosts/options/kinds.ts';
import { shutdownTimeoutRow } from '../../../core/hosts/options/limits.ts';
import {
  database,
  host,
  name,
  nameOrMachine,
  optionalAddress,
  port,
  ratio,
  secretHeaders,
} from '../../options/kinds.ts';
import { embedded, everywhere, gateway, settings } from '../../options/row.ts';
import { samplerNames } from '../../options/tracing.ts';

export const operationRows = {
  ...settings('pages', gateway, {
    instanceName: {
      kind: nameOrMachine,
      default: '',
      help: "What the dashboard calls this gateway; without it, the name of the machine. It stands in its header and its tab's title, for instance `gateway-2 (staging)`.",
    },
    docs: {
      kind: boolean,
      default: false,
      invertedIn: ['dev'],
      help: 'API reference at /docs and OpenAPI document at /openapi.json for clients; without it both are 404.',
    },
  }),
  ...settings('shutdown', gateway, {
    shutdownDelayMs: {
      kind: integer('ms', 0, msMax),
      default: 0,
      help: 'How long to go on serving after SIGTERM; /readyz says 503 meanwhile, so that a load balancer can look elsewhere.',
    },
    shutdownTimeoutMs: shutdownTimeoutRow,
  }),
  ...settings('log', everywhere, {
    logLevel: {
      kind: choice('debug', 'info', 'warn', 'error', 'fatal', 'silent'),
      default: 'info',
      help: 'Least severe log line to write; `info` has one line a request, `warn` only failures.',
    },
    logFormat: {
      kind: choice('auto', 'pretty', 'json'),
      default: 'auto',
      help: '`auto` is pretty on a terminal and JSON lines otherwise. Pretty lines need the package pino-pretty, which a clone has, and neither the npm package nor the image: without it `auto` is JSON lines on a terminal too.',
    },
  }),
  ...settings('log', gateway, {
    logClient: {
      kind: boolean,
      default: true,
      help: "Whether the log has clients' addresses, subjects (of their tokens) and agents; where not, the dashboard's failed calls have no addresses either.",
    },
  }),
  ...settings('traces', gateway, {
    otelExporterOtlpEndpoint: {
      kind: optionalAddress,
      default: '',
      help: 'Collector that traces are exported to, by OTLP over HTTP; for instance `http://localhost:4318`, to which `/v1/traces` is added. Without it nothing is traced.',
    },
    otelExporterOtlpHeaders: {
      kind: secretHeaders,
      default: '',
      help: 'Headers for the collector, such as its key; `name=value` separated by commas, percent-encoded. Never shown anywhere: set it by the variable, since a flag can be read in the list of processes.',
    },
    otelServiceName: {
      kind: name,
      default: 'work-item-gateway',
      help: 'What traces call this service.',
    },
    otelTracesSampler: {
      kind: choice(...samplerNames),
      default: 'parentbased_always_on',
      help: 'Which calls are traced; those that begin with `parentbased_` do as the client has decided where it has a trace, and as their other half says where it has none.',
    },
    otelTracesSamplerArg: {
      kind: ratio,
      default: 1,
      help: 'Share of traces that the samplers with `traceidratio` take; 0.01 is one in a hundred. The others do not look at it.',
    },
  }),
  ...settings('embeddedBackend', embedded, {
    embeddedBackendHost: {
      kind: host,
      default: 'localhost',
      help: 'Address for the embedded backend to listen on.',
    },
    embeddedBackendPort: {
      kind: port,
      default: 5104,
      help: 'Port for the embedded backend to listen on; 0 picks a free one.',
    },
    embeddedBackendDatabase: {
      kind: database,
      default: ':memory:',
      help: 'SQLite file that the embedded backend keeps its work items in; `:memory:` forgets them at the end.',
    },
  }),
};
