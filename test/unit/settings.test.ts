// The settings table: names, defaults, precedence and errors [D32].

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import {
  defaultOf,
  describeChanges,
  describeSettings,
  flagOf,
  groupSettings,
  rowOf,
  type SettingName,
  settingNames,
  SettingsError,
  settingsOf,
  showValue,
  variableOf,
} from '../../packages/command/settings/settings.ts';
import type { Terminal } from '../../packages/command/commands/command.ts';
import { createWarner } from '../../packages/command/commands/running.ts';
import type { Logger } from '../../packages/command/log/log.ts';
import { type Command, commandNames, settingGroups } from '../../packages/command/settings/groups.ts';
import { findMissingPackages, isInstalled, resolveSettings } from '../../packages/command/settings/resolve.ts';
import { findCollector } from '../../packages/command/settings/trace-settings.ts';
import {
  connectionKindOf,
  findWarnings,
  neededMemory,
  readMemoryLimit,
} from '../../packages/command/settings/warnings.ts';
import { findHttp2Problem } from '../../packages/command/settings/tls-settings.ts';
import { useFolder } from '../helpers/suites.ts';

// Listed by hand, because operators depend on each name and default.
// prettier-ignore
const defaults: Readonly<Record<SettingName, unknown>> = {
  host: 'localhost', port: 3000, adminHost: 'localhost', adminPort: 9464, allowedHosts: '', adminAllowedHosts: '',
  trustedProxies: '', corsOrigins: '', corsCredentials: false, corsMaxAgeS: 600, rateLimit: '',
  rateLimitKey: 'address', rateLimitRedisUrl: '', rateLimitFallback: 'local', authIssuer: '', authAudience: '',
  authJwksUrl: '', authJwksFile: '', authAlgorithms: 'RS256,ES256', authClockSkewMs: 30_000, authTokenType: 'any',
  authScopes: '', authScopeClaim: 'scope', authJwksRefreshMs: 300_000, authJwksStaleMs: 86_400_000,
  backendIdentityHeader: '', backendUrl: 'http://localhost:5104/', tlsCertFile: '', tlsKeyFile: '',
  tlsMinVersion: '1.2', tlsClientCaFile: '', tlsReloadMs: 10_000, http2: false, backendCaFile: '', backendCertFile: '',
  backendKeyFile: '', backendServerName: '', workers: 1, settingsFile: '', itemIdParsing: 'leading',
  connectionsMax: 10_000, requestHeadBytesMax: 16 * 1024, requestBytesMax: 10 * 1024 * 1024,
  responseBytesMax: 64 * 1024 * 1024, inFlightMax: 1024, bufferedBytesMax: 1024 * 1024 * 1024,
  backendTimeoutMs: 30_000, backendConnectTimeoutMs: 5_000, backendIdleTimeoutMs: 4_000,
  backendConnectionAgeMaxMs: 600_000, requestHeadersTimeoutMs: 10_000, requestTimeoutMs: 30_000,
  replyStallTimeoutMs: 60_000, idleTimeoutMs: 72_000, instanceName: '', docs: false, shutdownDelayMs: 0,
  shutdownTimeoutMs: 10_000, logLevel: 'info', logFormat: 'auto', logClient: true, otelSdkDisabled: 'false',
  otelTracesExporter: 'otlp', otelExporterOtlpEndpoint: '', otelExporterOtlpHeaders: '',
  otelExporterOtlpTracesEndpoint: '', otelExporterOtlpTracesHeaders: '', otelServiceName: '',
  otelResourceAttributes: '', otelTracesSampler: 'parentbased_always_on', otelTracesSamplerArg: 1,
  embeddedBackendHost: 'localhost', embeddedBackendPort: 5104, embeddedBackendDatabase: ':memory:',
};
const names = Object.keys(defaults) as SettingName[];
const kebab = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

type Flags = Partial<Record<SettingName, string>>;
type Environment = Record<string, string>;

/** The problems with these flags and variables. */
function problemsOf(flags: Flags, environment: Environment = {}, command: Command = 'dev'): readonly string[] {
  try {
    resolveSettings(command, flags, environment);
    return [];
  } catch (error) {
    assert.ok(error instanceof SettingsError);
    return error.problems;
  }
}

const plain = (value: unknown): unknown => (value instanceof URL || Array.isArray(value) ? String(value) : value);

describe('the table', () => {
  test('it has exactly the expected settings, with these flags, variables and defaults; an empty variable is unset', () => {
    assert.deepEqual(settingNames, names);
    const { settings, sources } = resolveSettings('serve', {}, {});
    assert.ok(Object.isFrozen(settings) && Object.isFrozen(sources));
    for (const name of names) {
      const variable = kebab(name).replaceAll('-', '_').toUpperCase();
      assert.deepEqual([flagOf(name), variableOf(name)], [`--${kebab(name)}`, variable]);
      for (const resolved of [{ settings, sources }, resolveSettings('check', {}, { [variable]: '' })]) {
        const found = [plain(resolved.settings[name]), resolved.sources[name]];
        assert.deepEqual(found, [defaults[name], 'default'], name);
      }
    }
  });

  test('each command has exactly the expected settings, each in one group, in the order of the groups', () => {
    const gatewayAlone = names.filter((name) => !name.startsWith('embedded'));
    // `dev` has an embedded backend and one process.
    const notInDev = /^(?:backend(?:Url|CaFile|CertFile|KeyFile|ServerName)|workers|settingsFile)$/;
    const expected: Record<Command, string[]> = {
      serve: gatewayAlone,
      dev: names.filter((name) => !notInDev.test(name)),
      backend: ['logLevel', 'logFormat', 'embeddedBackendHost', 'embeddedBackendPort', 'embeddedBackendDatabase'],
      check: gatewayAlone,
      openapi: gatewayAlone,
      health: ['adminHost', 'adminPort', 'settingsFile'],
    };
    for (const command of commandNames) {
      assert.deepEqual(settingsOf(command), expected[command], command);
      const grouped = groupSettings(settingsOf(command));
      assert.deepEqual(grouped.flatMap(([, members]) => members).toSorted(), settingsOf(command).toSorted());
      const groups = grouped.map(([group]) => group);
      assert.deepEqual(
        groups,
        Object.keys(settingGroups).filter((group) => groups.some((each) => each === group)),
      );
    }
    assert.deepEqual(groupSettings(['logLevel', 'host', 'logFormat']), [
      ['listening', ['host']],
      ['log', ['logLevel', 'logFormat']],
    ]);
  });

  test('DOCS is on by default only in dev; on and off have three spellings each; only switches need no value', () => {
    for (const command of ['serve', 'check', 'openapi', 'dev'] as const) {
      const { settings, sources } = resolveSettings(command, {}, { DOCS: '' });
      assert.deepEqual([settings.docs, sources.docs], [command === 'dev', 'default']);
      assert.equal(defaultOf('docs', command), String(command === 'dev'));
    }
    for (const [index, docs] of ['true', 'on', '1', 'false', 'off', '0'].entries()) {
      assert.equal(resolveSettings(index < 3 ? 'serve' : 'dev', { docs }, {}).settings.docs, index < 3);
    }
    const switches = settingNames.filter((name) => rowOf(name).kind.isSwitch);
    assert.deepEqual(switches, ['corsCredentials', 'http2', 'docs', 'logClient']);
  });

  test('the help has a placeholder for each kind of value', () => {
    const rows = ['port', 'inFlightMax', 'requestBytesMax', 'idleTimeoutMs', 'allowedHosts', 'trustedProxies'] as const;
    const words = [...rows, 'corsOrigins' as const, 'backendUrl' as const, 'tlsCertFile' as const];
    const expected = ['port', 'number', 'bytes', 'ms', 'names', 'ranges', 'origins', 'url', 'file'];
    assert.deepEqual(
      words.map((name) => rowOf(name).kind.placeholder),
      expected,
    );
  });
});

test('HTTP/2 needs Node 26 [D39]', () => {
  const good = ['26.0.0', '26.10.0', '27.0.0-nightly', '100.1.2'];
  assert.ok(good.every((version) => findHttp2Problem(version) === undefined));
  for (const version of ['22.19.0', '24.21.0', '25.9.0', '3.26.26']) {
    assert.match(findHttp2Problem(version) ?? '', new RegExp(`needs Node 26 or newer, but this is Node ${version}:`));
  }
});

test("the backend's address is shown as origin and path, the headers for the collector never [D49]", () => {
  const { settings } = resolveSettings('serve', {}, { BACKEND_URL: 'http://a:80/base' });
  assert.equal(showValue('backendUrl', settings), 'http://a/base');
  assert.equal(rowOf('backendUrl').kind.show?.('http://u:p@a/base?q#f'), 'http://a/base');
  assert.equal(showValue('otelExporterOtlpHeaders', settings), '');
  const [resolved, other] = ['a', 'another'].map((name) =>
    resolveSettings('serve', {}, { OTEL_EXPORTER_OTLP_HEADERS: `x-key=${name}-secret` }),
  );
  assert.ok(resolved !== undefined && other !== undefined);
  const shown = JSON.stringify([describeSettings(resolved), describeChanges(resolved.settings, other.settings)]);
  assert.match(shown, /"otelExporterOtlpHeaders":"\(not shown\) → \(not shown\)"/);
  assert.doesNotMatch(shown, /secret"/);
  assert.doesNotMatch(problemsOf({}, { OTEL_EXPORTER_OTLP_HEADERS: 'a secret' }, 'serve').join(), /secret/);
});

describe('precedence', () => {
  test('a flag overrides a variable, even an invalid one; a variable overrides the default', () => {
    for (const [flags, environment, port, source] of [
      [{}, { PORT: '8080' }, 8080, 'environment'],
      [{ port: '8081' }, { PORT: '8080' }, 8081, 'flag'],
      [{ port: '8081' }, { PORT: 'x' }, 8081, 'flag'],
    ] as const) {
      const { settings, sources } = resolveSettings('serve', flags, environment);
      assert.deepEqual([settings.port, sources.port], [port, source]);
    }
  });

  test('two listeners on the same host cannot have the same port', () => {
    for (const name of ['ADMIN_PORT', 'EMBEDDED_BACKEND_PORT']) {
      const problem = `PORT and ${name} are the same: use a different port for each`;
      assert.deepEqual(problemsOf({}, { [name]: '3000' }), [problem]);
      assert.deepEqual(problemsOf({ port: '0' }, { [name]: '0' }), []);
      assert.deepEqual(problemsOf({ host: '127.0.0.1' }, { [name]: '3000' }), []);
    }
  });

  test('variables of other commands are ignored', () => {
    const environment = { EMBEDDED_BACKEND_PORT: 'x', EMBEDDED_BACKEND_DATABASE: 'a.sqlite' };
    const { settings, sources } = resolveSettings('serve', {}, environment);
    assert.deepEqual([settings.embeddedBackendPort, settings.embeddedBackendDatabase], [5104, ':memory:']);
    assert.equal(sources.embeddedBackendDatabase, 'default');
    assert.deepEqual(problemsOf({}, { EMBEDDED_BACKEND_PORT: '3000' }, 'serve'), []);
    assert.deepEqual(problemsOf({}, { CORS_CREDENTIALS: 'true' }, 'backend'), []);
  });

  test('words may be in any case, and WORKERS=auto is one worker for each core [D32]', () => {
    const environment = { LOG_LEVEL: 'WARN', ITEM_ID_PARSING: 'Whole', LOG_CLIENT: 'False', WORKERS: 'AUTO' };
    const { settings } = resolveSettings('serve', { otelTracesSampler: 'ALWAYS_ON' }, environment);
    const [workers, otelTracesSampler] = [availableParallelism(), 'always_on'];
    const words = { logLevel: 'warn', itemIdParsing: 'whole', logClient: false };
    assert.partialDeepStrictEqual(settings, { ...words, workers, otelTracesSampler });
  });
});

describe('the settings file', () => {
  const folder = useFolder();
  const file = join(folder, 'settings.env');
  const unclosed = 'has a quotation mark that is not closed on its line';
  const textAfter = 'INSTANCE_NAME in the settings file has text after its closing quotation mark';

  test('overrides defaults, and is overridden by variables and flags; a flag or a variable names it', () => {
    writeFileSync(file, '# comment\nPORT=1001\nADMIN_PORT=1002\nHOST="gateway.internal"\nLOG_LEVEL=\n');
    const { settings, sources } = resolveSettings('serve', { settingsFile: file, adminPort: '2002' }, { PORT: '2001' });
    const expected = { port: 2001, adminPort: 2002, host: 'gateway.internal', logLevel: 'info' };
    assert.partialDeepStrictEqual(settings, expected);
    const from = { port: 'environment', adminPort: 'flag', host: 'file', logLevel: 'default', settingsFile: 'flag' };
    assert.partialDeepStrictEqual(sources, from);
    assert.equal(resolveSettings('serve', {}, { SETTINGS_FILE: file }).settings.port, 1001);
  });

  // Node's own parser cuts values at each `#` and after a closing quotation mark.
  test('a line sets this value [D32]', () => {
    for (const [line, value] of [
      ['=api://items#v2', 'api://items#v2'], ['=#1', '#1'], ['=a#', 'a#'], ['=a # b', 'a'], ['=a\t#b', 'a'],
      ['=a#b #c #d', 'a#b'], ['= # nothing', ''], ['="a # b"', 'a # b'], [`='a"#b' # c`, 'a"#b'],
      ['=`a"\'` ', `a"'`], ['="" #', ''], ['=it\'s "so"', `it's "so"`], ['="C:\\new"', 'C:\\new'],
      ['=a=b', 'a=b'], ['="a"\r\nPORT=1', 'a'], ['=\u00fcber', '\u00fcber'],
      ['\texport  INSTANCE_NAME \t= a b ', 'a b'], ['\ufeffINSTANCE_NAME=a', 'a'],
      ['\ufeff# comment\r\nINSTANCE_NAME=a\r\n', 'a'], ['\n\t\r\n #=\nexport INSTANCE_NAME=a', 'a'],
    ] as const) {
      writeFileSync(file, line.startsWith('=') ? `INSTANCE_NAME${line}` : line);
      assert.equal(resolveSettings('serve', { settingsFile: file }, {}).settings.instanceName, value, line);
    } // prettier-ignore
  });

  // A guard that the operator has configured would otherwise silently be off.
  test('each line that sets nothing, or too much, is a problem, and its text is not shown', () => {
    const notSetting = 'is not a setting that a settings file can have';
    for (const [content, ...problems] of [
      [
        'PROT=1\nSETTINGS_FILE=other\nbackend_url=http://a\nhttp://user:secret@a/?b=c\nPORT=x\nBACKEND_URL=http://user:secret@a\n',
        `PROT in the settings file ${notSetting}: did you mean PORT?`,
        `SETTINGS_FILE in the settings file ${notSetting}`,
        `the name (not shown) in line 3 of the settings file ${notSetting}: did you mean BACKEND_URL?`,
        `the name (not shown) in line 4 of the settings file ${notSetting}`,
        'PORT in the settings file is "x", but must be a whole number from 0 to 65535',
        'BACKEND_URL in the settings file must be an address without user name and password (the gateway sends no credentials), for instance http://localhost:5104',
      ],
      [
        '\n  # AUTH_ISSUER secret\nRATE_LIMIT 100/60s\nCORS_ORIGINS: https://secret.example\nexport PORT=1001\n=secret\n  ADMIN_PORT = 1002\r\nHOST="a\nAUTH_ISSUER=https://secret.example\nLOG_LEVEL="info"',
        ...[3, 4, 6].map((line) => `line ${line} of the settings file is not VARIABLE=value`),
        `HOST in the settings file ${unclosed}`,
      ],
      ['INSTANCE_NAME="a"b', textAfter],
      ['INSTANCE_NAME="a"#b', textAfter],
      ['INSTANCE_NAME="a\\"b"', textAfter],
      ['INSTANCE_NAME="a # "b', textAfter],
      ["INSTANCE_NAME='a", `INSTANCE_NAME in the settings file ${unclosed}`],
      [
        'PORT=1\n\nHTTP2=false\nPORT=1\nHTTP2=true',
        'PORT is in the settings file twice, in lines 1 and 4: remove one of them',
        'HTTP2 is in the settings file twice, in lines 3 and 5: remove one of them',
        'HTTP2 needs TLS_CERT_FILE and TLS_KEY_FILE: without them clients use plain http',
      ],
      ['PORT=1\rADMIN_PORT=2', 'line 1 of the settings file is not VARIABLE=value'],
      ['PORT=1\u001b', 'line 1 of the settings file is not VARIABLE=value'],
    ] as const) {
      writeFileSync(file, content);
      assert.deepEqual(problemsOf({ settingsFile: file }, {}, 'serve'), problems, content);
    }
  });

  test('a file that is not UTF-8, a missing file and a folder are refused [D32]', () => {
    const problemOf = (path: string) => problemsOf({ settingsFile: path }, {}, 'serve');
    for (const bytes of [
      Buffer.from('INSTANCE_NAME=\u00fcber', 'latin1'),
      Buffer.from('\ufeffPORT=1\n', 'utf16le'),
      Buffer.from('PORT=1\n', 'utf16le'),
      Buffer.from('PORT=1\n\0\n'),
    ]) {
      writeFileSync(file, bytes);
      assert.deepEqual(problemOf(file), [`SETTINGS_FILE is ${JSON.stringify(file)}, which is not UTF-8 text`]);
    }
    for (const [path, code] of [
      [join(folder, 'missing.env'), 'ENOENT'],
      [folder, 'EISDIR'],
    ] as const) {
      const problem = `SETTINGS_FILE is ${JSON.stringify(path)}, which cannot be read (${code})`;
      assert.deepEqual(problemOf(path), [problem]);
    }
  });
});

describe('traces', () => {
  test('spans go to the address for traces, else to the general one with /v1/traces [D49]', () => {
    const general = { otelExporterOtlpEndpoint: 'http://general:4318/base/', otelExporterOtlpHeaders: 'key=general' };
    const own = { otelExporterOtlpTracesEndpoint: 'http://own:4318/here', otelExporterOtlpTracesHeaders: 'key=own' };
    for (const [given, url, headers] of [
      [{}, undefined, undefined],
      [general, 'http://general:4318/base/v1/traces', 'key=general'],
      [{ ...general, ...own }, 'http://own:4318/here', 'key=own'],
      [{ ...general, otelExporterOtlpTracesEndpoint: 'http://own:4318' }, 'http://own:4318/', 'key=general'],
      [{ ...general, otelExporterOtlpTracesHeaders: 'key=own' }, 'http://general:4318/base/v1/traces', 'key=own'],
      [own, 'http://own:4318/here', 'key=own'],
      [{ ...general, otelSdkDisabled: 'True' }, undefined, undefined],
      [{ ...general, otelSdkDisabled: '1' }, 'http://general:4318/base/v1/traces', 'key=general'],
      [{ ...own, otelTracesExporter: 'None' }, undefined, undefined],
      [{ ...own, otelTracesExporter: 'console' }, undefined, undefined],
      [{ ...own, otelTracesExporter: 'console, otlp' }, 'http://own:4318/here', 'key=own'],
    ] as const) {
      const collector = findCollector(resolveSettings('serve', given, {}).settings);
      assert.deepEqual([collector?.url, collector?.headers], [url, headers], JSON.stringify(given));
    }
  });

  test('only ratio samplers need a valid ratio in OTEL_TRACES_SAMPLER_ARG; the others ignore it [D49]', () => {
    for (const ratio of ['', '-0.1', '1.1', '1e-3', '10%', 'Infinity', '.', 'endpoint=http://localhost:14250']) {
      for (const sampler of ['always_on', 'always_off', 'parentbased_always_on', 'parentbased_always_off', '']) {
        const environment = { OTEL_TRACES_SAMPLER: sampler };
        const { settings, sources } = resolveSettings('serve', { otelTracesSamplerArg: ratio }, environment);
        assert.deepEqual([settings.otelTracesSamplerArg, sources.otelTracesSamplerArg], [1, 'default'], ratio);
      }
      for (const otelTracesSampler of ['traceidratio', 'parentbased_traceidratio']) {
        const [problem, ...others] = problemsOf({ otelTracesSampler, otelTracesSamplerArg: ratio });
        assert.match(problem ?? '', /^--otel-traces-sampler-arg .*must be a number from 0 to 1$/);
        assert.deepEqual(others, []);
      }
    }
    const { sources } = resolveSettings('serve', {}, { OTEL_TRACES_SAMPLER_ARG: '0.5' });
    assert.equal(sources.otelTracesSamplerArg, 'environment');
  });
});

describe('warnings', () => {
  const warningsOf = (environment: Environment, about: string, settings = resolveSettings('serve', {}, {}).settings) =>
    findWarnings(settings, environment)
      .map(({ message }) => message)
      .filter((message) => message.includes(about));

  test('one names the variables of OpenTelemetry that have no effect [D49]', () => {
    const unused = {
      ...{ OTEL_EXPORTER_OTLP_TIMEOUT: '1', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_PROPAGATORS: 'b3' },
      ...{ OTEL_METRICS_EXPORTER: 'otlp', OTEL_BSP_SCHEDULE_DELAY: '5', OTEL_SOMETHING_NEW: 'secret' },
    };
    const usual = { OTEL_PROPAGATORS: 'tracecontext', OTEL_METRICS_EXPORTER: 'none', OTEL_LOGS_EXPORTER: 'none' };
    const protocol = { OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf', OTEL_BSP_TIMEOUT: '' };
    for (const [environment, ...messages] of [
      [unused, `these variables of OpenTelemetry have no effect: ${Object.keys(unused).toSorted().join(', ')}`],
      [{ OTEL_SDK_DISABLED: '1' }, 'OTEL_SDK_DISABLED has no effect unless it is true'],
      [{ OTEL_TRACES_EXPORTER: 'zipkin' }, 'of OTEL_TRACES_EXPORTER only otlp and none have an effect'],
      [{ ...usual, ...protocol }],
    ] as const) {
      assert.deepEqual(warningsOf(environment, 'OTEL_', resolveSettings('serve', {}, environment).settings), messages);
    }
    const settings = settingNames.map(variableOf).filter((name) => name.startsWith('OTEL_'));
    const used = [...settings, 'OTEL_EXPORTER_OTLP_COMPRESSION', 'OTEL_EXPORTER_OTLP_TRACES_COMPRESSION'];
    assert.deepEqual(warningsOf(Object.fromEntries(used.map((each) => [each, 'x'])), 'OTEL_'), []);
  });

  test('one names environment variables that are misspelt settings', () => {
    for (const [given = '', meant] of [
      ['RATELIMIT', 'RATE_LIMIT'], ['LOGLEVEL', 'LOG_LEVEL'], ['rate_limit', 'RATE_LIMIT'], ['BACKEND-URL', 'BACKEND_URL'],
      ['BACKEND_ULR', 'BACKEND_URL'], ['BACKEND_URI', 'BACKEND_URL'], ['BACKEND_TIMEOUT', 'BACKEND_TIMEOUT_MS'],
      ['BACKEND_TIMEOUT_SECONDS', 'BACKEND_TIMEOUT_MS'], ['BACKEND_TIMOUT', 'BACKEND_TIMEOUT_MS'],
      ['IN_FLIGHT', 'IN_FLIGHT_MAX'], ['REQUEST_BYTES', 'REQUEST_BYTES_MAX'], ['TLS_CERT', 'TLS_CERT_FILE'],
      ['AUTH_JWKS', 'AUTH_JWKS_URL or AUTH_JWKS_FILE'], ['TRUSTED_PROXY', 'TRUSTED_PROXIES'],
      ['CORS_ORIGIN', 'CORS_ORIGINS'],
    ]) {
      const message = `${given} is not a setting of the gateway: did you mean ${meant}?`;
      assert.deepEqual(warningsOf({ HOST: 'h', [given]: 'secret', RATE_LIMIT_KEY: 'client' }, 'did you mean'), [message]);
    } // prettier-ignore
  });

  test('settings, and the variables of shells, npm, systemd, Docker and Kubernetes, are not misspelt', () => {
    const names = [
      ...settingNames.map(variableOf),
      ...'PATH HOME PWD USER SHELL TERM LANG TZ HOSTNAME HOSTTYPE LOGNAME DOCKER_HOST NO_PROXY HTTP_PROXY https_proxy'.split(' '),
      ...'SSL_CERT_FILE SSL_CERT_DIR NODE_OPTIONS NODE_ENV NODE_EXTRA_CA_CERTS NOTIFY_SOCKET LISTEN_FDS LOG_NAMESPACE'.split(' '),
      ...'npm_config_port npm_config_loglevel npm_package_name npm_lifecycle_event INIT_CWD REQUEST_METHOD REQUEST_URI'.split(' '),
      ...['WORK_ITEM_GATEWAY', 'GATEWAY', 'BACKEND', 'ADMIN', 'AUTH', 'RATE_LIMIT', 'REDIS', 'HOST', 'KUBERNETES'].flatMap((service) => [
        ...['SERVICE_HOST', 'SERVICE_PORT', 'SERVICE_PORT_HTTP', 'PORT', 'PORT_80_TCP'].map((part) => `${service}_${part}`),
        ...['PROTO', 'PORT', 'ADDR'].map((part) => `${service}_PORT_80_TCP_${part}`),
      ]),
    ]; // prettier-ignore
    assert.deepEqual(warningsOf(Object.fromEntries(names.map((name) => [name, 'x'])), 'did you mean'), []);
  });

  test('a reload logs a warning again only if the last settings did not have it', () => {
    const logged: string[] = [];
    const logger = { warn: (_facts: object, message: string) => void logged.push(message) } as unknown as Logger;
    const warn = createWarner({ environment: {} } as Terminal, logger);
    const counts = ['yes', 'yes', 'false', 'yes'].map((otelSdkDisabled) => {
      warn(resolveSettings('serve', { otelSdkDisabled }, {}).settings);
      return logged.filter((message) => message.startsWith('OTEL_SDK_DISABLED')).length;
    });
    assert.deepEqual(counts, [1, 1, 1, 2]);
  });

  test('the needed memory is 4/3 of BUFFERED_BYTES_MAX, 200 MB a process, and an amount for each connection by its protocol', () => {
    const limits = { bufferedBytesMax: 3_000_000, connectionsMax: 10_000, workers: 1 };
    for (const [tlsCertFile, http2, kind, bytes] of [
      ['', false, 'plain', 364_000_000],
      ['cert.pem', false, 'tls', 1_604_000_000],
      ['cert.pem', true, 'http2', 2_204_000_000],
    ] as const) {
      assert.equal(connectionKindOf({ tlsCertFile, http2 }), kind);
      assert.equal(neededMemory(limits, kind), bytes);
    }
    // Workers share the limits, so only the 200 MB a process are multiplied by the number of workers.
    assert.equal(neededMemory({ ...limits, workers: 4 }, 'plain'), 964_000_000);
    assert.equal(readMemoryLimit(), Math.min(process.constrainedMemory() || Infinity, totalmem()));
  });
});

test('each setting that lacks optional packages gets one message, which lists the packages to install', () => {
  const wanted = { otelExporterOtlpEndpoint: 'http://localhost:4318', logFormat: 'pretty' } as const;
  const unused = { otelExporterOtlpEndpoint: '', logFormat: 'auto' } as const;
  const advice = 'where work-item-gateway is installed, or leave the setting out';
  for (const [missing, messages] of [
    [findMissingPackages(wanted, () => true), []],
    [findMissingPackages(unused, () => false), []],
    // A clone of the repository has all packages.
    [findMissingPackages(wanted), []],
    [
      findMissingPackages(wanted, (name) => name === '@opentelemetry/api'),
      [
        `OTEL_EXPORTER_OTLP_ENDPOINT needs packages that are not installed: run \`npm install @opentelemetry/core @opentelemetry/exporter-trace-otlp-proto @opentelemetry/resources @opentelemetry/sdk-trace\` ${advice}`,
        `LOG_FORMAT needs a package that is not installed: run \`npm install pino-pretty\` ${advice}`,
      ],
    ],
  ] as const) {
    assert.deepEqual(missing, messages);
  }
  assert.equal(isInstalled('no-such-package-of-ours'), false);
});

describe('problems', () => {
  test('all are listed together, after those that were known before', () => {
    for (const [flags, environment, ...problems] of [
      [
        { port: 'x', logLevel: 'loud' },
        { BACKEND_URL: 'ftp://a' },
        '--port is "x", but must be a whole number from 0 to 65535',
        'BACKEND_URL must be an http or https address, for instance http://localhost:5104',
        '--log-level is "loud", but must be one of debug, info, warn, error, fatal, silent',
      ],
      [{}, {}],
    ] as const) {
      const all = ['known', ...problems];
      const expected = { name: 'SettingsError', problems: all, message: all.join('\n') };
      assert.throws(() => resolveSettings('serve', flags, environment, ['known']), expected);
    }
    assert.deepEqual(problemsOf({}, { BACKEND_URL: 'ftp://a/?q', PORT: '-1' }, 'serve'), [
      'PORT is "-1", but must be a whole number from 0 to 65535',
      'BACKEND_URL must be an http or https address and an address without query and fragment, for instance http://localhost:5104',
    ]);
  });

  /** The accepted and the refused values of a setting. */
  const values: Partial<Record<SettingName, readonly [good: readonly string[], bad: readonly string[]]>> = {
    port: [['0', '1', '65535', '0080'], ['', '-1', '65536', '1.5', '1e3', '0x10', ' 80', '80 ', '+80', 'eighty', '８０', '9'.repeat(400)]],
    workers: [['1', '256'], ['0', '257', 'all', '-1', '1.5']],
    inFlightMax: [['1', '1000000'], ['0', '1000001', '-5']],
    connectionsMax: [['1', '1000000'], ['0', '1000001', 'unlimited']],
    requestHeadBytesMax: [['1024', '1048576'], ['1023', '1048577']],
    requestBytesMax: [['1', '2147483647'], ['0', '2147483648', '10MiB', '10_485_760']],
    responseBytesMax: [['1', '2147483647'], ['0', '2147483648']],
    bufferedBytesMax: [['1', '1099511627776'], ['0', '1099511627777', '1GiB']],
    backendTimeoutMs: [['1', '2147483647'], ['0', '2147483648', '30s', 'Infinity', 'NaN']],
    shutdownDelayMs: [['0', '2147483647'], ['-1', '2147483648']],
    itemIdParsing: [['leading', 'whole'], ['all', ' whole']],
    logLevel: [['debug', 'info', 'warn', 'error', 'fatal', 'silent'], ['verbose']],
    logFormat: [['auto', 'pretty', 'json'], ['text']],
    docs: [[], ['', 'yes', '2', ' true']],
    logClient: [[], ['', 'no', '2']],
    trustedProxies: [['10.0.0.0/8'], ['proxy.internal', '10.0.0.1 10.0.0.2', '*', '10.0.0.1,', ',::1', ',']],
    corsOrigins: [
      ['*', 'https://app.example.com', 'https://a,http://localhost:5173,capacitor://localhost'],
      ['https://a/', 'https://a:443', 'https://*.example.com', 'null', 'https://u:pw@a', '*,http://a', 'http://a,,http://b', '*,'],
    ],
    corsCredentials: [[], ['', 'yes']],
    corsMaxAgeS: [[], ['-1', '86401', '10m']],
    otelExporterOtlpEndpoint: [
      ['', 'http://localhost:4318/', 'https://otel.example/base'],
      ['localhost:4318', 'ftp://a', 'http://user:secret@a', 'http://a/?key=secret', ' '],
    ],
    otelExporterOtlpHeaders: [
      ['', 'x-key=secret', 'a=b%3D%2Cc, d=', 'a=b=c'],
      ['secret', '=secret', 'a b=secret', 'key=secret%0d%0ax:y', 'key=%zz', 'key=se\ncret', 'a=b,,c=d', 'a=b,'],
    ],
    otelTracesExporter: [['otlp', 'none', 'otlp,console', 'zipkin', ''], []],
    otelResourceAttributes: [
      ['', 'deployment.environment.name=staging', 'a=b%2Cc,d='], ['team', '=items', 'a=%zz', 'a=b,c', 'a=b,,c=d', ', a=b'],
    ],
    otelServiceName: [['items', ''], []],
    otelTracesSampler: [['traceidratio', 'always_off'], ['on', 'jaeger_remote', '']],
    otelTracesSamplerArg: [['0', '1', '0.01', '.5', '1.0'], []],
    allowedHosts: [['items.example'], ['items.example:3000', 'https://items.example', 'a;b', 'a,,b', 'a, ,b']],
    adminAllowedHosts: [[], ['a:80', 'http://a', '*.example.com', 'a b', '[::1]', 'a,,.', 'ä']],
    instanceName: [['a b'], ['a\nb', 'a\u001bb', 'a\u202eb', 'a\u2028b', 'x'.repeat(65)]],
    host: [
      ['0.0.0.0', '::', '::1', 'fe80::1%eth0', 'gateway.internal', 'localhost'],
      ['', '[::1]', 'a b', 'http://localhost', 'a/b', 'localhost:3000', 'user:pw', '::1::', 'a%eth0'],
    ],
    embeddedBackendDatabase: [[':memory:', 'items.sqlite', '/var/lib/a b/items.sqlite'], ['', ' ']],
    backendUrl: [
      ['http://localhost', 'https://backend.internal', 'http://[::1]:5104', 'http://a:80/base/path/'],
      [
        'localhost', 'localhost:5104', '//localhost:5104', 'ftp://localhost', 'http://', 'http://a:99999', 'http://user@localhost',
        'http://user:secret@localhost', 'http://localhost?', 'http://localhost/?a=1', 'http://localhost/#', 'http://localhost/#a',
        'http://localhost/%3Ftoken', 'http://localhost/a%23b', 'http://a,http://b', 'http://a;http://b', 'http://a:80;b:80',
      ],
    ],
  }; // prettier-ignore
  for (const [name, [good, bad]] of Object.entries(values) as [SettingName, readonly [string[], string[]]][]) {
    test(`valid values of ${name} are accepted, others refused`, () => {
      for (const value of good) {
        const found = resolveSettings('serve', { [name]: value }, {}).settings[name];
        const expected = found instanceof URL ? new URL(value).href : typeof found === 'number' ? Number(value) : value;
        assert.equal(plain(found), expected);
      }
      const command = name === 'backendUrl' || name === 'workers' ? 'serve' : 'dev';
      // Values that may contain a password are not shown.
      const isSecret = ['backendUrl', 'otelExporterOtlpEndpoint', 'otelExporterOtlpHeaders'].includes(name);
      for (const value of bad) {
        const [problem = '', ...others] = problemsOf({ [name]: value }, {}, command);
        assert.deepEqual(others, []);
        const isShown = !isSecret && value.length <= 100 && !/[:@%?=#[&;\p{C}\u2028]/u.test(value);
        const shown = isShown ? `is ${JSON.stringify(value)}, but ` : '';
        assert.ok(problem.startsWith(`${flagOf(name)} ${shown}must be `), `${value}: ${problem}`);
      }
    });
  }

  test('backendServerName is a host name, also with a dot at its end, as in BACKEND_URL', () => {
    const backendUrl = 'https://localhost.';
    for (const backendServerName of ['items.internal', 'localhost', 'localhost.', 'a.b.']) {
      assert.deepEqual(problemsOf({ backendUrl, backendServerName }), []);
    }
    for (const backendServerName of ['http://a', 'a:443', '127.0.0.1', '127.0.0.1.', '.', 'a..']) {
      const problems = problemsOf({ backendUrl, backendServerName }).join('\n');
      assert.match(problems, /^--backend-server-name .*must be a host name/);
    }
  });

  test('CORS settings need origins, and credentials need named origins [D45]', () => {
    assert.deepEqual(problemsOf({}, { CORS_CREDENTIALS: 'true', CORS_MAX_AGE_S: '5' }), [
      'CORS_CREDENTIALS is true, but CORS_ORIGINS is empty',
      'CORS_MAX_AGE_S is set, but CORS_ORIGINS is empty',
    ]);
    assert.deepEqual(problemsOf({ corsOrigins: '*' }, { CORS_CREDENTIALS: 'true', PORT: 'x' }), [
      'PORT is "x", but must be a whole number from 0 to 65535',
      'CORS_CREDENTIALS cannot be true when CORS_ORIGINS is *: name the origins instead',
    ]);
    assert.deepEqual(problemsOf({}, { CORS_CREDENTIALS: 'false', CORS_MAX_AGE_S: '600' }), []);
  });

  test('the message for an invalid number has its limits and its unit; every timeout is at least 1 ms', () => {
    for (const [name, rule] of [
      ['port', 'from 0 to 65535'],
      ['inFlightMax', 'from 1 to 1000000'],
      ['requestBytesMax', 'from 1 to 2147483647 (bytes)'],
      ['idleTimeoutMs', 'from 1 to 2147483647 (milliseconds)'],
      ['corsMaxAgeS', 'from 0 to 86400 (seconds)'],
    ] as const) {
      const problem = `${flagOf(name)} is "x", but must be a whole number ${rule}`;
      assert.deepEqual(problemsOf({ [name]: 'x' }), [problem]);
    }
    for (const name of settingNames.filter((each) => each.endsWith('TimeoutMs'))) {
      assert.equal(problemsOf({ [name]: '0' }).length, 1, name);
    }
  });
});
