// Every limit of a gateway: its default and its bounds, for the settings of the command and the options of whoever mounts
// it alike. What each is for stands where it is named. Imports nothing.

export interface Limit {
  /** What counts where nothing is said. */
  readonly standard: number;
  readonly min: number;
  readonly max: number;
}

/** The longest time that a timer of the platform can hold, 2^31 - 1 ms: about 24.8 days. */
export const msMax = 2_147_483_647;
// A body is held in one piece at most once; the platform's largest buffer is far above this.
const bytesMax = 2_147_483_647;

function ms(standard: number): Limit {
  return { standard, min: 1, max: msMax };
}

/** Of calls, of clients' connections and of the connections to the backend; times in milliseconds. */
export const limits = {
  requestHeadBytesMax: { standard: 16_384, min: 1_024, max: 1_048_576 },
  requestBytesMax: { standard: 10_485_760, min: 1, max: bytesMax },
  responseBytesMax: { standard: 67_108_864, min: 1, max: bytesMax },
  bufferedBytesMax: { standard: 1_073_741_824, min: 1, max: 1_099_511_627_776 },
  inFlightMax: { standard: 1_024, min: 1, max: 1_000_000 },
  connectionsMax: { standard: 10_000, min: 1, max: 1_000_000 },
  backendTimeoutMs: ms(30_000),
  backendConnectTimeoutMs: ms(5_000),
  backendIdleTimeoutMs: ms(4_000),
  requestHeadersTimeoutMs: ms(10_000),
  requestTimeoutMs: ms(30_000),
  replyStallTimeoutMs: ms(30_000),
  idleTimeoutMs: ms(72_000),
  shutdownTimeoutMs: ms(10_000),
  // In seconds, as browsers are told it; none of them remembers it for longer than a day.
  corsMaxAgeS: { standard: 600, min: 0, max: 86_400 },
  authClockSkewMs: { standard: 30_000, min: 0, max: 600_000 },
  // The issuer is not to be asked without end.
  authJwksRefreshMs: { standard: 300_000, min: 1_000, max: msMax },
  authJwksStaleMs: { standard: 86_400_000, min: 1_000, max: msMax },
} as const satisfies Readonly<Record<string, Limit>>;

export type LimitName = keyof typeof limits;

/** The limits of those `names`, each as `given` or the default. */
export function limitsOf<Name extends LimitName>(
  given: Readonly<Partial<Record<Name, number | undefined>>>,
  names: readonly Name[],
): Record<Name, number> {
  return Object.fromEntries(names.map((name) => [name, given[name] ?? limits[name].standard])) as Record<
    Name,
    number
  >;
}
