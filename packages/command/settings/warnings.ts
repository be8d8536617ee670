// Warns, in the log at the start and in `check`, about valid settings that do not fit their environment.

import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';

import { findProxyEnv } from '../../core/guards/ports/egress-proxy.ts';
import { countEdits, joinWithOr } from '../../core/options/similar.ts';
import { settingNames, variableOf, type Settings } from './settings.ts';
import { shareOf } from './shares.ts';
import { findCollector } from './trace-settings.ts';

interface Warning {
  readonly message: string;
  readonly facts: Readonly<Record<string, number>>;
}

// File descriptors for the log, the listeners, the connections of the admin listener and the dashboards, and Node itself.
const ownDescriptors = 150;

type Environment = Readonly<NodeJS.Dict<string>>;

export function findWarnings(settings: Settings, environment: Environment): Warning[] {
  const { connectionsMax, inFlightMax, bufferedBytesMax, workers } = settings;
  const warnings: Warning[] = [];
  const warn = (message: string, facts: Warning['facts'] = {}): void => void warnings.push({ message, facts });
  const share = shareOf(settings);
  // The needs of one process at its limits.
  const needed = share.connectionsMax + share.inFlightMax + ownDescriptors;
  const descriptors = { limit: readDescriptorLimit(), needed };
  if (descriptors.limit < descriptors.needed) {
    warn(
      'too few file descriptors for the configured limits: raise ulimit -n, or lower CONNECTIONS_MAX or IN_FLIGHT_MAX',
      { ...descriptors, connectionsMax, inFlightMax },
    );
  }
  const memory = { limit: readMemoryLimit(), needed: neededMemory(settings, connectionKindOf(settings)) };
  if (memory.limit < memory.needed) {
    warn(
      'too little memory for the configured limits: give the gateway more memory, or lower BUFFERED_BYTES_MAX, CONNECTIONS_MAX or WORKERS',
      { ...memory, bufferedBytesMax, connectionsMax, workers },
    );
  }
  if (environment['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    warn(
      'NODE_TLS_REJECT_UNAUTHORIZED=0 has no effect: certificates of the backend, the issuer, Redis and the collector are always verified',
    );
  }
  const proxyWarning = findProxyWarning(settings, environment);
  if (proxyWarning !== undefined) warn(proxyWarning);
  for (const message of findMisspelt(environment)) warn(message);
  const unused = findUnusedVariables(environment);
  if (unused.length > 0) warn(`these variables of OpenTelemetry have no effect: ${unused.join(', ')}`);
  if (!['true', 'false', ''].includes(settings.otelSdkDisabled)) {
    warn('OTEL_SDK_DISABLED has no effect unless it is true');
  }
  if (settings.otelTracesExporter.some((each) => each !== 'otlp' && each !== 'none')) {
    warn('of OTEL_TRACES_EXPORTER only otlp and none have an effect');
  }
  return warnings;
}

// Words at the end of a variable that people forget, add or replace.
const lastWord = /_(?:MS|S|SEC|SECONDS|BYTES|MAX|FILE|PATH|URL|URI)$/;
// The shortest texts that are compared, in characters. Otherwise variables of other programs would be similar.
const nameLengthMin = 8;
const stemLengthMin = 6;

/** Returns a message for each variable that differs from a setting's in one letter, in underscores or in the last word. */
function findMisspelt(environment: Environment): string[] {
  const known = new Map(settingNames.map(variableOf).map((name) => [name, formsOf(name)]));
  return Object.keys(environment).flatMap((given) => {
    if (known.has(given) || given.startsWith('OTEL_') || given.length < nameLengthMin) return [];
    const written = formsOf(given.toUpperCase()).filter(({ length }) => length >= stemLengthMin);
    // One edit leaves the beginning or the end as it is. Counting edits takes time, and this runs at each start.
    const isClose = (one: string, other: string): boolean =>
      one === other ||
      (one.length >= nameLengthMin &&
        (one.slice(0, 3) === other.slice(0, 3) || one.slice(-3) === other.slice(-3)) &&
        countEdits(one, other) === 1);
    const meant = [...known].filter(([, forms]) => forms.some((form) => written.some((each) => isClose(each, form))));
    const names = joinWithOr(meant.map(([name]) => name));
    return meant.length === 0 ? [] : [`${given} is not a setting of the gateway: did you mean ${names}?`];
  });
}

// Returns a name without its underscores, and the same without the last word.
function formsOf(name: string): string[] {
  return [name, name.replace(lastWord, '')].map((each) => each.replace(/[_-]/g, '').replace(/IES$/, 'Y'));
}

// Further variables of OpenTelemetry, with values that describe what the gateway does anyway.
const followed: Readonly<Record<string, string>> = {
  OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/protobuf',
  OTEL_PROPAGATORS: 'tracecontext',
  OTEL_METRICS_EXPORTER: 'none',
  OTEL_LOGS_EXPORTER: 'none',
};
// The exporter reads these variables itself.
const exporterVariables = ['OTEL_EXPORTER_OTLP_COMPRESSION', 'OTEL_EXPORTER_OTLP_TRACES_COMPRESSION'];

function findUnusedVariables(environment: Environment): string[] {
  const used = [...settingNames.map(variableOf), ...exporterVariables];
  return Object.entries(environment)
    .filter(([name, value = '']) => /^OTEL_[A-Z0-9_]+$/.test(name) && value !== '' && value !== followed[name])
    .map(([name]) => name)
    .filter((name) => !used.includes(name))
    .toSorted();
}

// Node uses a proxy only if NODE_USE_ENV_PROXY is 1 at its start.
function findProxyWarning(settings: Settings, environment: Environment): string | undefined {
  const isNeeded = [settings.authJwksUrl, findCollector(settings)?.url ?? ''].some((url) => /^https:/i.test(url));
  const name = ['HTTPS_PROXY', 'https_proxy'].find((each) => (environment[each] ?? '') !== '');
  if (!isNeeded || name === undefined) return undefined;
  if (findProxyEnv(process.getBuiltinModule('node:https').globalAgent) !== undefined) return undefined;
  return environment['NODE_USE_ENV_PROXY'] === '1'
    ? `${name} has no effect: Node ${process.versions.node} cannot use a proxy. Use Node 22.21, 24.5 or later, or AUTH_JWKS_FILE`
    : `${name} has no effect: to fetch keys and export traces through this proxy, set NODE_USE_ENV_PROXY=1 in the environment`;
}

/** The soft limit of file descriptors (`ulimit -n`) of this process; Infinity if no limit is set or known. */
function readDescriptorLimit(): number {
  try {
    // Each line has name, soft limit, hard limit and unit (proc_pid_limits(5)).
    const [, soft = Infinity] = /^Max open files +(\d+) /m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? [];
    return Number(soft);
  } catch {
    // The system is not Linux.
    return Infinity;
  }
}

/**
 * The memory of a client connection that BUFFERED_BYTES_MAX does not count, in bytes, by protocol. `npm run memory`
 * measures it (docs/operating.md, Sizing).
 */
const connectionBytes = { plain: 16_000, tls: 140_000, http2: 200_000 } as const;

// Bytes of one process under load, with a reserve, but without what is counted and client connections.
const processBytes = 200_000_000;

type ConnectionKind = keyof typeof connectionBytes;

export function connectionKindOf({ tlsCertFile, http2 }: Pick<Settings, 'tlsCertFile' | 'http2'>): ConnectionKind {
  return http2 ? 'http2' : tlsCertFile === '' ? 'plain' : 'tls';
}

/** Bytes that all workers together need when the counted bytes and the connections are at their limits. */
export function neededMemory(
  { bufferedBytesMax, connectionsMax, workers }: Pick<Settings, 'bufferedBytesMax' | 'connectionsMax' | 'workers'>,
  kind: ConnectionKind,
): number {
  return Math.ceil((bufferedBytesMax * 4) / 3) + processBytes * workers + connectionBytes[kind] * connectionsMax;
}

/** The memory limit of the container (cgroup), or else the memory of the machine, in bytes. */
export function readMemoryLimit(): number {
  // Without a limit, `constrainedMemory` returns 0, or a number of bytes larger than any machine has.
  return Math.min(process.constrainedMemory() || Infinity, totalmem());
}
