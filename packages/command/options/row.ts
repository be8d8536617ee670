// One setting, as the tables in rows/ have it, and short ways to write one.

import { limits, msMax, type LimitName } from '../../core/call/limits.ts';
import type { SettingGroup } from './groups.ts';
import { integer, type Kind, type Unit } from './kinds.ts';

export const commandNames = ['serve', 'dev', 'backend', 'check', 'openapi', 'health'] as const;

export type Command = (typeof commandNames)[number];

export interface Row {
  readonly kind: Kind<unknown>;
  readonly group: SettingGroup;
  readonly default: string | number | boolean;
  /** For a switch: the commands whose default is the other one. */
  readonly invertedIn?: readonly Command[];
  /**
   * What it sets, and what happens at the limit. `--help` shows what comes before the first semicolon or full stop: a
   * line of its own, short.
   */
  readonly help: string;
  readonly commands: readonly Command[];
}

export const gateway: readonly Command[] = ['serve', 'dev', 'check', 'openapi'];
export const serving: readonly Command[] = ['serve', 'check', 'openapi'];
export const admin: readonly Command[] = [...gateway, 'health'];
export const everywhere: readonly Command[] = [...gateway, 'backend'];
export const embedded: readonly Command[] = ['dev', 'backend'];

type NumberRow = Row & { readonly kind: Kind<number>; readonly default: number };

export function ms(defaultMs: number, help: string, group: SettingGroup = 'timeLimits', min = 1): NumberRow {
  return { kind: integer('ms', min, msMax), group, default: defaultMs, help, commands: gateway };
}

export function port(
  defaultPort: number,
  help: string,
  group: SettingGroup,
  commands: readonly Command[],
): NumberRow {
  return { kind: integer('port', 0, 65_535), group, default: defaultPort, help, commands };
}

/** A limit of the gateway, whoever mounts it: default and bounds are not the settings' affair. */
export function limit(name: LimitName, unit: Unit, help: string, group: SettingGroup = 'limits'): NumberRow {
  const { standard, min, max } = limits[name];
  return { kind: integer(unit, min, max), group, default: standard, help, commands: gateway };
}

export function msLimit(name: LimitName, help: string, group: SettingGroup = 'timeLimits'): NumberRow {
  return limit(name, 'ms', help, group);
}
