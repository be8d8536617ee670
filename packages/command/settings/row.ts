// The type of a row of the settings table, and the function that makes settings from rows.

import type { TextKind } from '../../core/hosts/options/kinds.ts';
import type { SharedRow } from '../../core/hosts/options/rows.ts';
import type { SettingGroup } from './groups.ts';

export const commandNames = ['serve', 'dev', 'backend', 'check', 'openapi', 'health'] as const;

export type Command = (typeof commandNames)[number];

/** A setting: the row of an option, with its group in the help and the commands that have it. */
export interface Row extends Omit<SharedRow, 'kind'> {
  readonly kind: TextKind<unknown>;
  /** For a switch: the commands in which the default is inverted. */
  readonly invertedIn?: readonly Command[];
  readonly group: SettingGroup;
  readonly commands: readonly Command[];
}

/**
 * Makes settings from the rows of `table`, by adding `group` and `commands` to each. `table` may contain rows of the
 * core's options.
 */
export function settings<Table extends Readonly<Record<string, Omit<Row, 'group' | 'commands'>>>>(
  group: SettingGroup,
  commands: readonly Command[],
  table: Table,
): { readonly [Name in keyof Table]: Table[Name] & Pick<Row, 'group' | 'commands'> } {
  const rows = Object.entries(table).map(([name, row]) => {
    const help = row.help.replaceAll(/\{(\w+)\}/g, (_, other: string) => toVariable(other));
    return [name, { ...row, help, group, commands }];
  });
  return Object.fromEntries(rows) as { readonly [Name in keyof Table]: Table[Name] & Pick<Row, 'group' | 'commands'> };
}

/** `requestBytesMax` -> `REQUEST_BYTES_MAX`. */
export function toVariable(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
}
