// The tests that decide whether a mutant is killed. All of them run the source, not the built command, in separate
// processes. The first failure kills a mutant, so the fastest tests run first. Fast files share a process, since
// starting a process takes as long as running them.

export interface Batch {
  readonly name: string;
  readonly files: readonly string[];
  /** The sources whose mutants this batch tests; for other sources there are faster tests. */
  readonly of: RegExp;
  /** The host that the tests run against, as in test/helpers/targets.ts; default: the server in their process. */
  readonly target?: 'fetch' | 'http2' | 'node' | 'plugin';
  /** The gateway runs as a command (started from the source), not in the tests' process. */
  readonly isCommand?: boolean;
  /** The tests fork the source, which gets the active mutant from their environment. Its coverage is unknown. */
  readonly isForked?: boolean;
  /** The tests measure time: since the machine may be busy, only a repeated failure is a failure. */
  readonly isTimed?: boolean;
}

export const batches: readonly Batch[] = [
  {
    name: 'JSON',
    files: ['test/unit/json-pieces.test.ts', 'test/unit/json-memory.test.ts'],
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
    of: /packages\/core\/http1\/(node-internals|stall-watch)\.ts/,
  },
  {
    name: 'connections by themselves',
    files: [
      'test/transport/client-connection.test.ts',
      'test/transport/server-order.test.ts',
      'test/transport/server-bodies.test.ts',
      'test/transport/server-ends.test.ts',
      'test/transport/server-room.test.ts',
      'test/transport/server-times.test.ts',
      'test/transport/server-turns.test.ts',
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
    name: 'connections over TLS',
    files: ['test/transport/handshakes.test.ts', 'test/transport/tls.test.ts'],
    of: /packages\/core\/http1\/(handshake|node-internals|server|stall-watch)\.ts/,
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
      'test/spec/mounted.test.ts',
      'test/spec/observer.test.ts',
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
      'test/transport/client-leaves.test.ts',
      'test/transport/stall-watch.test.ts',
    ],
    of: /packages\/core\/(backend|call|http1)\//,
  },
  { name: 'connections', files: ['test/transport/connections.test.ts'], of: /packages\/core\/(backend|call|body)\// },
  {
    name: 'deadlines',
    files: ['test/spec/deadlines.test.ts'],
    of: /packages\/core\/(backend|call|body)\//,
    isTimed: true,
  },
  { name: 'answers', files: ['test/spec/backend-answers.test.ts'], of: /packages\/core\/(backend|http1|body)\// },
  {
    name: 'guards by themselves',
    files: [
      'test/unit/client-address.test.ts',
      'test/unit/cors.test.ts',
      'test/unit/cross-site.test.ts',
      'test/unit/host-names.test.ts',
      'test/unit/shared-count.test.ts',
      'test/unit/guard-settings.test.ts',
      'test/unit/redis-counter.test.ts',
      'test/unit/rate-limit.test.ts',
      'test/guards/key-set.test.ts',
      'test/guards/key-source.test.ts',
      'test/guards/create-guards.test.ts',
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
    of: /packages\/core\/guards\/(parts|tokens\/)/,
  },
  {
    name: 'Redis',
    files: ['test/guards/redis.test.ts'],
    of: /packages\/core\/guards\/rate-limit\/(part|redis-counter)/,
    isTimed: true,
  },
  {
    name: 'guards in hosts',
    files: ['test/unit/host-guards.test.ts', 'test/guards/hosts.test.ts', 'test/plugin/guards.test.ts'],
    of: /packages\/core\/(guards\/|hosts\/(common\/(fields|host-)|fastify\/fastify\.ts|fetch|node\/node-exchange|server))/,
  },
  {
    name: 'options',
    files: [
      'test/unit/host-options.test.ts',
      'test/unit/settings.test.ts',
      'test/unit/cors.test.ts',
      'test/unit/host-names.test.ts',
      'test/unit/client-address.test.ts',
      'test/unit/settings-doc.test.ts',
    ],
    of: /packages\/core\/(guards|hosts)\/options\//,
  },
  {
    name: 'options of hosts',
    files: [
      'test/node/handler.test.ts',
      'test/plugin/order.test.ts',
      'test/plugin/log-and-ids.test.ts',
      'test/transport/backend-client.test.ts',
    ],
    of: /packages\/core\/hosts\/(common\/host-gateway|options\/(host-options|limits|options|rows))/,
  },
  {
    name: 'command line',
    files: ['test/unit/cli.test.ts'],
    of: /packages\/core\/hosts\/options\/(accepted-values|similar)/,
  },
  {
    name: 'lines of failures',
    files: ['test/unit/failure-lines.test.ts'],
    of: /packages\/core\/hosts\/common\/failure-lines/,
  },
  {
    name: 'listening',
    files: ['test/transport/listen.test.ts', 'test/embedded-backend/listening.test.ts'],
    of: /packages\/core\/hosts\/(common\/(listen|start-error)|server)/,
    isTimed: true,
  },
  {
    name: 'server',
    files: ['test/unit/host-options.test.ts', 'test/transport/tls.test.ts', 'test/transport/guards.test.ts'],
    of: /packages\/core\/hosts\/server/,
    isTimed: true,
  },
  {
    name: 'fetch handler',
    files: ['test/fetch/handler.test.ts'],
    of: /packages\/core\/hosts\/(fetch|common\/(failure-lines|fields|host-gateway|piece-turns))/,
  },
  {
    name: 'calls of the fetch handler',
    files: [
      'test/spec/operations.test.ts',
      'test/spec/errors.test.ts',
      'test/spec/backend-requests.test.ts',
      'test/spec/cross-site-writes.test.ts',
      'test/spec/paths-and-methods.test.ts',
      'test/spec/request-body.test.ts',
    ],
    target: 'fetch',
    of: /packages\/core\/hosts\/fetch\//,
  },
  { name: 'Node handler', files: ['test/node/handler.test.ts'], of: /packages\/core\/hosts\/node\// },
  {
    name: 'calls of the Node handler',
    files: [
      'test/spec/operations.test.ts',
      'test/spec/errors.test.ts',
      'test/spec/request-body.test.ts',
      'test/transport/buffered-bytes.test.ts',
    ],
    target: 'node',
    of: /packages\/core\/hosts\/node\//,
  },
  {
    name: 'Fastify',
    files: [
      'test/plugin/unreadable-targets.test.ts',
      'test/plugin/log-and-ids.test.ts',
      'test/plugin/hook-replies.test.ts',
      'test/plugin/order.test.ts',
      'test/plugin/described-routes.test.ts',
      'test/plugin/hooks-and-bodies.test.ts',
      'test/plugin/connections.test.ts',
      'test/spec/mounted.test.ts',
    ],
    of: /packages\/core\/hosts\/(fastify\/|node\/)/,
    isTimed: true,
  },
  {
    name: 'open requests of Fastify',
    files: ['test/unit/open-requests.test.ts'],
    of: /packages\/core\/hosts\/fastify\/open-requests/,
  },
  {
    name: 'calls of Fastify',
    files: [
      'test/spec/operations.test.ts',
      'test/spec/errors.test.ts',
      'test/spec/request-body.test.ts',
      'test/transport/buffered-bytes.test.ts',
    ],
    target: 'plugin',
    of: /packages\/core\/hosts\/(fastify\/|node\/held-body)/,
  },
  {
    name: 'Fastify and slow clients',
    files: ['test/plugin/slow-bodies.test.ts', 'test/plugin/closing.test.ts'],
    of: /packages\/core\/hosts\/(fastify\/|node\/(held-body|node-exchange|linger|node-host))/,
    isTimed: true,
  },
  {
    name: 'bytes of HTTP/2',
    files: ['test/unit/frame-meter.test.ts', 'test/unit/http2-head.test.ts'],
    of: /packages\/core\/hosts\/http2\/(field-count|frame-meter|http2-head)/,
  },
  {
    name: 'connections of HTTP/2',
    files: ['test/unit/paced-socket.test.ts', 'test/transport/http2-connection.test.ts'],
    of: /packages\/core\/hosts\/http2\/(http2|paced)/,
  },
  {
    name: 'calls of HTTP/2',
    files: [
      'test/spec/operations.test.ts',
      'test/spec/errors.test.ts',
      'test/spec/paths-and-methods.test.ts',
      'test/spec/request-body.test.ts',
    ],
    target: 'http2',
    of: /packages\/core\/hosts\/http2\/http2/,
  },
  {
    name: 'HTTP/2',
    files: ['test/transport/http2.test.ts'],
    of: /packages\/core\/hosts\/http2\/(http2|paced)/,
    isTimed: true,
  },
  {
    name: 'attacks by HTTP/2',
    files: ['test/transport/http2-memory.test.ts', 'test/transport/http2-attacks.test.ts'],
    of: /packages\/core\/hosts\/http2\/(http2|paced)/,
    isTimed: true,
  },
  {
    name: 'counting for workers',
    files: ['test/unit/primary-state.test.ts'],
    of: /packages\/(core\/guards\/rate-limit\/count|command\/cluster\/primary-counter)\.ts/,
  },
  {
    name: 'slow clients',
    files: ['test/process/slow-clients.test.ts'],
    of: /packages\/core\/http1\/(server|server-connection|stall-watch)\.ts/,
    isCommand: true,
    isTimed: true,
  },
  {
    name: 'a worker, seen by its primary',
    files: ['test/unit/member.test.ts'],
    of: /packages\/command\/cluster\/member\.ts/,
    isTimed: true,
  },
  {
    name: 'a worker process',
    files: ['test/unit/worker.test.ts'],
    of: /packages\/command\/cluster\/(messages|worker)\.ts/,
    isForked: true,
    isTimed: true,
  },
  {
    name: 'pool of workers',
    files: ['test/process/pool.test.ts'],
    of: /packages\/command\/cluster\/pool\.ts/,
    isTimed: true,
  },
  {
    name: 'workers of the command',
    files: ['test/process/workers.test.ts'],
    of: /packages\/command\/cluster\/(member|messages|pool|worker)\.ts/,
    isCommand: true,
    isTimed: true,
  },
];

/** Skipped: a test that needs the built command. test/unit/structure.test.ts checks that each title is one of a test. */
export const skippedTests = ['a name in HOST is allowed; an IP address in HOST allows no name [D57]'];

/** How long a test waits for an event if it sets no limit itself, in ms; see test/helpers/changes.ts. */
export const testDeadlineMs = 8_000;

/** A process hangs if no test ends within this much processor time, or within this much time, in ms. */
export const hangCpuMs = 8_000;
export const hangMs = 30_000;
