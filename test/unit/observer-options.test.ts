// The options `observer` and `log`: what a developer's code learns about requests, in every host [D50, D51].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { inspect } from 'node:util';
import { pino } from 'pino';
import { logCall } from '../../packages/command/log/call-line.ts';
import { createLogger } from '../../packages/command/log/log.ts';
import type { CallRecord as Call } from '../../packages/core/call/call-record.ts';
import type { CallRecord, GatewayObserver } from '../../packages/core/hosts/index.ts';
import { joinObservers } from '../../packages/core/hosts/common/observers.ts';
import { observerRows } from '../../packages/core/options/observer-options.ts';
import { Problem } from '../../packages/core/options/problem.ts';
import { operations } from '../../packages/core/operations.ts';
import { createCallRecord } from '../helpers/call-record.ts';
import { createObserver } from '../helpers/gateway.ts';

const read = createCallRecord({
  operation: operations.find(({ name }) => name === 'read'),
  subject: 'ada',
  agent: 'curl/8',
  status: 200,
  outcome: 'ok',
  durationMs: 12.34567,
  backendOutcome: 'ok',
  backendStatus: 200,
  backendDurationMs: 11.00049,
  replyBytes: 432,
});

/** Returns the record of `call` that an observer gets. */
function recordOf(call: Call): CallRecord {
  const records: CallRecord[] = [];
  joinObservers(undefined, { onCallEnd: (record) => records.push(record) }).onCallEnd(call);
  return records[0] ?? assert.fail();
}

/** Collects the lines of a logger in JSON. */
function collect() {
  const lines: Record<string, unknown>[] = [];
  return { lines, stream: { write: (line: string) => void lines.push(JSON.parse(line) as (typeof lines)[number]) } };
}

describe('the record of a call', () => {
  for (const [name, call] of [
    ['a read', read],
    ['a request without an operation', createCallRecord({ status: 404, outcome: 'no-operation' })],
    ['a failure', { ...read, status: 500, outcome: 'refused', cause: 'status 503', reason: 'status' }],
    ['a bug', { ...read, status: 500, outcome: 'bug', cause: new TypeError('broken') }],
  ] as const) {
    test(`as JSON, ${name} has the fields of the command's log line`, () => {
      const { lines, stream } = collect();
      logCall(createLogger('info', stream), call, true);
      const { level, time, pid, worker, version, msg, ...fields } = lines[0] ?? {};
      assert.ok(level !== undefined && time !== undefined && msg !== undefined, `${String(pid)}${String(worker)}`);
      assert.equal(version, undefined);
      assert.deepEqual(JSON.parse(JSON.stringify(recordOf(call))), fields);
    });
  }

  test('spread, structuredClone and loggers show method, path, client, subject, agent and version', () => {
    const record = recordOf(read);
    const shown = { method: 'GET', path: '/api/work-items/5', client: '127.0.0.1', subject: 'ada', agent: 'curl/8' };
    const wanted = { ...shown, http: '1.1', status: 200, operation: { name: 'read' } };
    for (const copy of [{ ...record }, structuredClone(record), Object.assign({}, record)]) {
      assert.partialDeepStrictEqual(copy, wanted);
      assert.equal('toJSON' in copy && Object.hasOwn(copy, 'toJSON'), false);
    }
    for (const text of Object.values(shown)) assert.ok(inspect(record).includes(`'${text}'`), text);
    const { lines, stream } = collect();
    const logger = pino({}, stream);
    logger.info(record, 'call');
    logger.info({ call: record });
    logger.info(record.toJSON());
    assert.partialDeepStrictEqual(lines[0], wanted);
    assert.partialDeepStrictEqual(lines[1]?.['call'], { ...shown, operation: 'read' });
    assert.partialDeepStrictEqual(lines[2], { ...shown, operation: 'read' });
  });

  test('a cause of any type can be written as JSON', () => {
    const loop: Record<string, unknown> = { big: 5n };
    loop['loop'] = loop;
    for (const cause of [loop, 5n, Symbol('a'), null, () => 5, Object.create(null) as object]) {
      for (const outcome of ['bug', 'refused'] as const) {
        const { cause: written, err } = JSON.parse(JSON.stringify(recordOf({ ...read, outcome, cause }))) as {
          cause?: unknown;
          err?: { message: unknown };
        };
        assert.equal(typeof (outcome === 'bug' ? err?.message : written), 'string');
      }
    }
  });

  test('a record does not change with the call, and onStall and onBug get the same record', () => {
    const call = { ...read };
    const { told, observer } = createObserver();
    const joined = joinObservers(undefined, observer);
    joined.onCallEnd(call);
    call.path = '/other';
    joined.onStall(call);
    Object.assign(call, { outcome: 'bug', cause: 'late' });
    joined.onBug(new Error('late'), call);
    assert.equal(told.stalled[0], told.ended[0]);
    assert.equal(told.bugs[0]?.[1], told.ended[0]);
    assert.partialDeepStrictEqual(told.ended[0], { path: '/api/work-items/5', outcome: 'bug', cause: 'late' });
  });

  test('if onCallEnd freezes its record, onBug gets another record with the fault', () => {
    const call = { ...read };
    const ended: unknown[] = [];
    const joined = joinObservers(undefined, {
      onCallEnd: (record) => void Object.freeze(record),
      onBug: (_error, record) => void ended.push(record),
    });
    joined.onCallEnd(call);
    Object.assign(call, { outcome: 'bug', cause: 'late' });
    joined.onBug(new Error('late'), call);
    assert.partialDeepStrictEqual(ended, [{ outcome: 'bug', cause: 'late' }]);
  });
});

describe('the option observer', () => {
  const problemOf = (given: unknown): string => {
    const accepted = observerRows.observer.kind.accept(given as GatewayObserver);
    if (accepted instanceof Problem) return accepted.text;
    assert.equal(accepted, given);
    return '';
  };
  const act = () => undefined;
  const list = 'onCallEnd, onMalformed, onStall, onBug, onOutage';
  class Counter {
    readonly counts = new Map<string, number>();
    onCallEnd({ outcome }: CallRecord): void {
      this.counts.set(outcome, 1);
    }
  }
  class Misspelt extends Counter {
    onCallEnded = act;
  }

  test('every function is optional', () => {
    for (const given of [
      {},
      { onCallEnd: act },
      { onOutage: act, onStall: undefined },
      Object.create(null),
      new Counter(),
    ]) {
      assert.equal(problemOf(given), '');
    }
  });

  test('an unknown name, and a value that is not a function, are refused', () => {
    for (const [given, problem] of [
      [{ onCallEnded: act }, 'has the unknown name onCallEnded: did you mean onCallEnd?'],
      [{ onCallEnd: act, log: act }, 'has the unknown name log'],
      [new Misspelt(), 'has the unknown name onCallEnded: did you mean onCallEnd?'],
      [{ onCallEnd: 'log' }, 'must have a function as onCallEnd'],
      [{ onBug: null }, 'must have a function as onBug'],
      [new Map(), `must have one of the functions ${list}`],
      ...[null, 'observer', act, [act], 5].map(
        (given) => [given, `must be an object with functions among ${list}`] as const,
      ),
    ] as const) {
      assert.equal(problemOf(given), problem);
    }
  });

  test('the log of failures and the observer both get an event, even if one of them throws', () => {
    const got: string[] = [];
    const failing = (name: string) => () => {
      got.push(name);
      throw new Error(name);
    };
    const joined = joinObservers(
      {
        onCallEnd: failing('log'),
        onMalformed: act,
        onStall: act,
        onBug: failing('log of bugs'),
        onOutage: failing('log'),
      },
      { onCallEnd: failing('ended'), onBug: failing('bug'), onOutage: failing('outage') },
    );
    assert.throws(() => joined.onCallEnd(read), /ended/);
    assert.throws(() => joined.onBug(new Error(), undefined), /bug/);
    assert.throws(() => joined.onOutage?.('keys', 'cause'), /outage/);
    assert.deepEqual(got, ['log', 'ended', 'log of bugs', 'bug', 'log', 'outage']);
  });

  test('a promise that rejects goes to onBug once, and does not end the process', async () => {
    const bugs: unknown[] = [];
    const { promise: reported, resolve } = Promise.withResolvers<undefined>();
    const reject = (text: string) => Promise.reject(new Error(text)) as never;
    const joined = joinObservers(undefined, {
      onStall: () => reject('stall'),
      onBug: (error) => {
        bugs.push(error);
        resolve(undefined);
        return reject('bug');
      },
    });
    joined.onStall(read);
    await reported;
    await new Promise((turn) => setImmediate(turn));
    assert.deepEqual(bugs.map(String), ['Error: stall']);
  });
});
