// Settings: pages, shutdown, log, traces, and the embedded backend.

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
      help: "Name of this gateway in the dashboard's header and tab title; for instance `gateway-2 (staging)`. By default the host name of the machine.",
    },
    docs: {
      kind: boolean,
      default: false,
      invertedIn: ['dev'],
      help: 'Serve the API reference at /docs and the OpenAPI document at /openapi.json; if false, both paths get 404.',
    },
  }),
  ...settings('shutdown', gateway, {
    shutdownDelayMs: {
      kind: integer('ms', 0, msMax),
      default: 0,
      help: 'Time to keep serving after SIGTERM; meanwhile /readyz answers 503, so that load balancers stop sending requests.',
    },
    shutdownTimeoutMs: shutdownTimeoutRow,
  }),
  ...settings('log', everywhere, {
    logLevel: {
      kind: choice('debug', 'info', 'warn', 'error', 'fatal', 'silent'),
      default: 'info',
      help: 'Lowest level of log lines to write; `info` has one line per request, `warn` only failures.',
    },
    logFormat: {
      kind: choice('auto', 'pretty', 'json'),
      default: 'auto',
      help: 'Format of log lines; `auto` is pretty on a terminal and JSON otherwise. Pretty lines need the package pino-pretty, which is part of a git clone, but not of the npm package or the image. Without it, `auto` is JSON on a terminal too.',
    },
  }),
  ...settings('log', gateway, {
    logClient: {
      kind: boolean,
      default: true,
      help: "Log clients' addresses, token subjects and user agents; if false, the dashboard's failed calls have no addresses either.",
    },
  }),
  ...settings('traces', gateway, {
    otelExporterOtlpEndpoint: {
      kind: optionalAddress,
      default: '',
      help: 'Collector that traces are exported to, by OTLP over HTTP; for instance `http://localhost:4318`, to which `/v1/traces` is added. Without an address, nothing is traced.',
    },
    otelExporterOtlpHeaders: {
      kind: secretHeaders,
      default: '',
      help: 'Headers for requests to the collector, such as an API key; `name=value` pairs separated by commas, percent-encoded. The value is never shown. Use the variable, because a flag is visible in the list of processes.',
    },
    otelServiceName: { kind: name, default: 'work-item-gateway', help: 'Name of this service in traces.' },
    otelTracesSampler: {
      kind: choice(...samplerNames),
      default: 'parentbased_always_on',
      help: "Sampler that selects the calls to trace. A `parentbased_` sampler follows the decision in the client's trace context; if the client sent none, `parentbased_X` decides like `X`.",
    },
    otelTracesSamplerArg: {
      kind: ratio,
      default: 1,
      help: 'Share of calls that the `traceidratio` samplers trace; 0.01 is 1 in 100. Other samplers ignore it.',
    },
  }),
  ...settings('embeddedBackend', embedded, {
    embeddedBackendHost: { kind: host, default: 'localhost', help: 'Address that the embedded backend listens on.' },
    embeddedBackendPort: {
      kind: port,
      default: 5104,
      help: 'Port that the embedded backend listens on; 0 picks a free one.',
    },
    embeddedBackendDatabase: {
      kind: database,
      default: ':memory:',
      help: 'SQLite file for the work items of the embedded backend; with `:memory:` they are lost when the process ends.',
    },
  }),
};
