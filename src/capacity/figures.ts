// What a call costs, as the documents have it. Each figure stands in a document with how it was measured, and a test compares
// the two: whoever measures anew changes both, and then runs `npm run docs`. Imports nothing.

/** Microseconds are processor time, of the machine of docs/performance.md. */
export const figures = {
  // "Beside its peers": small bodies, one core flat out.
  readUs: 20.9,
  updateUs: 21.9,
  createUs: 22.9,
  smallBytes: 432,
  // There too: lists, for what bytes cost.
  listUs: 40,
  listBytes: 42_000,
  longListUs: 233,
  longListBytes: 417_000,
  // "What guards cost": the same read where 10,000 a second come, one by one and not together.
  steadyRate: 10_000,
  steadyUs: 53,
  steadyFlatOutUs: 21.5,
  // There too: what each guard takes more.
  tokenUs: 2.5,
  rateLimitUs: 1.8,
  redisUs: 3,
  tlsFactor: 1.33,
  // Of a read, for a line of the log (LOG_LEVEL=info).
  logLineShare: 0.11,
  // What two workers do of one, on two cores.
  twoWorkersFactor: 1.83,
  // "In machines": how busy a core may be, and an idle connection.
  busyShare: 0.7,
  connectionBytes: 5_000,
  // "What the rate limit asks of Redis": a question for one client, and for a hundred.
  questionOfOneUs: 19.8,
  questionOfHundredUs: 443,
  // docs/security.md: a client in its window, in Redis.
  redisClientBytes: 100,
} as const;

/** No process asks Redis more often, however many calls come [D47]. */
export const questionsOfProcess = 1_000;

/** What is taken for granted, since it is not the gateway's: the plan says so, and it can be changed here. */
export const assumptions = {
  /** The heads of a request and its reply, on one side of the gateway, each way. */
  headBytes: 500,
  linkBits: 10_000_000_000,
  /** How much slower the backend may get for a while before calls are turned away. */
  slowerBackend: 4,
  /** Of clients, for one process: with twice as many its descriptors are within those of deploy/systemd (65,536). */
  connectionsOfProcess: 16_000,
  /** The limit of BUFFERED_BYTES_MAX in deploy/kubernetes, below which a plan does not go. */
  bufferedBytesMin: 201_326_592,
} as const;
