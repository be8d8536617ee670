// The groups of settings, in the order of the help and docs/settings.md. The function `settings` adds rows to a group.

import type { OptionRow } from '../../core/options/rows.ts';

export const settingGroups = {
  listening: {
    title: 'Listening',
    introduction:
      'Clients and operators each have a listener. If a port is in use, the start fails; no other port is tried.',
  },
  guards: {
    title: 'Who may call',
    introduction: 'Host names that clients and operators may use, and proxies whose `x-forwarded-for` is trusted.',
  },
  cors: {
    title: 'Pages of other origins (CORS)',
    introduction:
      'Browser applications that may call. By default, pages of other origins may not call. Setup: [security.md](security.md#cors).',
  },
  tls: {
    title: 'TLS',
    introduction:
      'PEM files, which the gateway reads again when they change. [security.md](security.md#tls) has an example of each setup.',
  },
  rateLimit: {
    title: 'Rate limit',
    introduction: 'Off unless `RATE_LIMIT` is set. How requests are counted: [security.md](security.md#rate-limit).',
  },
  tokens: {
    title: 'Tokens',
    introduction:
      'Off unless `AUTH_ISSUER` is set. Then every operation requires a valid token: [security.md](security.md#tokens).',
  },
  processes: { title: 'Processes', introduction: 'About workers: [operating.md](operating.md#workers).' },
  backend: { title: 'Backend', introduction: 'The address of the backend, and how item ids are parsed.' },
  limits: { title: 'Limits', introduction: 'How much the gateway accepts and holds for clients and the backend.' },
  timeLimits: {
    title: 'Time limits',
    introduction:
      '[operating.md](operating.md#timeouts) relates these to the timeouts of a load balancer and of the backend.',
  },
  pages: {
    title: 'Dashboard and API reference',
    introduction: 'Pages about the gateway, for operators and for clients.',
  },
  shutdown: { title: 'Shutdown', introduction: 'How the process stops.' },
  log: { title: 'Log', introduction: 'The log on standard output.' },
  traces: {
    title: 'Traces',
    introduction:
      "Spans for an OpenTelemetry collector, with OpenTelemetry's standard variables. Without an endpoint, traces are off. OpenTelemetry's other variables have no effect, and a warning at the start names them. Contents of the spans: [operating.md](operating.md#traces).",
  },
  embeddedBackend: {
    title: 'Embedded backend',
    introduction:
      'The stand-in backend for development, demonstrations and tests: [embedded-backend.md](embedded-backend.md).',
  },
} as const;

export type SettingGroup = keyof typeof settingGroups;

export const commandNames = ['serve', 'dev', 'backend', 'check', 'openapi', 'health'] as const;

export type Command = (typeof commandNames)[number];

/** The needs of a changed setting, in words. SIGHUP applies a change that needs no restart [D65]. */
export const changeNeeds = {
  nothing: 'nothing',
  connections: 'new connections',
  workers: 'new workers, or a restart if WORKERS was 1',
  restart: 'a restart',
} as const;

/** A setting: the row of an option, with the setting's group in the help and the commands that accept the setting. */
export interface Row extends Required<Omit<OptionRow, 'isRequired'>> {
  /** For a switch: the commands in which the default is inverted. */
  readonly invertedIn?: readonly Command[];
  readonly changeNeeds: keyof typeof changeNeeds;
  /**
   * True if the settings in the rows above make this setting ineffective. Then an invalid value counts as unset.
   * `settings` has no invalid ones.
   */
  readonly isIgnored?: (settings: Readonly<Record<string, unknown>>) => boolean;
  readonly group: SettingGroup;
  readonly commands: readonly Command[];
}

type AddedColumns = Pick<Row, 'default' | 'changeNeeds' | 'group' | 'commands'>;

type SettingsOf<Table> = { readonly [Name in keyof Table]: Table[Name] & AddedColumns };

/**
 * Makes settings from the rows of `table`, by adding `group` and `commands` to each. `table` may contain rows of the
 * core's options. A row without `default` is empty by default; one without `changeNeeds` needs new connections.
 */
export function settings<Table extends Readonly<Record<string, Omit<Row, keyof AddedColumns> & Partial<AddedColumns>>>>(
  group: SettingGroup,
  commands: readonly Command[],
  table: Table,
): SettingsOf<Table> {
  const rows = Object.entries(table).map(([name, row]) => {
    const help = row.help.replaceAll(/\{(\w+)\}/g, (_, other: string) => toVariable(other));
    return [name, { default: '', changeNeeds: 'connections', ...row, help, group, commands }];
  });
  return Object.fromEntries(rows) as SettingsOf<Table>;
}

/** Converts `requestBytesMax` to `REQUEST_BYTES_MAX`. */
export function toVariable(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
}
