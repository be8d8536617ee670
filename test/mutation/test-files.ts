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

/** The paths of the test files in `names`. */
const list = (names: string) => (names.match(/\S+/g) ?? []).map((name) => `test/${name}.test.ts`);

export const batches: readonly Batch[] = [
  { name: 'JSON', files: list('json/pieces json/memory'), of: /packages\/core\/json\// },
  {
    name: 'bytes of HTTP',
    files: list(`
      wire/grammar wire/growing-buffer wire/reader wire/vectors wire/writer wire/repeated-text`),
    of: /packages\/core\/http1\/(fields|grammar|growing-buffer|head|(answer-|chunk-|request-)?reader|repeated-text|writer)\.ts/,
  },
  {
    name: 'tables of sockets',
    files: list('wire/node-internals transport/stall-watch transport/tls-records'),
    of: /packages\/core\/(http1\/node-internals|hosts\/clients\/(record|stall)-watch)\.ts/,
  },
  {
    name: 'connections by themselves',
    files: list('transport/backend-connection transport/server-exchanges transport/server-times'),
    of: /packages\/core\/http1\//,
    isTimed: true,
  },
  {
    name: 'opening sockets',
    files: list('transport/open-socket'),
    of: /packages\/core\/http1\/backend-connection\.ts/,
  },
  {
    name: 'connections over TLS',
    files: list('transport/handshakes transport/tls'),
    of: /packages\/core\/(http1\/node-internals|hosts\/clients\/(handshake|client-listener|stall-watch))\.ts/,
    isTimed: true,
  },
  {
    name: 'work',
    files: list('wire/work'),
    of: /packages\/core\/http1\/(fields|grammar|head|reader|writer)\.ts/,
    isTimed: true,
  },
  {
    name: 'fast',
    files: list(`
      spec/operations unit/deadlines unit/body spec/errors spec/replies spec/own-faults plugin/mounted spec/observer
      spec/backend-requests spec/paths-and-methods spec/item-id spec/request-body spec/resending
      transport/backend-client transport/shared-memory transport/buffered-bytes transport/fairness`),
    of: /packages\/core\/(backend|call|body)\//,
  },
  {
    name: 'HTTP through the gateway',
    files: list('spec/malformed-http transport/client-leaves transport/stall-watch'),
    of: /packages\/core\/(backend|call|http1|hosts\/clients)\//,
  },
  {
    name: 'simulated worlds',
    files: list('simulation/simulation'),
    of: /packages\/core\/(http1\/(client-connection|sent-ahead|turns)|hosts\/clients\/(client-listener|put-off|stall-watch))\.ts/,
  },
  { name: 'deadlines', files: list('spec/deadlines'), of: /packages\/core\/(backend|call|body)\//, isTimed: true },
  { name: 'answers', files: list('spec/backend-answers'), of: /packages\/core\/(backend|http1|body)\// },
  {
    name: 'guards by themselves',
    files: list(`
      unit/admission unit/guard-settings guards/counters guards/keys`),
    of: /packages\/core\/(admission|guards)\//,
  },
  {
    name: 'guards of the server',
    files: list('spec/allowed-hosts spec/cors spec/cross-site-writes spec/rate-limit transport/guards'),
    of: /packages\/core\/(admission|guards)\//,
  },
  {
    name: 'tokens',
    files: list('guards/tokens guards/token-keys'),
    of: /packages\/core\/guards\/(guard-parts|tokens\/)/,
  },
  {
    name: 'Redis',
    files: list('guards/redis'),
    of: /packages\/core\/guards\/rate-limit\/(rate-limit-part|redis-counter)/,
    isTimed: true,
  },
  {
    name: 'guards in hosts',
    files: list('guards/hosts plugin/mounted'),
    of: /packages\/core\/(guards\/|hosts\/(common\/(fields|host-)|fastify\/fastify\.ts|fetch|node\/node-exchange|gateway-server))/,
  },
  { name: 'options', files: list('unit/host-options unit/settings unit/admission'), of: /packages\/core\/options\// },
  {
    name: 'options of hosts',
    files: list('node/handler plugin/order plugin/mounted transport/backend-client'),
    of: /packages\/core\/(hosts\/common\/(create|host)-gateway|options\/(host-options|limits|gateway-options|rows))/,
  },
  { name: 'command line', files: list('unit/cli'), of: /packages\/core\/options\/(accepted-values|similar)/ },
  { name: 'lines of failures', files: list('unit/observers'), of: /packages\/core\/hosts\/common\/failure-lines/ },
  {
    name: 'listening',
    files: list('transport/listen embedded-backend/listening'),
    of: /packages\/core\/hosts\/(common\/(listen|start-error)|gateway-server)/,
    isTimed: true,
  },
  {
    name: 'server',
    files: list('unit/host-options transport/tls transport/guards'),
    of: /packages\/core\/hosts\/gateway-server/,
    isTimed: true,
  },
  {
    name: 'fetch handler',
    files: list('fetch/handler fetch/hono'),
    of: /packages\/core\/hosts\/(fetch|common\/(failure-lines|fields|host-gateway|piece-turns))/,
  },
  {
    name: 'calls of the fetch handler',
    files: list(`
      spec/operations spec/errors spec/backend-requests spec/cross-site-writes spec/paths-and-methods
      spec/request-body`),
    target: 'fetch',
    of: /packages\/core\/hosts\/fetch\//,
  },
  {
    name: 'Node handler',
    files: list('node/handler node/upgrade-offers spec/every-host'),
    of: /packages\/core\/hosts\/node\//,
  },
  {
    name: 'turns of the Node handler',
    files: list('transport/fairness'),
    of: /packages\/core\/hosts\/node\/(requests-ahead|node-exchange)/,
  },
  {
    name: 'calls of the Node handler',
    files: list('spec/operations spec/errors spec/request-body transport/buffered-bytes'),
    target: 'node',
    of: /packages\/core\/hosts\/node\//,
  },
  {
    name: 'Fastify',
    files: list(`
      plugin/unreadable-targets plugin/mounted plugin/hook-replies plugin/order
      plugin/hooks-and-bodies plugin/hooks-after plugin/connections spec/every-host`),
    of: /packages\/core\/hosts\/(fastify\/|node\/)/,
    isTimed: true,
  },
  {
    name: 'calls of Fastify',
    files: list('spec/operations spec/errors spec/request-body transport/buffered-bytes'),
    target: 'plugin',
    of: /packages\/core\/hosts\/(fastify\/|node\/held-body)/,
  },
  {
    name: 'Fastify and slow clients',
    files: list('plugin/slow-bodies plugin/closing'),
    of: /packages\/core\/hosts\/(fastify\/|node\/(held-body|node-exchange|linger|node-host))/,
    isTimed: true,
  },
  {
    name: 'bytes of HTTP/2',
    files: list('unit/http2-head transport/http2-connection'),
    of: /packages\/core\/hosts\/http2\/(field-count|frame-meter|http2-head)/,
  },
  {
    name: 'connections of HTTP/2',
    files: list('transport/http2-connection'),
    of: /packages\/core\/hosts\/http2\/(http2|paced)/,
  },
  {
    name: 'calls of HTTP/2',
    files: list('spec/operations spec/errors spec/paths-and-methods spec/request-body'),
    target: 'http2',
    of: /packages\/core\/hosts\/http2\/http2/,
  },
  { name: 'HTTP/2', files: list('transport/http2'), of: /packages\/core\/hosts\/http2\/(http2|paced)/, isTimed: true },
  {
    name: 'attacks by HTTP/2',
    files: list('transport/http2-hostile'),
    of: /packages\/core\/hosts\/http2\/(http2|paced)/,
    isTimed: true,
  },
  {
    name: 'counting for workers',
    files: list('guards/counters'),
    of: /packages\/(core\/guards\/rate-limit\/windows|command\/cluster\/primary-counter)\.ts/,
  },
  {
    name: 'slow clients',
    files: list('process/hostile-clients'),
    of: /packages\/core\/(http1\/client-connection|hosts\/clients\/(client-listener|stall-watch))\.ts/,
    isCommand: true,
    isTimed: true,
  },
  {
    name: 'simulated workers',
    files: list('simulation/workers unit/distributor'),
    of: /packages\/command\/cluster\/(distributor|member|worker-pool|worker-state)\.ts/,
  },
  {
    name: 'a worker process',
    files: list('unit/worker'),
    of: /packages\/command\/cluster\/(messages|worker)\.ts/,
    isForked: true,
    isTimed: true,
  },
  {
    name: 'pool of workers',
    files: list('process/worker-pool'),
    of: /packages\/command\/cluster\/worker-pool\.ts/,
    isTimed: true,
  },
  {
    name: 'workers of the command',
    files: list('process/workers'),
    of: /packages\/command\/cluster\/(member|messages|worker-pool|worker)\.ts/,
    isCommand: true,
    isTimed: true,
  },
];

/** Skipped: a test that needs the built command. test/unit/structure.test.ts checks that a test has this title. */
export const skippedTests = ['a host name in HOST is allowed; an IP address in HOST allows no host name [D57]'];

/** How long a test waits for an event if it sets no limit itself, in ms; see test/helpers/changes.ts. */
export const testDeadlineMs = 8_000;

/** A process counts as hanging if no test ends within this processor time or within this elapsed time, in ms. */
export const hangCpuMs = 8_000;
export const hangMs = 30_000;
