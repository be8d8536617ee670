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
    of: /src\/json\//,
  },
  { name: 'JSON properties', files: ['test/unit/json-properties.test.ts'], of: /src\/json\// },
  {
    name: 'bytes of HTTP',
    files: [
      'test/wire/grammar.test.ts',
      'test/wire/reader.test.ts',
      'test/wire/vectors.test.ts',
      'test/wire/splits.test.ts',
      'test/wire/writer.test.ts',
      'test/wire/repeated-text.test.ts',
    ],
    of: /src\/wire\/(fields|grammar|head|reader|repeated-text|writer)\.ts/,
  },
  { name: 'tables of sockets', files: ['test/wire/tcp-table.test.ts'], of: /src\/wire\/tcp-table\.ts/ },
  {
    name: 'connections by themselves',
    files: [
      'test/transport/client-connection.test.ts',
      'test/transport/server-connection.test.ts',
      'test/transport/server-connection-turns.test.ts',
    ],
    of: /src\/wire\//,
    isTimed: true,
  },
  {
    name: 'opening sockets',
    files: ['test/transport/open-socket.test.ts'],
    of: /src\/wire\/client-connection\.ts/,
  },
  {
    name: 'limit on connections',
    files: ['test/transport/connection-limit.test.ts'],
    of: /src\/wire\/(server|server-connection)\.ts/,
  },
  {
    name: 'connections over TLS',
    files: ['test/transport/handshakes.test.ts', 'test/transport/tls.test.ts'],
    of: /src\/wire\/(handshake|server|stall-watch|tcp-table)\.ts/,
    isTimed: true,
  },
  {
    name: 'work',
    files: ['test/wire/work.test.ts'],
    of: /src\/wire\/(fields|grammar|head|reader|writer)\.ts/,
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
    of: /src\/(backend\/|gateway\/|body|blocks)/,
  },
  {
    name: 'HTTP through the gateway',
    files: [
      'test/spec/malformed-http.test.ts',
      'test/transport/interim-answers.test.ts',
      'test/transport/client-leaves.test.ts',
      'test/transport/stall-watch.test.ts',
    ],
    of: /src\/(backend\/|gateway\/|wire\/)/,
  },
  {
    name: 'connections',
    files: ['test/transport/connections.test.ts'],
    of: /src\/(backend\/|gateway\/|body|blocks)/,
  },
  {
    name: 'deadlines',
    files: ['test/spec/deadlines.test.ts'],
    of: /src\/(backend\/|gateway\/|body|blocks)/,
    isTimed: true,
  },
  {
    name: 'answers',
    files: ['test/spec/backend-answers.test.ts', 'test/spec/malformed-answers.test.ts'],
    of: /src\/(backend\/|wire\/|body|blocks)/,
  },
  {
    name: 'slow clients',
    files: ['test/process/slow-clients.test.ts'],
    of: /src\/wire\/(server|server-connection|stall-watch)\.ts/,
    isCommand: true,
    isTimed: true,
  },
];

/** Left out: about load more than about behaviour, and longer than a file of others. */
export const skippedTests = ['10,000 calls', '2,000 connections'];

/** How long a test waits for what does not come, where it sets no limit of its own; see test/helpers/changes.ts. */
export const testDeadlineMs = 8_000;

/** Without the end of a test, a process hangs that has used so much processor time, or waited for so long. */
export const hangCpuMs = 8_000;
export const hangMs = 60_000;
