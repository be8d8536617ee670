// An option is described by one row. From the rows of a host come the types of its options, its checks and its values. The
// command's settings are such rows too. No row is here.

import type { Kind, ValueKind } from './kinds.ts';
import { Problem } from './problem.ts';
import { suggest } from './similar.ts';

/** An option of a host alone. Where it is not given, there is no value. */
interface OwnRow {
  readonly kind: ValueKind<unknown, never>;
  readonly isRequired?: boolean;
}

/** An option that is a setting of the command too. */
export interface SharedRow {
  readonly kind: Kind<unknown, never>;
  /** As a text, a number or a boolean. */
  readonly default: string | number | boolean;
  /**
   * What it sets, and what happens at the limit. `--help` shows what comes before the first semicolon or full stop: a
   * line of its own, short. It names another option as `{authIssuer}`, for which its user reads the name of the setting.
   */
  readonly help: string;
}

export type OptionRow = OwnRow | SharedRow;

type Rows = Readonly<Record<string, OptionRow>>;

type GivenOf<Row> = Row extends { readonly kind: { readonly accept: (given: infer Given) => unknown } }
  ? Given
  : never;

/** What a program may give. The comment of a row is that of its option, in editors too. */
export type OptionsOf<Table> = { readonly [Name in keyof Table]?: GivenOf<Table[Name]> };

type ValueOf<Row> = Row extends { readonly kind: ValueKind<infer Value, never> } ? Value : never;

/** What comes of what was given. */
export type ValuesOf<Table> = {
  readonly [Name in keyof Table]: Table[Name] extends
    { readonly default: unknown } | { readonly isRequired: true }
    ? ValueOf<Table[Name]>
    : ValueOf<Table[Name]> | undefined;
};

/** The rows of `table` without those of `names`. */
export function omit<Table extends object, const Name extends keyof Table>(
  table: Table,
  names: readonly Name[],
): Omit<Table, Name> {
  const kept = Object.entries(table).filter(([name]) => !(names as readonly string[]).includes(name));
  return Object.fromEntries(kept) as Omit<Table, Name>;
}

/** The values that `options` give, the rest at their defaults. A value that is refused is missing, and has a problem. */
export function readOptions<Table extends Rows>(
  options: object,
  table: Table,
): { readonly values: Partial<ValuesOf<Table>>; readonly problems: string[] } {
  const values: Record<string, unknown> = {};
  // Those of numbers come last.
  const problems: [texts: string[], ofNumbers: string[]] = [[], []];
  for (const [name, row] of Object.entries(table)) {
    const given: unknown = Reflect.get(options, name);
    const value =
      given !== undefined || ('isRequired' in row && row.isRequired)
        ? row.kind.accept(given as never)
        : 'default' in row
          ? row.kind.parse(String(row.default))
          : undefined;
    if (value instanceof Problem) {
      const isNumber = 'default' in row && typeof row.default === 'number';
      problems[isNumber ? 1 : 0].push(`${name} ${value.text}`);
    } else {
      values[name] = value;
    }
  }
  return { values: values as Partial<ValuesOf<Table>>, problems: problems.flat() };
}

/** The defaults of all options that have one. */
export function defaultsOf<Table extends Rows>(table: Table): ValuesOf<Table> {
  return readOptions({}, table).values as ValuesOf<Table>;
}

/** One problem for each option that has none of `names`. */
export function findUnknownNames(options: object, names: readonly string[]): string[] {
  return Object.keys(options)
    .filter((name) => !names.includes(name))
    .map((name) => `there is no ${name}${suggest(name, names)}`);
}
