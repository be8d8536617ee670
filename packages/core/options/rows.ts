// Derives the types, checks and values of options and of the command's settings from tables. A table has one row per option.

import type { Kind } from './kinds.ts';
import { Problem } from './problem.ts';
import { suggest } from './similar.ts';

/** An option. The command can use a row with `default` and `help` as a setting. */
export interface OptionRow {
  readonly kind: Kind<unknown, never>;
  readonly isRequired?: boolean;
  /** Without a default, the value is undefined unless the option `isRequired`. */
  readonly default?: string | number | boolean;
  /**
   * Describes the setting, and what happens at its limit. `--help` shows only the text before the first semicolon or full
   * stop, which must fit on a line. A placeholder such as `{authIssuer}` is replaced by the name of that setting.
   */
  readonly help?: string;
}

type Rows = Readonly<Record<string, OptionRow>>;

type GivenOf<Row> = Row extends { readonly kind: { readonly accept: (given: infer Given) => unknown } } ? Given : never;

/** The type of an options object. Code editors show a row's comment for its option. */
export type OptionsOf<Table> = { readonly [Name in keyof Table]?: GivenOf<Table[Name]> | undefined };

export type ValueOf<Row> = Row extends { readonly kind: Kind<infer Value, never> } ? Value : never;

export type ValuesOf<Table> = {
  readonly [Name in keyof Table]: Table[Name] extends { readonly default: unknown } | { readonly isRequired: true }
    ? ValueOf<Table[Name]>
    : ValueOf<Table[Name]> | undefined;
};

export function omit<Table extends object, const Name extends keyof Table>(
  table: Table,
  names: readonly Name[],
): Omit<Table, Name> {
  const kept = Object.entries(table).filter(([name]) => !(names as readonly string[]).includes(name));
  return Object.fromEntries(kept) as Omit<Table, Name>;
}

/** Parses `options` and fills in the defaults. A refused value is missing in `values` and listed in `problems`. */
export function readOptions<Table extends Rows>(
  options: object,
  table: Table,
): { readonly values: Partial<ValuesOf<Table>>; readonly problems: string[] } {
  const values: Record<string, unknown> = {};
  // Problems of numeric options are listed last.
  const problems: [ofOthers: string[], ofNumbers: string[]] = [[], []];
  for (const [name, row] of Object.entries(table)) {
    const given: unknown = Reflect.get(options, name);
    const value =
      given !== undefined || row.isRequired === true
        ? row.kind.accept(given as never)
        : row.default === undefined
          ? undefined
          : row.kind.parse(String(row.default));
    if (value instanceof Problem) {
      problems[typeof row.default === 'number' ? 1 : 0].push(`${name} ${value.text}`);
    } else {
      values[name] = value;
    }
  }
  return { values: values as Partial<ValuesOf<Table>>, problems: problems.flat() };
}

export function defaultsOf<Table extends Rows>(table: Table): ValuesOf<Table> {
  return readOptions({}, table).values as ValuesOf<Table>;
}

/** Returns a problem for each option whose name is not in `names`. */
export function findUnknownNames(options: object, names: readonly string[]): string[] {
  return Object.keys(options)
    .filter((name) => !names.includes(name))
    .map((name) => `${name} is unknown${suggest(name, names)}`);
}
