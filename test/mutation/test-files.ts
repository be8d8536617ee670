// Which tests decide whether a mutant is killed. All of them run the source itself, in a process of their own. A
// mutant is dead at the first failure, so the fastest are asked first; files that are fast share a process, since
// starting one costs as much as running them.

export interface Batch {
  readonly name: string;
  readonly files: readonly string[];
  /** The sources whose mutants it is asked about: the others have faster tests for the same. */
  readonly of: RegExp;
  /** The gateway runs as a command, from the source too, and not in the tests' process. */
  readonly isCommand?: boolean;
  /** It measures time: on a busy machine a failure means something only when it comes again. */
  readonly isTimed?: boolean;
}

export const batches: readonly Batch[] = [
  {
    name: 'JSON',
    files: [
      'test/unit/json-vectors.test.ts',
      'test/unit/json-pieces.test.ts',
      'test/unit/json-memory.test.ts',
    ],
    of: /packages\/core\/json\//,
  },
  { name: 'JSON properties', files: ['test/unit/json-properties.test.ts'], of: /packages\/core\/json\// },
  {
    name: 'bytes of HTTP',
    files: [
      'test/wire/grammar.test.ts',
      'test/wire/growing-buffer.test.ts',
      'test/wire/reader.test.ts',
      'test/wire/vectors.test.ts',
      'test/wire/splits.test.ts',
      'test/wire/writer.test.ts',
      'test/wire/repeated-text.test.ts',
    ],
    of: /packages\/core\/http1\/(fields|grammar|growing-buffer|head|(answer-|chunk-|request-)?reader|repeated-text|writer)\.ts/,
  },
  {
    name: 'tables of sockets',
    files: ['test/wire/node-internals.test.ts', 'test/wire/tcp-table.test.ts'],
    of: /packages\/core\/http1\/(node-internals|tcp-table)\.ts/,
  },
  {
    name: 'connections by themselves',
    files: [
      'test/transport/client-connection.test.ts',
      'test/transport/server-connection.test.ts',
      'test/transport/server-connection-turns.test.ts',
    ],
    of: /packages\/core\/http1\//,
    isTimed: true,
  },
  {
    name: 'opening sockets',
    files: ['test/transport/open-socket.test.ts'],
    of: /packages\/core\/http1\/client-connection\.ts/,
  },
  {
    name: 'limit on connections',
    files: ['test/transport/connection-limit.test.ts'],
    of: /packages\/core\/http1\/(server|server-connection)\.ts/,
  },
  {
    name: 'connections over TLS',
    files: ['test/transport/handshakes.test.ts', 'test/transport/tls.test.ts'],
    of: /packages\/core\/http1\/(handshake|node-internals|server|stall-watch|tcp-table)\.ts/,
    isTimed: true,
  },
  {
    name: 'work',
    files: ['test/wire/work.test.ts'],
    of: /packages\/core\/http1\/(fields|grammar|head|reader|writer)\.ts/,
    isTimed: true,
  },
  {
    name: 'fast',
    files: [
      'test/spec/operations.test.ts',
      'test/unit/deadlines.test.ts',
      'test/unit/body.test.ts',
      'test/spec/errors.test.ts',
      'test/spec/replies.test.ts',
      'test/spec/own-faults.test.ts',
      'test/spec/faults-inside.test.ts',
      'test/spec/mounted.test.ts',
      'test/spec/observer.test.ts',
      'test/spec/closing.test.ts',
      'test/spec/backend-requests.test.ts',
      'test/spec/paths-and-methods.test.ts',
      'test/spec/item-id.test.ts',
      'test/spec/request-body.test.ts',
      'test/spec/resending.test.ts',
      'test/transport/backend-client.test.ts',
      'test/transport/shared-memory.test.ts',
      'test/transport/buffered-bytes.test.ts',
      'test/transport/fairness.test.ts',
    ],
    of: /packages\/core\/(backend|call|body)\//,
  },
  {
    name: 'HTTP through the gateway',
    files: [
      'test/spec/malformed-http.test.ts',
      'test/transport/interim-answers.test.ts',
      'test/transport/client-leaves.test.ts',
      'test/transport/stall-watch.test.ts',
    ],
    of: /packages\/core\/(backend|call|http1)\//,
  },
  {
    name: 'connections',
    files: ['test/transport/connections.test.ts'],
    of: /packages\/core\/(backend|call|body)\//,
  },
  {
    name: 'deadlines',
    files: ['test/spec/deadlines.test.ts'],
    of: /packages\/core\/(backend|call|body)\//,
    isTimed: true,
  },
  {
    name: 'answers',
    files: ['test/spec/backend-answers.test.ts', 'test/spec/malformed-answers.test.ts'],
    of: /packages\/core\/(backend|http1|body)\//,
  },
  {
    name: 'guards by themselves',
    files: [
      'test/unit/client-address.test.ts',
      'test/unit/cors.test.ts',
      'test/unit/cross-site.test.ts',
      'test/unit/host-names.test.ts',
      'test/unit/rate.test.ts',
      'test/unit/shared-count.test.ts',
      'test/unit/token-settings.test.ts',
      'test/unit/window-table.test.ts',
      'test/guards/key-set.test.ts',
      'test/guards/key-source.test.ts',
    ],
    of: /packages\/core\/(admission|guards)\//,
  },
  {
    name: 'guards at the door',
    files: [
      'test/spec/allowed-hosts.test.ts',
      'test/spec/cors.test.ts',
      'test/spec/cross-site-writes.test.ts',
      'test/spec/rate-limit.test.ts',
      'test/transport/guards.test.ts',
    ],
    of: /packages\/core\/(admission|guards)\//,
  },
  {
    name: 'tokens',
    files: ['test/guards/tokens.test.ts', 'test/guards/forged-tokens.test.ts'],
    of: /packages\/core\/guards\/(create-guards|tokens\/)/,
  },
  {
    name: 'guards in hosts',
    files: ['test/guards/hosts.test.ts', 'test/plugin/guards.test.ts'],
    of: /packages\/core\/(guards|hosts)\//,
  },
  {
    name: 'fetch handler',
    files: ['test/fetch/handler.test.ts'],
    of: /packages\/core\/hosts\/(fetch|common)\//,
  },
  {
    name: 'Fastify',
    files: [
      'test/plugin/unreadable-targets.test.ts',
      'test/plugin/log-and-ids.test.ts',
      'test/plugin/hook-replies.test.ts',
      'test/plugin/order.test.ts',
      'test/plugin/hooks-and-bodies.test.ts',
      'test/plugin/slow-bodies.test.ts',
      'test/plugin/connections.test.ts',
      'test/plugin/closing.test.ts',
      'test/spec/mounted.test.ts',
      'test/spec/closing.test.ts',
    ],
    of: /packages\/core\/hosts\/(fastify\/|node\/held-body|server)/,
    isTimed: true,
  },
  {
    name: 'HTTP/2',
    files: [
      'test/unit/frame-meter.test.ts',
      'test/transport/http2.test.ts',
      'test/transport/http2-attacks.test.ts',
      'test/transport/http2-guards.test.ts',
    ],
    of: /packages\/core\/hosts\/http2\//,
    isTimed: true,
  },
  {
    name: 'counting for workers',
    files: ['test/unit/primary-counter.test.ts', 'test/unit/primary-state.test.ts'],
    of: /packages\/(core\/guards\/rate-limit\/joined-count|command\/(cluster\/primary-counter|service\/keeper))\.ts/,
  },
  {
    name: 'slow clients',
    files: ['test/process/slow-clients.test.ts'],
    of: /packages\/core\/http1\/(server|server-connection|stall-watch)\.ts/,
    isCommand: true,
    isTimed: true,
  },
  {
    name: 'workers',
    files: ['test/process/workers.test.ts', 'test/process/rate-limit.test.ts'],
    of: /packages\/command\/cluster\//,
    isCommand: true,
    isTimed: true,
  },
];

/** Left out: tests of load, which take longer than a file of others, and two that need the built command. */
export const skippedTests = [
  '10,000 calls',
  '2,000 connections',
  'HOST is such a name',
  'a name that is none is a mistake at the start',
];

/** How long a test waits for what does not come, where it sets no limit of its own; see test/helpers/changes.ts. */
export const testDeadlineMs = 8_000;

/** Without the end of a test, a process hangs that has used so much processor time, or waited for so long. */
export const hangCpuMs = 8_000;
export const hangMs = 60_000;
