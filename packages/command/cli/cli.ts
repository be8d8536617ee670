// The command line: commands and flags in, exit code out. The flags are those of the settings table; every
// problem with them is told at once, and then nothing is started [D32].

import { Command as Program, CommanderError, Option } from 'commander';

import { contractFlags } from '../../contract-check/flags.ts';
import type { ContractWishes } from '../../contract-check/wishes.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { backendPath } from '../../core/operations.ts';
import { describeOrigins } from './cors-advice.ts';
import { hasFiles, type CertificateFiles, type CertificateUse } from '../certificates/certificates.ts';
import type { HeldSignals } from './held-signals.ts';
import { findInvocation, programName, type Invocation } from './invocation.ts';
import {
  listenForReloads,
  listenForStop,
  runUntilStopped,
  untilStopWanted,
  type StopRequest,
} from '../service/lifecycle.ts';
import { checkTokens } from './check-tokens.ts';
import { findPassedSockets, settingsOfSockets } from '../service/passed-sockets.ts';
import { openServiceManager, type ServiceManager } from '../service/service-manager.ts';
import { createLog, createLogger, type Log, type Logger } from '../log/log.ts';
import { addAdmin, startService, type Certificates, type WholeService } from '../service/service.ts';
import {
  changedSettings,
  defaultOf,
  describeChanges,
  isSwitch,
  placeholderOf,
  choicesOf,
  showInForce,
  showValue,
  withSockets,
} from '../settings/describe.ts';
import { settingGroups } from '../options/groups.ts';
import { resolveSettings } from '../settings/resolve.ts';
import { commandNames, type Command } from '../options/row.ts';
import {
  briefOf,
  flagOf,
  groupSettings,
  settingNames,
  SettingsError,
  settingsOf,
  variableOf,
  type ResolvedSettings,
  type SettingName,
  type Settings,
} from '../settings/settings.ts';
import { certificateFilesOf } from '../settings/tls-settings.ts';
import { joinWithOr, suggest } from '../../core/hosts/options/similar.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import { version } from '../../core/version.ts';
import { findWarnings } from '../settings/warnings.ts';
import { withoutEndSlashes } from '../../core/text/addresses.ts';

interface Terminal {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Of this process. */
  readonly pid: number;
  /** The file that Node was told to run. */
  readonly script: string | undefined;
  /** Its width; undefined where there is no terminal. */
  readonly columns: number | undefined;
  readonly signals: HeldSignals;
  /** Standard input, output or error was a terminal at the start. */
  readonly isInteractive: boolean;
  readonly write: (text: string) => void;
  readonly writeError: (text: string) => void;
}

/** What stands for the value of each in the help, undefined for a switch; and what it is, in a few words. */
type OwnFlags = Readonly<Record<string, { readonly placeholder: string | undefined; readonly help: string }>>;

/** The flags of its own that a command was given; true for one without a value. */
type GivenOwnFlags = Readonly<Record<string, string | true>>;

interface CommandEntry {
  readonly summary: string;
  readonly description: string;
  /** Flags that it is run with. */
  readonly examples: readonly string[];
  /** Flags of its own that are no settings, by their names. */
  readonly ownFlags?: OwnFlags;
  /** What is wrong with those that were given. */
  readonly findProblems?: (own: GivenOwnFlags) => readonly string[] | Promise<readonly string[]>;
  /** `resolveAgain` reads the settings anew: from the same flags, and a settings file that may have changed. */
  readonly run: (
    resolved: ResolvedSettings,
    terminal: Terminal,
    resolveAgain: () => ResolvedSettings,
    own: GivenOwnFlags,
  ) => Promise<number>;
}

const commands: Record<Command, CommandEntry> = {
  serve: {
    summary: 'run the gateway (the default)',
    description: 'Runs the gateway alone, as in production, in front of the backend at BACKEND_URL.',
    examples: [
      '--backend-url http://backend.internal:5104',
      '--host 0.0.0.0 --port 8080 --workers auto --log-level warn',
    ],
    run: (resolved, terminal, resolveAgain) =>
      withLog(resolved.settings, async (log) => {
        const manager = openServiceManager(terminal.environment, terminal.pid, log.logger);
        try {
          return await serve(resolved, terminal, resolveAgain, log, manager);
        } finally {
          manager.end();
        }
      }),
  },
  dev: {
    summary: 'run the gateway and the embedded backend together',
    description:
      'Runs the gateway and the embedded backend with a few sample work items: the whole thing with nothing else installed. For development and demonstrations; the embedded backend is no production store.',
    examples: ['', '--embedded-backend-database work-items.sqlite'],
    run: (resolved, terminal) => withLog(resolved.settings, (log) => runDev(resolved, terminal, log)),
  },
  backend: {
    summary: 'run the embedded backend alone',
    description:
      'Runs the embedded backend alone: a stand-in for a real work-item backend, for development, demonstrations and tests. It is no production store: one process, one SQLite file, no authentication.',
    examples: ['--embedded-backend-database work-items.sqlite'],
    run: (resolved, terminal) => withLog(resolved.settings, (log) => runBackend(resolved, terminal, log)),
  },
  check: {
    summary: 'check the settings and try the backend once',
    description:
      'Reads the settings as serve would, reports every problem, asks the backend once for its work items, fetches the keys of tokens where AUTH_ISSUER is set, and says what it found. Exits 0 when all is well and 1 when not; starts nothing. With --contract it tries instead which operations work with this backend, and exits 2 where flags or settings are wrong.',
    examples: [
      '--backend-url http://backend.internal:5104',
      '--contract --write --backend-url http://backend.internal:5104',
    ],
    ownFlags: contractFlags,
    findProblems: async (own) => (await readContractWishes(own)).problems,
    run: (resolved, terminal, _resolveAgain, own) =>
      '--contract' in own ? checkContract(resolved, terminal, own) : check(resolved, terminal),
  },
  openapi: {
    summary: 'print the OpenAPI document',
    description:
      'Prints the OpenAPI 3.1 document of what serve would offer with the same settings; starts nothing. A gateway with DOCS on serves the same at /openapi.json.',
    examples: ['> openapi.json'],
    run: printOpenApi,
  },
  health: {
    summary: 'ask a running gateway whether it is alive',
    description:
      'Asks the admin listener of a gateway on this machine for /livez, with the same settings as serve, and says what it answers. Exits 0 when it is alive and 1 when not: for the health check of a container.',
    examples: ['', '--admin-port 9465'],
    run: health,
  },
};

/** Runs the command that `argv` (without node and script) asks for; resolves with the exit code. */
export async function runCli(argv: readonly string[], terminal: Terminal): Promise<number> {
  let exitCode = 0;
  const invocation = findInvocation(terminal.environment, terminal.script);
  const program = new Program(programName)
    .description('A JSON-over-HTTP gateway for work items.')
    .version(version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand('help [command]', 'print the help of a command')
    .exitOverride()
    .configureOutput({
      writeOut: terminal.write,
      writeErr: terminal.writeError,
      getOutHelpWidth: () => terminal.columns ?? unboundColumns,
    })
    .addHelpText(
      'after',
      describeExamples(commandNames.map((name) => invocation.line(name, commands[name].examples[0] ?? ''))),
    );
  for (const name of commandNames) {
    const entry = commands[name];
    const command = program
      .command(name, { isDefault: name === 'serve' })
      .summary(entry.summary)
      .description(entry.description)
      .helpOption('-h, --help', 'print this help')
      .configureHelp({
        commandUsage: () =>
          invocation.isNpmScript ? invocation.line(name, '[flags]') : `${programName} ${name} [flags]`,
        optionTerm: ({ long = '', short, flags }) =>
          Object.hasOwn(entry.ownFlags ?? {}, long)
            ? flags.replace(/\[(.*)\]/, '<$1>')
            : (terms.get(long) ?? `${short ?? ''}, ${long}`),
      })
      // Unknown flags and stray words are ours to report, together with every other problem.
      .allowUnknownOption()
      .allowExcessArguments()
      .exitOverride()
      .addHelpText(
        'after',
        `${settingsOf(name).length === 0 ? '' : '\nEach setting is a flag, or the environment variable in its brackets.\ndocs/settings.md says more of each.\n'}${describeExamples(entry.examples.map((flags) => invocation.line(name, flags)))}`,
      );
    for (const [flag, { placeholder, help }] of Object.entries(entry.ownFlags ?? {})) {
      // In brackets for commander, as those of settings.
      const option = new Option(placeholder === undefined ? flag : `${flag} [${placeholder}]`, help);
      command.addOption(settingsOf(name).length === 0 ? option : option.helpGroup('Contract:'));
    }
    for (const [group, settings] of groupSettings(settingsOf(name))) {
      for (const setting of settings) {
        command.addOption(createOption(setting, name).helpGroup(`${settingGroups[group].title}:`));
      }
    }
    // Behind the settings in the help.
    command.version(version, '-V, --version', 'print the version');
    command.action(async (flags: Record<string, string | true>) => {
      exitCode = await runCommand(name, entry, flags, command.args, argv, terminal, invocation);
    });
  }
  try {
    await program.parseAsync(argv, { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) {
      return error.exitCode;
    }
    throw error;
  }
}

// More than that is read in the document of settings.
const choicesLengthMax = 70;

// Wide enough for a setting a line, for whoever looks for one with grep.
const unboundColumns = 160;

/** What the help shows of each flag. */
const terms = new Map(
  settingNames.map((name) => [
    flagOf(name),
    `${flagOf(name)}${isSwitch(name) ? '' : ` <${placeholderOf(name)}>`}`,
  ]),
);

function createOption(name: SettingName, command: Command): Option {
  const choices = joinWithOr(choicesOf(name));
  const facts = [
    ...(choices === '' || choices.length > choicesLengthMax ? [] : [choices]),
    `default ${defaultOf(name, command) || 'none'}`,
    variableOf(name),
  ];
  // In brackets for commander, which would end the program for one problem alone where a value is missing.
  return new Option(`${flagOf(name)} [value]`, `${briefOf(name)} (${facts.join('; ')})`);
}

function describeExamples(lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}\n`).join('')}`;
}

async function runCommand(
  name: Command,
  entry: CommandEntry,
  flags: Readonly<Record<string, string | true>>,
  strayWords: readonly string[],
  argv: readonly string[],
  terminal: Terminal,
  invocation: Invocation,
): Promise<number> {
  const problems = [
    ...findFlagsOfNpm(name, terminal.environment, invocation),
    ...findStrayWords(name, strayWords, argv),
  ];
  const given: Partial<Record<SettingName, string>> = {};
  const own: Record<string, string | true> = {};
  for (const [setting, value] of Object.entries(flags) as [SettingName, string | true][]) {
    if (Object.hasOwn(entry.ownFlags ?? {}, flagOf(setting))) {
      own[flagOf(setting)] = value;
    } else if (value === true && isSwitch(setting)) {
      given[setting] = 'true';
    } else if (value === true) {
      problems.push(`${flagOf(setting)} needs a value`);
    } else {
      given[setting] = value;
    }
  }
  problems.push(...((await entry.findProblems?.(own)) ?? []));
  // A pipeline can tell a wrong call from a backend that does not do [D61].
  const wrongCallCode = name === 'check' && Object.keys(own).length > 0 ? 2 : 1;
  try {
    const resolve = (isReload: boolean): ResolvedSettings =>
      resolveSettings(name, given, terminal.environment, problems, isReload);
    return await entry.run(resolve(false), terminal, () => resolve(true), own);
  } catch (error) {
    if (error instanceof SettingsError) {
      const help = `Nothing was started. \`${invocation.line(name, '--help')}\` lists every ${settingsOf(name).length === 0 ? 'flag' : 'setting'}.`;
      terminal.writeError(`${error.problems.map((problem) => `error: ${problem}\n`).join('')}${help}\n`);
      return wrongCallCode;
    }
    if (error instanceof StartError) {
      terminal.writeError(`error: ${error.message}\n`);
      return wrongCallCode;
    }
    throw error;
  }
}

// Runs with a log, which is written to its end whatever comes of it.
async function withLog(
  { logLevel, logFormat, workers }: Settings,
  run: (log: Log) => Promise<number>,
): Promise<number> {
  const log = createLog({ logLevel, logFormat, isShared: workers > 1 });
  try {
    return await run(log);
  } finally {
    await log.end();
  }
}

/** Those of its settings, and its own. */
function flagsOf(command: Command): string[] {
  return [...settingsOf(command).map(flagOf), ...Object.keys(commands[command].ownFlags ?? {})];
}

/** npm takes flags that are not behind `--` for its own, and a gateway would start without them [D32]. */
function findFlagsOfNpm(
  command: Command,
  environment: Terminal['environment'],
  invocation: Invocation,
): string[] {
  return flagsOf(command)
    .filter(
      (flag) =>
        invocation.isNpmScript &&
        environment[`npm_config_${flag.slice(2).replaceAll('-', '_')}`] !== undefined,
    )
    .map(
      (flag) =>
        `npm has taken ${flag} for a flag of its own: put \`--\` before it, as in ${invocation.line(command, `${flag} ...`)}`,
    );
}

/**
 * The problems with arguments that are neither a known flag nor its value. What follows an unknown flag may be its value.
 * A value may be a secret: so a word is shown only where a command stands or right after it, and where it is plain.
 */
function findStrayWords(command: Command, stray: readonly string[], argv: readonly string[]): string[] {
  const flags = stray.filter((word) => word.startsWith('-'));
  const words = flags[0] === undefined ? stray : stray.slice(0, stray.indexOf(flags[0]));
  const hasCommand = argv[0] === command;
  const first = argv[hasCommand ? 1 : 0];
  return [
    ...flags.map((flag) => describeUnknownFlag(command, flag.replace(/=.*/s, ''))),
    ...words.map((word) => {
      const shown = word === first && /^[a-z][a-z-]{0,19}$/i.test(word) ? ` '${word}'` : '';
      return shown === '' || hasCommand
        ? `unexpected argument${shown}: ${command} takes flags only`
        : `unknown command${shown}${suggest(word.toLowerCase(), commandNames) || `; commands: ${joinWithOr(commandNames)}`}`;
    }),
  ];
}

// What other programs call it.
const otherNames: Readonly<Record<string, string>> = { '--config': flagOf('settingsFile') };

function describeUnknownFlag(command: Command, flag: string): string {
  if (!/^--?[a-z][a-z-]{0,39}$/i.test(flag)) {
    return `one argument begins with - and is not a flag of ${command}`;
  }
  if (flag === '--help' || flagsOf(command).includes(flag)) {
    return `${flag} takes no value`;
  }
  const others = commandNames.filter((name) => flagsOf(name).includes(flag));
  if (others.length > 0) {
    return `${flag} is not a flag of ${command}, only of ${joinWithOr(others)}`;
  }
  const known = [...flagsOf(command), '--help'];
  return `${flag} is not a flag of ${command}${suggest(otherNames[flag] ?? flag.toLowerCase(), known)}`;
}

async function serve(
  resolved: ResolvedSettings,
  terminal: Terminal,
  resolveAgain: () => ResolvedSettings,
  log: Log,
  manager: ServiceManager,
): Promise<number> {
  const { settings } = resolved;
  const passed = findPassedSockets(terminal.environment, terminal.pid);
  if (passed.clients.length > 0 && settings.workers > 1 && settings.portSharing !== 'auto') {
    throw new StartError(
      `PORT_SHARING is ${settings.portSharing}, but workers share the socket that LISTEN_FDS passes on: leave it out`,
      undefined,
    );
  }
  const certificates = await openCertificates(settings, log.logger);
  const stop = listenForStopOf(terminal, log, terminal.isInteractive);
  const reloads = terminal.isInteractive ? undefined : listenForReloads(terminal.signals);
  let inForce = resolved;
  let service: WholeService;
  let apply: (fresh: Settings) => Promise<Settings>;
  if (settings.workers === 1) {
    service = await startService(() => inForce, log, certificates, passed);
    apply = (fresh) => Promise.resolve(applyLive(inForce.settings, fresh, log.logger));
  } else {
    const { startPool } = await import('../cluster/pool.ts');
    const pool = await startPool(settings, log, certificates?.inForce ?? {}, passed.clients);
    service = await addAdmin(pool, () => inForce, log.logger, certificates, passed);
    apply = async (fresh) => {
      log.logger.info({ workers: fresh.workers }, 'SIGHUP: replacing the workers one by one');
      return await pool.reload(fresh);
    };
  }
  const sockets = settingsOfSockets(passed, service.url, service.adminUrl);
  inForce = withSockets(inForce, sockets);
  if (log.hasReader) {
    log.output.write(describeServe(service, inForce));
  } else {
    logReady(log.logger, service, inForce);
  }
  logWarnings(settings, terminal, log.logger);
  log.output.flush();
  const status = `serving at ${service.url}`;
  manager.ready(status);
  void stop.wanted.then(() => {
    manager.stopping();
  });
  reloads?.begin(async () => {
    if (stop.isWanted()) {
      log.logger.warn('SIGHUP: the gateway is stopping, nothing was done');
      return;
    }
    manager.reloading();
    await certificates?.look();
    inForce = withSockets(await reload(inForce, resolveAgain, apply, log.logger), sockets);
    log.logger.level = inForce.settings.logLevel;
    if (!stop.isWanted()) {
      manager.ready(status);
    }
  });
  return await runUntilStopped(service, settings, log.logger, stop);
}

// Loaded only where there are any: neither the start nor the memory of a gateway without them pays.
async function openCertificates(settings: Settings, logger: Logger): Promise<Certificates | undefined> {
  const { tlsMinVersion, tlsReloadMs, backendServerName } = settings;
  const files = certificateFilesOf(settings);
  if (backendServerName === '' && !hasFiles(files.clients) && !hasFiles(files.backend)) {
    return undefined;
  }
  const { CertificateStore } = await import('../certificates/certificate-store.ts');
  return new CertificateStore({
    files,
    minVersion: tlsMinVersion,
    backendServerName,
    reloadMs: tlsReloadMs,
    logger,
  });
}

// New settings with a mistake in them change nothing; gives those that are in force afterwards.
async function reload(
  inForce: ResolvedSettings,
  resolveAgain: () => ResolvedSettings,
  apply: (fresh: Settings) => Promise<Settings>,
  logger: Logger,
): Promise<ResolvedSettings> {
  let fresh;
  try {
    fresh = resolveAgain();
  } catch (error) {
    if (!(error instanceof SettingsError)) {
      throw error;
    }
    logger.error({ problems: error.problems }, 'SIGHUP: the settings have mistakes, the old ones stay');
    return inForce;
  }
  const settings = await apply(fresh.settings);
  // What stays as it was still comes from where it came from.
  const sources = { ...fresh.sources };
  for (const name of changedSettings(settings, fresh.settings)) {
    sources[name] = inForce.sources[name];
  }
  return { ...fresh, settings, sources };
}

// What one process can change while it serves, as the caller does; the rest belongs to listeners and calls that are
// there already.
const liveSettings = ['logLevel'] as const;

function applyLive(before: Settings, fresh: Settings, logger: Logger): Settings {
  const settings = { ...before, ...Object.fromEntries(liveSettings.map((name) => [name, fresh[name]])) };
  const changed = describeChanges(before, settings);
  const notApplied = describeChanges(settings, fresh);
  const log = loggerOfEveryLevel(logger);
  if (Object.keys(notApplied).length === 0) {
    log.info({ changed }, 'reloaded');
  } else {
    log.warn(
      { changed, notApplied },
      'reloaded LOG_LEVEL alone: one process changes no other setting, those in notApplied need a restart',
    );
  }
  return settings;
}

function listenForStopOf(
  { environment, signals }: Terminal,
  { logger }: Log,
  stopsOnHangUp: boolean,
): StopRequest {
  const isUnderNpm = environment['npm_lifecycle_event'] !== undefined;
  return listenForStop(logger, signals, { isUnderNpm, stopsOnHangUp });
}

// For what is said whatever the log level is.
function loggerOfEveryLevel(logger: Logger): Logger {
  return logger.child({}, { level: 'info' });
}

function logReady(logger: Logger, { url, adminUrl }: WholeService, resolved: ResolvedSettings): void {
  const { settings, sources } = resolved;
  const inForce = Object.fromEntries(
    settingsOf('serve').map((name) => [
      name,
      sources[name] === 'default' ? settings[name] : `${showInForce(name, resolved)} (${sources[name]})`,
    ]),
  );
  // Said at every level: with port 0 it is the only place that tells the port [D31].
  loggerOfEveryLevel(logger).info(
    { url, adminUrl, version, node: process.version, settings: inForce },
    'ready',
  );
}

function logWarnings(settings: Settings, { environment }: Terminal, logger: Logger): void {
  for (const { message, facts } of findWarnings(settings, environment)) {
    logger.warn(facts, message);
  }
}

async function runDev(resolved: ResolvedSettings, terminal: Terminal, log: Log): Promise<number> {
  const { settings, sources } = resolved;
  const certificates = await openCertificates(settings, log.logger);
  // Nothing to reload: SIGHUP is the end of the terminal, or means the end all the same.
  const stop = listenForStopOf(terminal, log, true);
  const { startEmbeddedBackend } = await import('../../stand-in-backend/server.ts');
  const backend = await startEmbeddedBackend({ ...embeddedOptions(settings), sampleItems: true });
  let service;
  try {
    const inForce = { ...resolved, settings: { ...settings, backendUrl: new URL(backend.url) } };
    service = await startService(() => inForce, log, certificates);
  } catch (error) {
    await backend.stop();
    throw error;
  }
  log.logger.debug({ sources }, 'settings');
  log.output.write(describeDev(service, backend.url, settings));
  logWarnings(settings, terminal, log.logger);
  const exitCode = await runUntilStopped(service, settings, log.logger, stop);
  await backend.stop();
  return exitCode;
}

function describeServe(service: WholeService, resolved: ResolvedSettings): string {
  const { settings, sources } = resolved;
  const backendUrl = withoutEndSlashes(showValue('backendUrl', settings));
  const changed = settingsOf('serve')
    .filter((name) => sources[name] !== 'default')
    .map((name) => `${variableOf(name)}=${escapeControls(showInForce(name, resolved))} (${sources[name]})`);
  return `
${describePlaces(service, settings, `Backend             ${backendUrl}${backendPath}`)}
  Settings            ${changed.length === 0 ? 'every one at its default' : changed.join(`\n${' '.repeat(22)}`)}

  Ctrl-C stops.

`;
}

function describeDev(service: WholeService, backendUrl: string, settings: Settings): string {
  const { embeddedBackendDatabase } = settings;
  const store =
    embeddedBackendDatabase === ':memory:'
      ? 'in memory; --embedded-backend-database FILE keeps its items'
      : `in ${embeddedBackendDatabase}`;
  const { url } = service;
  // Where more than an address is needed, these lines would not work.
  const isOpen = url.startsWith('http:') && settings.authIssuer === '';
  return `
${describePlaces(service, settings, `Embedded backend    ${backendUrl}/api/WorkItem  (${store})`)}${isOpen ? describeCalls(url) : ''}

  Ctrl-C stops.

`;
}

function describeCalls(url: string): string {
  return `

  Try:
    curl ${url}/api/work-items
    curl ${url}/api/work-items/1
    curl -X POST ${url}/api/work-items -d '{"title":"My first work item"}'`;
}

function describePlaces({ url, adminUrl }: WholeService, { docs }: Settings, backend: string): string {
  const reference = docs ? `  API reference       ${url}/docs  ${url}/openapi.json\n` : '';
  return `  Work Item Gateway   ${url}/api/work-items
  Dashboard           ${adminUrl}/
${reference}  ${backend}
  Health and metrics  ${adminUrl}/readyz  ${adminUrl}/metrics`;
}

async function runBackend({ settings }: ResolvedSettings, terminal: Terminal, log: Log): Promise<number> {
  const { logger } = log;
  const stop = listenForStopOf(terminal, log, true);
  const { startEmbeddedBackend } = await import('../../stand-in-backend/server.ts');
  const backend = await startEmbeddedBackend({ ...embeddedOptions(settings), logger });
  logger.info(
    { url: backend.url, database: settings.embeddedBackendDatabase },
    'embedded backend ready; no production store',
  );
  await untilStopWanted(stop);
  await backend.stop();
  return stop.hasFault() ? 1 : 0;
}

function embeddedOptions(settings: Settings): { host: string; port: number; database: string } {
  return {
    host: settings.embeddedBackendHost,
    port: settings.embeddedBackendPort,
    database: settings.embeddedBackendDatabase,
  };
}

async function check({ settings, sources }: ResolvedSettings, terminal: Terminal): Promise<number> {
  terminal.signals.release();
  const changed = settingsOf('check').filter((name) => sources[name] !== 'default');
  terminal.write(
    `settings: all valid${changed.length === 0 ? ', every one at its default' : ''}\n${changed
      .map((name) => `  ${variableOf(name)} = ${showValue(name, settings)} (${sources[name]})\n`)
      .join('')}`,
  );
  terminal.write(
    describeOrigins(settings)
      .map((line) => `${line}\n`)
      .join(''),
  );
  for (const { message, facts } of findWarnings(settings, terminal.environment)) {
    const figures = Object.entries(facts).map(([name, value]) => `${name} ${value}`);
    terminal.write(`warning: ${message}${figures.length === 0 ? '' : ` (${figures.join(', ')})`}\n`);
  }
  const areCertificatesWell = (await checkTls(settings, terminal)) === 0;
  const isBackendWell = await checkBackend(settings, terminal);
  const tokens = await checkTokens(settings);
  if (tokens !== undefined) {
    (tokens.isWell ? terminal.write : terminal.writeError)(tokens.text);
  }
  const redis = await checkRateLimit(settings);
  if (redis !== undefined) {
    (redis.isWell ? terminal.write : terminal.writeError)(redis.text);
  }
  return areCertificatesWell && isBackendWell && tokens?.isWell !== false && redis?.isWell !== false ? 0 : 1;
}

// All of it is loaded only where it is asked for.
async function readContractWishes(
  own: GivenOwnFlags,
): Promise<{ readonly wishes: ContractWishes; readonly problems: readonly string[] }> {
  const { readWishes } = await import('../../contract-check/wishes.ts');
  return readWishes(own);
}

async function checkContract(
  { settings }: ResolvedSettings,
  { signals, write }: Terminal,
  own: GivenOwnFlags,
): Promise<number> {
  const { wishes } = await readContractWishes(own);
  const certificates = await openCertificates(settings, createLogger('silent', { write: () => undefined }));
  const tls = certificates?.inForce.backend;
  const { runContractCheck } = await import('../../contract-check/command.ts');
  return await runContractCheck(wishes, settings, tls, showValue('backendUrl', settings), signals, write);
}

// Loaded only where there is one.
async function checkRateLimit({
  rateLimitRedisUrl,
}: Settings): Promise<{ readonly isWell: boolean; readonly text: string } | undefined> {
  return rateLimitRedisUrl === ''
    ? undefined
    : await (await import('./redis-check.ts')).checkRedis(rateLimitRedisUrl);
}

async function checkBackend(settings: Settings, terminal: Terminal): Promise<boolean> {
  const certificates = await openCertificates(settings, createLogger('silent', { write: () => undefined }));
  const [{ Calls }, { explainFailure }] = await Promise.all([
    import('../../contract-check/calls.ts'),
    import('../../contract-check/findings.ts'),
  ]);
  const calls = new Calls(settings, certificates?.inForce.backend);
  const call = await calls.make('list');
  await calls.close();
  const target = `${withoutEndSlashes(showValue('backendUrl', settings))}${backendPath}`;
  if (call.outcome === 'ok') {
    terminal.write(
      `backend: ${target} answered ${call.answer?.status ?? 200} with ${call.reply.body.length} bytes of JSON in ${Math.round(call.durationMs)} ms\n`,
    );
    return true;
  }
  const { title, came, advice } = explainFailure(call, settings.backendUrl);
  terminal.writeError(`backend: ${target}: ${title}: ${came}\n  ${advice}\n`);
  return false;
}

// Says what the certificates are, and gives the number of problems with them.
async function checkTls(settings: Settings, terminal: Terminal): Promise<number> {
  const { checkCertificates } = await import('./certificate-check.ts');
  let count = 0;
  for (const [use, files] of Object.entries(certificateFilesOf(settings)) as [
    CertificateUse,
    CertificateFiles,
  ][]) {
    const { lines, problems } = checkCertificates(use, files, Date.now());
    terminal.write(lines.map((line) => `${escapeControls(line)}\n`).join(''));
    terminal.writeError(problems.map((problem) => `error: ${escapeControls(problem)}\n`).join(''));
    count += problems.length;
  }
  return count;
}

async function health({ settings }: ResolvedSettings, terminal: Terminal): Promise<number> {
  terminal.signals.release();
  const { askHealth } = await import('./health.ts');
  const { isAlive, text } = await askHealth(settings.adminHost, settings.adminPort);
  const write = isAlive ? terminal.write : terminal.writeError;
  write(`${escapeControls(text)}\n`);
  return isAlive ? 0 : 1;
}

async function printOpenApi({ settings }: ResolvedSettings, terminal: Terminal): Promise<number> {
  const { createOpenApiText } = await import('../../core/hosts/openapi/openapi.ts');
  terminal.write(createOpenApiText(settings));
  return 0;
}
