// The settings table: names, defaults, precedence and errors [D32].

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
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
import { type Command, settingGroups } from '../../packages/command/settings/groups.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { findCollector } from '../../packages/command/settings/trace-settings.ts';
import { findWarnings } from '../../packages/command/settings/warnings.ts';
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

/** The problems with these flags and variables. */
function problemsOf(
  flags: Partial<Record<SettingName, string>>,
  environment: Record<string, string> = {},
  command: Command = 'dev',
): readonly string[] {
  try {
    resolveSettings(command, flags, environment);
    return [];
  } catch (error) {
    assert.ok(error instanceof SettingsError);
    return error.problems;
  }
}

function plain(value: unknown): unknown {
  return value instanceof URL || Array.isArray(value) ? String(value) : value;
}

describe('names and defaults', () => {
  const { settings, sources } = resolveSettings('serve', {}, {});

  test('the table has exactly the expected settings', () => assert.deepEqual(settingNames, names));

  for (const name of names) {
    const [flag, variable] = [`--${kebab(name)}`, kebab(name).replaceAll('-', '_').toUpperCase()];
    test(`${name}: flag ${flag}, variable ${variable}, default "${String(defaults[name])}", also if the variable is empty`, () => {
      assert.deepEqual([flagOf(name), variableOf(name)], [flag, variable]);
      assert.deepEqual([plain(settings[name]), sources[name]], [defaults[name], 'default']);
      const empty = resolveSettings('check', {}, { [variable]: '' });
      assert.deepEqual(
        [plain(empty.settings[name]), empty.sources[name]],
        [defaults[name], 'default'],
        'empty is unset',
      );
    });
  }

  test('settings and their sources are frozen', () => {
    assert.ok(Object.isFrozen(settings));
    assert.ok(Object.isFrozen(sources));
  });
});

test('each command has exactly the expected settings', () => {
  const gatewayAlone = names.filter((name) => !name.startsWith('embedded'));
  // `dev` has an embedded backend and one process.
  const notInDev = /^(?:backend(?:Url|CaFile|CertFile|KeyFile|ServerName)|workers|settingsFile)$/;
  for (const [command, expected] of Object.entries({
    serve: gatewayAlone,
    check: gatewayAlone,
    openapi: gatewayAlone,
    health: ['adminHost', 'adminPort', 'settingsFile'],
    dev: names.filter((name) => !notInDev.test(name)),
    backend: ['logLevel', 'logFormat', 'embeddedBackendHost', 'embeddedBackendPort', 'embeddedBackendDatabase'],
  })) {
    assert.deepEqual(settingsOf(command as Command), expected, command);
  }
});

describe('groups', () => {
  test('each setting of a command is in exactly one group, and the groups are in the order of settingGroups', () => {
    for (const command of ['serve', 'dev', 'backend', 'check', 'openapi', 'health'] as const) {
      const grouped = groupSettings(settingsOf(command));
      assert.deepEqual(grouped.flatMap(([, names]) => names).toSorted(), settingsOf(command).toSorted());
      const order = Object.keys(settingGroups);
      assert.deepEqual(
        grouped.map(([group]) => group),
        order.filter((group) => grouped.some(([each]) => each === group)),
      );
    }
  });

  test('an empty group is left out', () => {
    assert.deepEqual(groupSettings(['logLevel', 'host', 'logFormat']), [
      ['listening', ['host']],
      ['log', ['logLevel', 'logFormat']],
    ]);
  });
});

describe('docs', () => {
  for (const [command, value] of [
    ['serve', false],
    ['check', false],
    ['openapi', false],
    ['dev', true],
  ] as const) {
    test(`the setting DOCS is ${value ? 'on' : 'off'} in ${command} by default`, () => {
      const { settings, sources } = resolveSettings(command, {}, { DOCS: '' });
      assert.equal(settings.docs, value);
      assert.equal(sources.docs, 'default');
      assert.equal(defaultOf('docs', command), String(value));
      assert.equal(resolveSettings(command, {}, { DOCS: String(!value) }).settings.docs, !value);
    });
  }

  test('on and off have three spellings each', () => {
    for (const text of ['true', 'on', '1']) {
      assert.equal(resolveSettings('serve', { docs: text }, {}).settings.docs, true);
    }
    for (const text of ['false', 'off', '0']) {
      assert.equal(resolveSettings('dev', { docs: text }, {}).settings.docs, false);
    }
  });

  test('every flag needs a value, except the flags of switches', () => {
    const switches = settingNames.filter((name) => rowOf(name).kind.isSwitch);
    assert.deepEqual(switches, ['corsCredentials', 'http2', 'docs', 'logClient']);
  });
});

test('HTTP/2 needs Node 26 [D39]', () => {
  for (const version of ['26.0.0', '26.10.0', '27.0.0-nightly', '100.1.2']) {
    assert.equal(findHttp2Problem(version), undefined);
  }
  for (const version of ['22.19.0', '24.21.0', '25.9.0', '3.26.26']) {
    assert.match(findHttp2Problem(version) ?? '', new RegExp(`needs Node 26 or newer, but this is Node ${version}:`));
  }
});

describe('secrets', () => {
  test('the address of the backend is shown as its origin and path', () => {
    const { settings } = resolveSettings('serve', {}, { BACKEND_URL: 'http://a:80/base' });
    assert.equal(showValue('backendUrl', settings), 'http://a/base');
    assert.equal(rowOf('backendUrl').kind.show?.('http://u:p@a/base?q#f'), 'http://a/base');
  });

  const headers = { OTEL_EXPORTER_OTLP_HEADERS: 'x-key=a-secret' };

  test("the collector's headers are never shown [D49]", () => {
    const resolved = resolveSettings('serve', {}, headers);
    const other = resolveSettings('serve', {}, { OTEL_EXPORTER_OTLP_HEADERS: 'x-key=another-secret' });
    assert.equal(showValue('otelExporterOtlpHeaders', resolved.settings), '(not shown)');
    assert.equal(showValue('otelExporterOtlpHeaders', resolveSettings('serve', {}, {}).settings), '');
    const shown = [describeSettings(resolved), describeChanges(resolved.settings, other.settings)];
    assert.match(JSON.stringify(shown), /"otelExporterOtlpHeaders":"\(not shown\) → \(not shown\)"/);
    assert.doesNotMatch(JSON.stringify(shown), /secret"/);
    assert.doesNotMatch(problemsOf({}, { OTEL_EXPORTER_OTLP_HEADERS: 'a secret' }, 'serve').join(), /secret/);
  });
});

test('the help has a placeholder for each kind of value', () => {
  const placeholders = {
    ...{ port: 'port', inFlightMax: 'number', connectionsMax: 'number', requestBytesMax: 'bytes', idleTimeoutMs: 'ms' },
    ...{
      allowedHosts: 'names',
      trustedProxies: 'ranges',
      corsOrigins: 'origins',
      backendUrl: 'url',
      tlsCertFile: 'file',
    },
  };
  for (const [name, word] of Object.entries(placeholders)) {
    assert.equal(rowOf(name as SettingName).kind.placeholder, word, name);
  }
});

describe('precedence', () => {
  for (const [what, flags, environment, port, source] of [
    ['a variable overrides the default', {}, { PORT: '8080' }, 8080, 'environment'],
    ['a flag overrides a variable', { port: '8081' }, { PORT: '8080' }, 8081, 'flag'],
    ['a flag overrides an invalid variable', { port: '8081' }, { PORT: 'x' }, 8081, 'flag'],
  ] as const) {
    test(what, () => {
      const { settings, sources } = resolveSettings('serve', flags, environment);
      assert.deepEqual([settings.port, sources.port], [port, source]);
    });
  }

  test('two listeners on the same host cannot have the same port', () => {
    for (const name of ['ADMIN_PORT', 'EMBEDDED_BACKEND_PORT']) {
      assert.deepEqual(problemsOf({}, { [name]: '3000' }), [
        `PORT and ${name} are the same: use a different port for each`,
      ]);
      assert.deepEqual(problemsOf({ port: '0' }, { [name]: '0' }), []);
      assert.deepEqual(problemsOf({ host: '127.0.0.1' }, { [name]: '3000' }), []);
    }
    assert.deepEqual(problemsOf({}, { EMBEDDED_BACKEND_PORT: '3000' }, 'serve'), []);
  });

  test('an empty flag is not treated as unset: an empty port is invalid', () =>
    assert.deepEqual(problemsOf({ port: '' }), ['--port is "", but must be a whole number from 0 to 65535']));

  test('variables of other commands are ignored', () => {
    const environment = { EMBEDDED_BACKEND_PORT: 'x', EMBEDDED_BACKEND_DATABASE: 'a.sqlite' };
    const { settings, sources } = resolveSettings('serve', {}, environment);
    assert.equal(settings.embeddedBackendPort, 5104);
    assert.equal(settings.embeddedBackendDatabase, ':memory:');
    assert.equal(sources.embeddedBackendDatabase, 'default');
  });
});

describe('the settings file', () => {
  const folder = useFolder();
  const file = join(folder, 'settings.env');

  test('overrides defaults, and is overridden by variables and flags', () => {
    writeFileSync(file, '# comment\nPORT=1001\nADMIN_PORT=1002\nHOST="gateway.internal"\nLOG_LEVEL=\n');
    const { settings, sources } = resolveSettings('serve', { settingsFile: file, adminPort: '2002' }, { PORT: '2001' });
    const expectedSettings = { port: 2001, adminPort: 2002, host: 'gateway.internal', logLevel: 'info' };
    assert.partialDeepStrictEqual(settings, expectedSettings);
    assert.deepEqual(
      [sources.port, sources.adminPort, sources.host, sources.logLevel, sources.settingsFile],
      ['environment', 'flag', 'file', 'default', 'flag'],
    );
  });

  test('may be named by a variable', () => {
    writeFileSync(file, 'PORT=1001\n');
    assert.equal(resolveSettings('serve', {}, { SETTINGS_FILE: file }).settings.port, 1001);
  });

  test('all its problems are listed: unknown settings and invalid values', () => {
    writeFileSync(
      file,
      'PROT=1\nSETTINGS_FILE=other\nbackend_url=http://a\nhttp://user:secret@a/?b=c\nPORT=x\nBACKEND_URL=http://user:secret@a\n',
    );
    assert.deepEqual(problemsOf({ settingsFile: file }, {}, 'serve'), [
      'PROT in the settings file is not a setting that a settings file can have: did you mean PORT?',
      'SETTINGS_FILE in the settings file is not a setting that a settings file can have',
      'the name (not shown) in line 3 of the settings file is not a setting that a settings file can have: did you mean BACKEND_URL?',
      'the name (not shown) in line 4 of the settings file is not a setting that a settings file can have',
      'PORT in the settings file is "x", but must be a whole number from 0 to 65535',
      'BACKEND_URL in the settings file must be an address without user name and password (the gateway sends no credentials), for instance http://localhost:5104',
    ]);
  });

  // Node ignores malformed lines, so a guard that the operator has configured would silently be off.
  test('a line that sets nothing, or is inside the quotes of another line, is reported as a problem, but is not shown', () => {
    writeFileSync(
      file,
      [
        '\n  # AUTH_ISSUER secret',
        'RATE_LIMIT 100/60s',
        'CORS_ORIGINS: https://secret.example',
        'export PORT=1001',
        '=secret',
        '  ADMIN_PORT = 1002\r',
        'HOST="a',
        'AUTH_ISSUER=https://secret.example',
        'LOG_LEVEL="info"',
      ].join('\n'),
    );
    assert.deepEqual(problemsOf({ settingsFile: file }, {}, 'serve'), [
      'line 3 of the settings file is not VARIABLE=value',
      'line 4 of the settings file is not VARIABLE=value',
      'line 6 of the settings file is not VARIABLE=value',
      'HOST in the settings file has a quotation mark that is not closed on its line',
    ]);
    writeFileSync(file, '\n# comment\r\n\t\r\n #=\nexport PORT=1001\r\n  ADMIN_PORT = 1002\n');
    const { settings } = resolveSettings('serve', { settingsFile: file }, {});
    assert.deepEqual([settings.port, settings.adminPort], [1001, 1002]);
  });

  // Node's own parser cuts values at each `#` and after a closing quotation mark.
  for (const [line, value] of [
    ['INSTANCE_NAME=api://items#v2', 'api://items#v2'],
    ['INSTANCE_NAME=#1', '#1'],
    ['INSTANCE_NAME=a#', 'a#'],
    ['INSTANCE_NAME=a # b', 'a'],
    ['INSTANCE_NAME=a\t#b', 'a'],
    ['INSTANCE_NAME=a#b #c #d', 'a#b'],
    ['INSTANCE_NAME= # nothing', ''],
    ['INSTANCE_NAME="a # b"', 'a # b'],
    [`INSTANCE_NAME='a"#b' # c`, 'a"#b'],
    ['INSTANCE_NAME=`a"\'` ', `a"'`],
    ['INSTANCE_NAME="" #', ''],
    ['INSTANCE_NAME=it\'s "so"', `it's "so"`],
    ['INSTANCE_NAME="C:\\new"', 'C:\\new'],
    ['INSTANCE_NAME=a=b', 'a=b'],
    ['\texport  INSTANCE_NAME \t= a b ', 'a b'],
    ['\ufeffINSTANCE_NAME=a', 'a'],
    ['\ufeff# comment\r\nINSTANCE_NAME=a\r\n', 'a'],
    ['INSTANCE_NAME="a"\r\nPORT=1', 'a'],
    ['INSTANCE_NAME=\u00fcber', '\u00fcber'],
  ] as const) {
    test(`${JSON.stringify(line)} sets ${JSON.stringify(value)} [D32]`, () => {
      writeFileSync(file, line);
      assert.equal(resolveSettings('serve', { settingsFile: file }, {}).settings.instanceName, value);
    });
  }

  for (const [content, ...problems] of [
    ['INSTANCE_NAME="a"b', 'INSTANCE_NAME in the settings file has text after its closing quotation mark'],
    ['INSTANCE_NAME="a"#b', 'INSTANCE_NAME in the settings file has text after its closing quotation mark'],
    [`INSTANCE_NAME="a\\"b"`, 'INSTANCE_NAME in the settings file has text after its closing quotation mark'],
    ["INSTANCE_NAME='a", 'INSTANCE_NAME in the settings file has a quotation mark that is not closed on its line'],
    ['INSTANCE_NAME="a # "b', 'INSTANCE_NAME in the settings file has text after its closing quotation mark'],
    [
      'PORT=1\n\nHTTP2=false\nPORT=1\nHTTP2=true',
      'PORT is in the settings file twice, in lines 1 and 4: remove one of them',
      'HTTP2 is in the settings file twice, in lines 3 and 5: remove one of them',
      'HTTP2 needs TLS_CERT_FILE and TLS_KEY_FILE: without them clients use plain http',
    ],
    ['PORT=1\rADMIN_PORT=2', 'line 1 of the settings file is not VARIABLE=value'],
    ['PORT=1\u001b', 'line 1 of the settings file is not VARIABLE=value'],
  ] as const) {
    test(`${JSON.stringify(content)} is refused [D32]`, () => {
      writeFileSync(file, content);
      assert.deepEqual(problemsOf({ settingsFile: file }, {}, 'serve'), problems);
    });
  }

  for (const [what, bytes] of [
    ['ISO 8859-1', Buffer.from('INSTANCE_NAME=\u00fcber', 'latin1')],
    ['UTF-16', Buffer.from('\ufeffPORT=1\n', 'utf16le')],
    ['UTF-16 without a mark', Buffer.from('PORT=1\n', 'utf16le')],
    ['a NUL byte', Buffer.from('PORT=1\n\0\n')],
  ] as const) {
    test(`a file with ${what} is refused [D32]`, () => {
      writeFileSync(file, bytes);
      const problem = `SETTINGS_FILE is ${JSON.stringify(file)}, which is not UTF-8 text`;
      assert.deepEqual(problemsOf({ settingsFile: file }, {}, 'serve'), [problem]);
    });
  }

  test('a missing file and a folder are problems', () => {
    for (const [name, code] of [
      [join(folder, 'missing.env'), 'ENOENT'],
      [folder, 'EISDIR'],
    ] as const) {
      const problem = `SETTINGS_FILE is ${JSON.stringify(name)}, which cannot be read (${code})`;
      assert.deepEqual(problemsOf({ settingsFile: name }, {}, 'serve'), [problem]);
    }
  });
});

test('WORKERS=auto is one worker for each core', () =>
  assert.equal(resolveSettings('serve', { workers: 'auto' }, {}).settings.workers, availableParallelism()));

test('words may be in any case [D32]', () => {
  const environment = { LOG_LEVEL: 'WARN', ITEM_ID_PARSING: 'Whole', LOG_CLIENT: 'False', DOCS: 'ON', WORKERS: 'AUTO' };
  const { settings } = resolveSettings('serve', { otelTracesSampler: 'ALWAYS_ON' }, environment);
  assert.partialDeepStrictEqual(settings, {
    logLevel: 'warn',
    itemIdParsing: 'whole',
    logClient: false,
    docs: true,
    workers: availableParallelism(),
    otelTracesSampler: 'always_on',
  });
});

describe('traces', () => {
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
    test(`${JSON.stringify(given)} exports to ${url ?? 'nothing'} [D49]`, () => {
      const { settings } = resolveSettings('serve', given, {});
      const collector = findCollector(settings);
      assert.deepEqual([collector?.url, collector?.headers], [url, headers]);
    });
  }

  const ratios = ['', '-0.1', '1.1', '1e-3', '10%', 'Infinity', '.', 'endpoint=http://localhost:14250'];
  for (const sampler of ['always_on', 'always_off', 'parentbased_always_on', 'parentbased_always_off', '']) {
    test(`${sampler || 'the default sampler'} ignores OTEL_TRACES_SAMPLER_ARG [D49]`, () => {
      for (const ratio of ratios) {
        const environment = { OTEL_TRACES_SAMPLER: sampler };
        const { settings, sources } = resolveSettings('serve', { otelTracesSamplerArg: ratio }, environment);
        assert.deepEqual([settings.otelTracesSamplerArg, sources.otelTracesSamplerArg], [1, 'default'], ratio);
      }
      const { sources } = resolveSettings('serve', {}, { OTEL_TRACES_SAMPLER_ARG: '0.5' });
      assert.equal(sources.otelTracesSamplerArg, 'environment');
    });
  }

  for (const sampler of ['traceidratio', 'parentbased_traceidratio']) {
    test(`${sampler} needs a ratio in OTEL_TRACES_SAMPLER_ARG`, () => {
      for (const ratio of ratios) {
        const problems = problemsOf({ otelTracesSampler: sampler, otelTracesSamplerArg: ratio });
        assert.equal(problems.length, 1, ratio);
        assert.match(problems[0] ?? '', /^--otel-traces-sampler-arg .*must be a number from 0 to 1$/);
      }
    });
  }

  const warningsOf = (environment: Record<string, string>): string[] => {
    const { settings } = resolveSettings('serve', {}, environment);
    return findWarnings(settings, environment)
      .map(({ message }) => message)
      .filter((message) => message.includes('OTEL_'));
  };

  test('a warning names the variables of OpenTelemetry that have no effect [D49]', () => {
    const unused = {
      OTEL_EXPORTER_OTLP_TIMEOUT: '1',
      OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
      OTEL_PROPAGATORS: 'b3',
      OTEL_METRICS_EXPORTER: 'otlp',
      OTEL_BSP_SCHEDULE_DELAY: '5',
      OTEL_SOMETHING_NEW: 'secret',
    };
    const names = Object.keys(unused).toSorted().join(', ');
    assert.deepEqual(warningsOf(unused), [`these variables of OpenTelemetry have no effect: ${names}`]);
    assert.deepEqual(warningsOf({ OTEL_SDK_DISABLED: '1' }), ['OTEL_SDK_DISABLED has no effect unless it is true']);
    assert.deepEqual(warningsOf({ OTEL_TRACES_EXPORTER: 'zipkin' }), [
      'of OTEL_TRACES_EXPORTER only otlp and none have an effect',
    ]);
  });

  test('variables that have an effect, that are empty, or that ask for what the gateway does anyway cause no warning', () => {
    const settings = settingNames.map(variableOf).filter((name) => name.startsWith('OTEL_'));
    const used = [...settings, 'OTEL_EXPORTER_OTLP_COMPRESSION', 'OTEL_EXPORTER_OTLP_TRACES_COMPRESSION'];
    for (const name of used) {
      const { settings: valid } = resolveSettings('serve', {}, {});
      assert.deepEqual(
        findWarnings(valid, { [name]: 'x' }).filter(({ message }) => message.includes(name)),
        [],
      );
    }
    const others = { OTEL_PROPAGATORS: 'tracecontext', OTEL_METRICS_EXPORTER: 'none', OTEL_LOGS_EXPORTER: 'none' };
    assert.deepEqual(warningsOf({ ...others, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf', OTEL_BSP_TIMEOUT: '' }), []);
  });
});

describe('a warning names environment variables that are misspelt settings', () => {
  const misspeltIn = (environment: Record<string, string>): string[] =>
    findWarnings(resolveSettings('serve', {}, {}).settings, environment)
      .map(({ message }) => message)
      .filter((message) => message.includes('no settings'));

  for (const [given, meant] of [
    ['RATELIMIT', 'RATE_LIMIT'],
    ['rate_limit', 'RATE_LIMIT'],
    ['BACKEND-URL', 'BACKEND_URL'],
    ['BACKEND_ULR', 'BACKEND_URL'],
    ['BACKEND_URI', 'BACKEND_URL'],
    ['BACKEND_TIMEOUT', 'BACKEND_TIMEOUT_MS'],
    ['BACKEND_TIMEOUT_SECONDS', 'BACKEND_TIMEOUT_MS'],
    ['BACKEND_TIMOUT', 'BACKEND_TIMEOUT_MS'],
    ['IN_FLIGHT', 'IN_FLIGHT_MAX'],
    ['REQUEST_BYTES', 'REQUEST_BYTES_MAX'],
    ['TLS_CERT', 'TLS_CERT_FILE'],
    ['AUTH_JWKS', 'AUTH_JWKS_URL or AUTH_JWKS_FILE'],
    ['TRUSTED_PROXY', 'TRUSTED_PROXIES'],
    ['CORS_ORIGIN', 'CORS_ORIGINS'],
  ]) {
    test(`${given}: ${meant}`, () =>
      assert.deepEqual(misspeltIn({ HOST: 'h', [given ?? '']: 'secret', RATE_LIMIT_KEY: 'client' }), [
        `these environment variables are no settings and have no effect: ${given} (did you mean ${meant}?)`,
      ]));
  }

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
    assert.deepEqual(misspeltIn(Object.fromEntries(names.map((name) => [name, 'x']))), []);
  });
});

test('a reload logs a warning again only if the last settings did not have it', () => {
  const read = (otelSdkDisabled: string) => resolveSettings('serve', { otelSdkDisabled }, {}).settings;
  const logged: string[] = [];
  const logger = { warn: (_facts: object, message: string) => void logged.push(message) } as unknown as Logger;
  const warn = createWarner({ environment: {} } as Terminal, logger);
  const counts = ['yes', 'yes', 'false', 'yes'].map((value) => {
    warn(read(value));
    return logged.filter((message) => message.startsWith('OTEL_SDK_DISABLED')).length;
  });
  assert.deepEqual(counts, [1, 1, 1, 2]);
});

describe('problems', () => {
  test('all mistakes in an address are reported together', () => {
    assert.deepEqual(problemsOf({}, { BACKEND_URL: 'ftp://a/?q' }, 'serve'), [
      'BACKEND_URL must be an http or https address and an address without query and fragment, for instance http://localhost:5104',
    ]);
  });

  test('all problems are listed together, after the problems that were known before', () => {
    assert.throws(
      () => resolveSettings('serve', { port: 'x', logLevel: 'loud' }, { BACKEND_URL: 'ftp://a' }, ['known before']),
      (error) => {
        assert.ok(error instanceof SettingsError);
        assert.deepEqual(error.problems, [
          'known before',
          '--port is "x", but must be a whole number from 0 to 65535',
          'BACKEND_URL must be an http or https address, for instance http://localhost:5104',
          '--log-level is "loud", but must be one of debug, info, warn, error, fatal, silent',
        ]);
        assert.equal(error.message, error.problems.join('\n'));
        return true;
      },
    );
  });

  test('a problem that was known before is an error, even if there is no other problem', () =>
    assert.throws(() => resolveSettings('serve', {}, {}, ['known before']), SettingsError));

  test('the message about an invalid value begins with its flag or variable', () => {
    assert.match(problemsOf({ port: '-1' })[0] ?? '', /^--port is "-1"/);
    assert.match(problemsOf({}, { PORT: '-1' })[0] ?? '', /^PORT is "-1"/);
  });

  // prettier-ignore
  const bad: Partial<Record<SettingName, readonly string[]>> = {
    port: ['-1', '65536', '1.5', '1e3', '0x10', ' 80', '80 ', '+80', 'eighty', '８０', '9'.repeat(400)],
    workers: ['0', '257', 'all', '-1', '1.5'],
    inFlightMax: ['0', '1000001', '-5'],
    connectionsMax: ['0', '1000001', 'unlimited'],
    requestHeadBytesMax: ['1023', '1048577'],
    requestBytesMax: ['0', '2147483648', '10MiB', '10_485_760'],
    responseBytesMax: ['0', '2147483648'],
    bufferedBytesMax: ['0', '1099511627777', '1GiB'],
    backendTimeoutMs: ['0', '2147483648', '30s', 'Infinity', 'NaN'],
    shutdownDelayMs: ['-1', '2147483648'],
    itemIdParsing: ['all', ' whole'],
    logLevel: ['verbose'],
    logFormat: ['text'],
    docs: ['', 'yes', '2', ' true'],
    logClient: ['', 'no', '2'],
    trustedProxies: [
      'proxy.internal', '10.0.0.0/33', '10.0.0.1:80', '[::1]', '10.0.0.1 10.0.0.2', '*', '10.0.0.1,', ',::1', ',',
    ],
    corsOrigins: [
      'https://a/', 'https://a:443', 'https://*.example.com', 'null', 'https://u:pw@a', '*,http://a',
      'http://a,,http://b', '*,',
    ],
    corsCredentials: ['', 'yes'],
    otelExporterOtlpEndpoint: ['localhost:4318', 'ftp://a', 'http://user:secret@a', 'http://a/?key=secret', ' '],
    otelExporterOtlpHeaders: [
      'secret', '=secret', 'a b=secret', 'key=secret%0d%0ax:y', 'key=%zz', 'key=se\ncret', 'a=b,,c=d', 'a=b,',
    ],
    otelResourceAttributes: ['team', '=items', 'a=%zz', 'a=b,c', 'a=b,,c=d', ', a=b'],
    otelTracesSampler: ['on', 'jaeger_remote', ''],
    corsMaxAgeS: ['-1', '86401', '10m'],
    allowedHosts: ['items.example:3000', 'https://items.example', 'a;b', 'a,,b', 'a, ,b'],
    adminAllowedHosts: ['a:80', 'http://a', '*.example.com', 'a b', '[::1]', 'a,,.', 'ä'],
    instanceName: ['a\nb', 'a\u001bb', 'a\u202eb', 'a\u2028b', 'x'.repeat(65)],
    host: ['', '[::1]', 'a b', 'http://localhost', 'a/b', 'localhost:3000', 'user:pw', '::1::', 'a%eth0'],
    embeddedBackendDatabase: ['', ' '],
    backendUrl: [
      'localhost', 'localhost:5104', '//localhost:5104', 'ftp://localhost', 'http://', 'http://a:99999',
      'http://user@localhost', 'http://user:secret@localhost', 'http://localhost?', 'http://localhost/?a=1',
      'http://localhost/#', 'http://localhost/#a', 'http://localhost/%3Ftoken', 'http://localhost/a%23b',
      'http://a,http://b', 'http://a;http://b', 'http://a:80;b:80', 'http://a/ ; https://b',
    ],
  };
  for (const [name, values] of Object.entries(bad) as [SettingName, readonly string[]][]) {
    const command = name === 'backendUrl' || name === 'workers' ? 'serve' : 'dev';
    for (const value of values) {
      test(`${name} refuses ${JSON.stringify(value.slice(0, 40))}`, () => {
        const problems = problemsOf({ [name]: value }, {}, command);
        assert.equal(problems.length, 1);
        // Values that may contain a password are not shown.
        const isShown =
          !['backendUrl', 'otelExporterOtlpEndpoint', 'otelExporterOtlpHeaders'].includes(name) &&
          value.length <= 100 &&
          !/[:@%?=#[&;\p{C}\u2028]/u.test(value);
        const shown = isShown ? `is ${JSON.stringify(value)}, but ` : '';
        assert.ok(problems[0]?.startsWith(`${flagOf(name)} ${shown}must be `), problems.join());
      });
    }
  }

  test('backendServerName is a host name, also with a dot at its end, as in BACKEND_URL', () => {
    const backendUrl = 'https://localhost.';
    for (const backendServerName of ['items.internal', 'localhost', 'localhost.', 'a.b.']) {
      assert.deepEqual(problemsOf({ backendUrl, backendServerName }), []);
    }
    for (const backendServerName of ['http://a', 'a:443', '127.0.0.1', '127.0.0.1.', '.', 'a..']) {
      assert.match(
        problemsOf({ backendUrl, backendServerName }).join('\n'),
        /^--backend-server-name .*must be a host name/,
      );
    }
  });

  // prettier-ignore
  const good: Partial<Record<SettingName, readonly string[]>> = {
    port: ['0', '1', '65535', '0080'],
    workers: ['1', '256'],
    inFlightMax: ['1', '1000000'],
    connectionsMax: ['1', '1000000'],
    requestBytesMax: ['1', '2147483647'],
    bufferedBytesMax: ['1', '1099511627776'],
    backendTimeoutMs: ['1', '2147483647'],
    shutdownDelayMs: ['0', '2147483647'],
    itemIdParsing: ['leading', 'whole'],
    logLevel: ['debug', 'info', 'warn', 'error', 'fatal', 'silent'],
    logFormat: ['auto', 'pretty', 'json'],
    corsOrigins: ['*', 'https://app.example.com', 'https://a,http://localhost:5173,capacitor://localhost'],
    otelExporterOtlpEndpoint: ['', 'http://localhost:4318/', 'https://otel.example/base'],
    otelExporterOtlpHeaders: ['', 'x-key=secret', 'a=b%3D%2Cc, d=', 'a=b=c'],
    otelTracesExporter: ['otlp', 'none', 'otlp,console', 'zipkin', ''],
    otelResourceAttributes: ['', 'deployment.environment.name=staging', 'a=b%2Cc,d='],
    otelServiceName: ['items', ''],
    otelTracesSampler: ['traceidratio', 'always_off'],
    otelTracesSamplerArg: ['0', '1', '0.01', '.5', '1.0'],
    host: ['0.0.0.0', '::', '::1', 'fe80::1%eth0', 'gateway.internal', 'localhost'],
    embeddedBackendDatabase: [':memory:', 'items.sqlite', '/var/lib/a b/items.sqlite'],
    backendUrl: ['http://localhost', 'https://backend.internal', 'http://[::1]:5104', 'http://a:80/base/path/'],
  };
  for (const [name, values] of Object.entries(good) as [SettingName, readonly string[]][]) {
    for (const value of values) {
      test(`${name} accepts ${JSON.stringify(value)}`, () => {
        const { settings } = resolveSettings('serve', { [name]: value }, {});
        const wanted =
          typeof settings[name] === 'number'
            ? Number(value)
            : settings[name] instanceof URL
              ? new URL(value).href
              : value;
        assert.equal(plain(settings[name]), wanted);
      });
    }
  }

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
    // Settings of other commands are ignored.
    assert.deepEqual(problemsOf({}, { CORS_CREDENTIALS: 'true' }, 'backend'), []);
  });

  test('the message for an invalid number of bytes or an invalid time names the unit', () => {
    for (const [name, rule] of [
      ['port', 'from 0 to 65535'],
      ['inFlightMax', 'from 1 to 1000000'],
      ['requestBytesMax', 'from 1 to 2147483647 (bytes)'],
      ['idleTimeoutMs', 'from 1 to 2147483647 (milliseconds)'],
      ['corsMaxAgeS', 'from 0 to 86400 (seconds)'],
    ] as const) {
      const told = `${flagOf(name)} is "x", but must be a whole number ${rule}`;
      assert.deepEqual(problemsOf({ [name]: 'x' }), [told]);
    }
  });

  test('every timeout is at least 1 ms', () => {
    for (const name of settingNames.filter((each) => each.endsWith('TimeoutMs'))) {
      assert.equal(problemsOf({ [name]: '0' }).length, 1, name);
    }
  });
});
