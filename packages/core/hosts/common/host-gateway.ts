// Creates a host's gateway and its guards from the options that the developer passes.

import type { Gateway, GatewayObserver } from '../../call/gateway.ts';
import { findGuardProblems, guardRows } from '../../options/guard-options.ts';
import { findMissingParts } from '../../guards/guard-parts.ts';
import { findCorsProblems } from '../../options/cors-options.ts';
import { findBackendTlsProblems, gatewayRows, type GatewayValues } from '../../options/gateway-options.ts';
import { observerRows } from '../../options/observer-options.ts';
import { findUnknownNames, readOptions, type OptionRow, type ValuesOf } from '../../options/rows.ts';
import { createGateway } from './create-gateway.ts';
import { writeFailureLines } from './failure-lines.ts';
import { withCode } from './gateway-error.ts';
import { HostGuards } from './host-guards.ts';
import { joinObservers } from './observers.ts';

export const hostRows = { ...observerRows, ...guardRows, ...gatewayRows };

type HostValues = ValuesOf<typeof hostRows> & GatewayValues & { readonly prefix?: string };

interface HostTraits {
  /** Creates the log of failures if the option `log` is not given. Default: `writeFailureLines`. */
  readonly createLog?: () => GatewayObserver;
  /** Path prefix before `/api/work-items`. Default: the option `prefix`. */
  readonly prefix?: string;
  readonly otherNames?: readonly string[];
  readonly findProblems?: () => readonly string[];
}

export interface HostGateway<Table> {
  readonly gateway: Gateway;
  readonly guards: HostGuards | undefined;
  readonly values: ValuesOf<Table>;
  /** Closes the connections to the backend, and the guards. Calls in flight fail. */
  readonly end: () => Promise<void>;
}

export function createOptionsError(problems: string): TypeError {
  return withCode('ERR_GATEWAY_OPTIONS', new TypeError(`Cannot create the gateway: ${problems}.`));
}

/**
 * Creates a gateway with its own connections to the backend. `table` describes the valid `options`. Throws a `TypeError`
 * that lists every problem and every unknown name.
 */
export function createHostGateway<Table extends typeof hostRows & Readonly<Record<string, OptionRow>>>(
  options: object,
  table: Table,
  { createLog = writeFailureLines, prefix, otherNames = [], findProblems }: HostTraits = {},
): HostGateway<Table> {
  // TypeScript prevents this mistake, JavaScript does not.
  if (typeof options !== 'object' || (options as unknown) === null) {
    throw createOptionsError("the options must be an object, such as { backendUrl: 'http://localhost:5104' }");
  }
  const { values: read, problems } = readOptions(options, table);
  const values = read as Partial<HostValues>;
  const isGiven = (name: string): boolean => Reflect.get(options, name) !== undefined;
  const nameOf = (name: string): string => name;
  problems.push(
    ...findGuardProblems(values, isGiven, nameOf),
    ...findBackendTlsProblems(values),
    ...findCorsProblems(values, nameOf),
    ...(findProblems?.() ?? []),
    ...findMissingParts(values),
    ...findUnknownNames(options, [...Object.keys(table), ...otherNames]),
  );
  if (problems.length > 0) throw createOptionsError(problems.join('; '));
  const checked = read as HostValues;
  const { log } = checked;
  const failures = log === false ? undefined : log === undefined ? createLog() : writeFailureLines(log);
  const observer = failures && !checked.observer ? failures : joinObservers(failures, checked.observer);
  const hasGuards = checked.authIssuer !== '' || checked.rateLimit !== '';
  const guards = hasGuards ? new HostGuards(checked, observer) : undefined;
  const gateway = createGateway(checked, {
    observer,
    prefix: prefix ?? checked.prefix,
    guards: guards === undefined ? [] : [guards],
    identityHeader: checked.backendIdentityHeader,
  });
  const end = async (): Promise<void> => {
    gateway.isCutting = true;
    guards?.close();
    await gateway.backend.close();
  };
  return { gateway, guards, values: read as ValuesOf<Table>, end };
}
