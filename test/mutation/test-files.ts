// The tests that decide whether a mutant is killed. All of them run the source, not the built command, in separate
// processes. The first failure kills a mutant, so the fastest tests run first. Fast files share a process, since
// starting a process takes as long as running them.

export interface Batch {
  readonly name: string;
  readonly files: readonly string[];
  /** The sources whose mutants this batch tests; for other sources there are faster tests. */
  readonly of: RegExp;
  /** The host that the tests run against, as in test/helpers/targets.ts; default: the server in the tests' process. */
  readonly target?: 'fetch' | 'http2' | 'node' | 'plugin';
  /** The gateway runs as a command (started from the source), not in the tests' process. */
  readonly isCommand?: boolean;
  /** The tests start the source in child processes, which inherit the active mutant. Their coverage is unknown. */
  readonly isForked?: boolean;
  /** The tests measure time. They count as failed only after several failures, because the machine may be busy. */
  readonly isTimed?: boolean;
}

// prettier-ignore
const rows: readonly [name: string, files: string, of: RegExp, traits?: Omit<Batch, 'name' | 'files' | 'of'>][] = [
  ['JSON', 'json/pieces json/memory',
    /packages\/core\/json\//],
  ['bytes of HTTP', 'wire/grammar wire/growing-buffer wire/reader wire/vectors wire/writer wire/repeated-text',
    /packages\/core\/http1\/(fields|grammar|growing-buffer|head|(answer-|chunk-|request-)?reader|repeated-text|writer)\.ts/],
  ['tables of sockets', 'wire/node-internals transport/stall-watch transport/tls-records',
    /packages\/core\/(http1\/node-internals|hosts\/clients\/(record|stall)-watch)\.ts/],
  ['connections by themselves', 'transport/backend-connection transport/server-exchanges transport/server-times',
    /packages\/core\/http1\//, { isTimed: true }],
  ['opening sockets', 'transport/open-socket',
    /packages\/core\/http1\/backend-connection\.ts/],
  ['connections over TLS', 'transport/handshakes transport/tls',
    /packages\/core\/(http1\/node-internals|hosts\/clients\/(handshake|client-listener|stall-watch))\.ts/, { isTimed: true }],
  ['work', 'wire/work',
    /packages\/core\/http1\/(fields|grammar|head|reader|writer)\.ts/, { isTimed: true }],
  ['fast', 'spec/operations unit/deadlines unit/body spec/replies spec/own-faults plugin/mounted spec/observer spec/backend-requests spec/paths-and-methods spec/item-id spec/request-body transport/backend-client transport/shared-memory transport/buffered-bytes transport/fairness',
    /packages\/core\/(backend|call|body)\//],
  ['HTTP through the gateway', 'spec/malformed-http transport/client-leaves transport/stall-watch',
    /packages\/core\/(backend|call|http1|hosts\/clients)\//],
  ['simulated worlds', 'simulation/simulation',
    /packages\/core\/(http1\/(client-connection|sent-ahead|turns)|hosts\/clients\/(client-listener|stall-watch|sweeper))\.ts/],
  ['deadlines', 'spec/deadlines',
    /packages\/core\/(backend|call|body)\//, { isTimed: true }],
  ['answers', 'spec/backend-answers',
    /packages\/core\/(backend|http1|body)\//],
  ['guards by themselves', 'unit/admission unit/guard-settings guards/counters guards/keys',
    /packages\/core\/(admission|guards)\//],
  ['guards of the server', 'spec/allowed-hosts spec/cors spec/cross-site-writes spec/rate-limit transport/guards',
    /packages\/core\/(admission|guards)\//],
  ['tokens', 'guards/tokens guards/token-keys',
    /packages\/core\/guards\/(guard-parts|tokens\/)/],
  ['Redis', 'guards/redis',
    /packages\/core\/guards\/rate-limit\/(rate-limit-part|redis-counter)/, { isTimed: true }],
  ['guards in hosts', 'guards/hosts plugin/mounted',
    /packages\/core\/(guards\/|hosts\/(common\/(fields|host-)|fastify\/fastify\.ts|fetch|node\/node-exchange|gateway-server))/],
  ['options', 'unit/host-options unit/settings unit/admission',
    /packages\/core\/options\//],
  ['options of hosts', 'node/handler plugin/order plugin/mounted transport/backend-client',
    /packages\/core\/(hosts\/common\/(create|host)-gateway|options\/(host-options|limits|gateway-options|rows))/],
  ['command line', 'unit/cli',
    /packages\/core\/options\/(accepted-values|similar)/],
  ['lines of failures', 'unit/observers',
    /packages\/core\/hosts\/common\/failure-lines/],
  ['listening', 'transport/listen embedded-backend/listening',
    /packages\/core\/hosts\/(common\/(listen|start-error)|gateway-server)/, { isTimed: true }],
  ['server', 'unit/host-options transport/tls transport/guards',
    /packages\/core\/hosts\/gateway-server/, { isTimed: true }],
  ['fetch handler', 'fetch/handler fetch/hono',
    /packages\/core\/hosts\/(fetch|common\/(failure-lines|fields|host-gateway|piece-turns))/],
  ['calls of the fetch handler', 'spec/operations spec/backend-requests spec/cross-site-writes spec/paths-and-methods spec/request-body',
    /packages\/core\/hosts\/fetch\//, { target: 'fetch' }],
  ['Node handler', 'node/handler node/upgrade-offers spec/every-host',
    /packages\/core\/hosts\/node\//],
  ['turns of the Node handler', 'transport/fairness',
    /packages\/core\/hosts\/node\/(requests-ahead|node-exchange)/],
  ['calls of the Node handler', 'spec/operations spec/request-body transport/buffered-bytes',
    /packages\/core\/hosts\/node\//, { target: 'node' }],
  ['Fastify', 'plugin/unreadable-targets plugin/mounted plugin/hook-replies plugin/order plugin/hooks-and-bodies plugin/hooks-after plugin/connections spec/every-host',
    /packages\/core\/hosts\/(fastify\/|node\/)/, { isTimed: true }],
  ['calls of Fastify', 'spec/operations spec/request-body transport/buffered-bytes',
    /packages\/core\/hosts\/(fastify\/|node\/held-body)/, { target: 'plugin' }],
  ['Fastify and slow clients', 'plugin/slow-bodies plugin/closing',
    /packages\/core\/hosts\/(fastify\/|node\/(held-body|node-exchange|linger|node-host))/, { isTimed: true }],
  ['bytes of HTTP/2', 'unit/http2-head transport/http2-connection',
    /packages\/core\/hosts\/http2\/(field-count|frame-meter|http2-head)/],
  ['connections of HTTP/2', 'transport/http2-connection',
    /packages\/core\/hosts\/http2\/(http2|paced)/],
  ['calls of HTTP/2', 'spec/operations spec/paths-and-methods spec/request-body',
    /packages\/core\/hosts\/http2\/http2/, { target: 'http2' }],
  ['HTTP/2', 'transport/http2',
    /packages\/core\/hosts\/http2\/(http2|paced)/, { isTimed: true }],
  ['attacks by HTTP/2', 'transport/http2-hostile',
    /packages\/core\/hosts\/http2\/(http2|paced)/, { isTimed: true }],
  ['counting for workers', 'guards/counters',
    /packages\/(core\/guards\/rate-limit\/windows|command\/cluster\/primary-counter)\.ts/],
  ['slow clients', 'process/hostile-clients',
    /packages\/core\/(http1\/client-connection|hosts\/clients\/(client-listener|stall-watch))\.ts/, { isTimed: true, isCommand: true }],
  ['simulated workers', 'simulation/workers unit/distributor unit/worker-pool',
    /packages\/command\/cluster\/(distributor|member|worker-pool|worker-state)\.ts/],
  ['a worker process', 'unit/worker',
    /packages\/command\/cluster\/(messages|worker)\.ts/, { isTimed: true, isForked: true }],
  ['workers of the command', 'process/workers',
    /packages\/command\/cluster\/(member|messages|worker-pool|worker)\.ts/, { isTimed: true, isCommand: true }],
];

export const batches: readonly Batch[] = rows.map(([name, files, of, traits]) => ({
  ...traits,
  name,
  of,
  files: files.split(' ').map((file) => `test/${file}.test.ts`),
}));

/** Skipped: a test that needs the built command. test/unit/structure.test.ts checks that a test has this title. */
export const skippedTests = ['a host name in HOST is allowed; an IP address in HOST allows no host name [D57]'];

/** How long a test waits for an event if it sets no limit itself, in ms; see test/helpers/changes.ts. */
export const testDeadlineMs = 8_000;

/** A process counts as hanging if no test ends within this processor time or within this elapsed time, in ms. */
export const hangCpuMs = 8_000;
export const hangMs = 30_000;
