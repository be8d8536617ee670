// The options `observer` and `log`: what a developer's code learns about requests in every host, and the lines on stderr
// of hosts without an observer [D50, D51].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { inspect } from 'node:util';
import { pino } from 'pino';
import { logCall } from '../../packages/command/log/call-line.ts';
import { createLogger } from '../../packages/command/log/log.ts';
import { outageTexts } from '../../packages/core/guards/ports/ports.ts';
import { HostMistake, linesMax, periodMs, writeFailureLines } from '../../packages/core/hosts/common/failure-lines.ts';
import type { CallRecord, GatewayObserver } from '../../packages/core/hosts/index.ts';
import { joinObservers } from '../../packages/core/hosts/common/observers.ts';
import { observerRows } from '../../packages/core/options/observer-options.ts';
import { Problem } from '../../packages/core/options/problem.ts';
import { operations } from '../../packages/core/operations.ts';
import { callOutcomes, outcomes } from '../../packages/core/outcomes.ts';
import { createCallRecord } from '../helpers/call-record.ts';
import { createObserver } from '../helpers/gateway.ts';

const read = createCallRecord({
  ...{ operation: operations.find(({ name }) => name === 'read'), subject: 'ada', agent: 'curl/8', status: 200 },
  ...{ outcome: 'ok', durationMs: 12.34567, backendOutcome: 'ok', backendStatus: 200, backendDurationMs: 11.00049 },
  replyBytes: 432,
});

/** Returns the record of `call` that an observer gets. */
function recordOf(call: ReturnType<typeof createCallRecord>): CallRecord {
  const { told, observer } = createObserver();
  joinObservers(undefined, observer).onCallEnd(call);
  return told.ended[0] ?? assert.fail();
}

/** Collects the lines of a logger in JSON. */
function collect() {
  const lines: Record<string, unknown>[] = [];
  return { lines, stream: { write: (line: string) => void lines.push(JSON.parse(line) as (typeof lines)[number]) } };
}

describe('the record of a call', () => {
  test("as JSON, it has the fields of the command's log line", () => {
    for (const call of [
      read,
      createCallRecord({ status: 404, outcome: 'no-operation' }),
      { ...read, status: 500, outcome: 'refused', cause: 'status 503', reason: 'status' } as const,
      { ...read, status: 500, outcome: 'bug', cause: new TypeError('broken') } as const,
    ]) {
      const { lines, stream } = collect();
      logCall(createLogger('info', stream), call, true);
      const { level, time, pid, msg, ...fields } = lines[0] ?? {};
      assert.ok([level, time, pid, msg].every((each) => each !== undefined));
      assert.deepEqual(JSON.parse(JSON.stringify(recordOf(call))), fields);
    }
  });

  test('spread, structuredClone and loggers show method, path, client, subject, agent and version', () => {
    const record = recordOf(read);
    const shown = { method: 'GET', path: '/api/work-items/5', client: '127.0.0.1', subject: 'ada', agent: 'curl/8' };
    const wanted = { ...shown, http: '1.1', status: 200, operation: { name: 'read' } };
    for (const copy of [{ ...record }, structuredClone(record), Object.assign({}, record)]) {
      assert.partialDeepStrictEqual(copy, wanted);
      assert.equal(Object.hasOwn(copy, 'toJSON'), false);
    }
    for (const text of Object.values(shown)) assert.ok(inspect(record).includes(`'${text}'`), text);
    const { lines, stream } = collect();
    const logger = pino({}, stream);
    logger.info(record, 'call');
    logger.info({ call: record });
    logger.info(record.toJSON());
    assert.partialDeepStrictEqual(lines, [
      wanted,
      { call: { ...shown, operation: 'read' } },
      { ...shown, operation: 'read' },
    ]);
  });

  test('a cause of any type can be written as JSON', () => {
    const loop: Record<string, unknown> = { big: 5n };
    loop['loop'] = loop;
    for (const cause of [loop, 5n, Symbol('a'), null, () => 5, Object.create(null) as object]) {
      const [bug, refused] = (['bug', 'refused'] as const).map(
        (outcome) => JSON.parse(JSON.stringify(recordOf({ ...read, outcome, cause }))) as CallRecord & { err: Error },
      );
      assert.deepEqual([typeof bug?.err.message, typeof refused?.cause], ['string', 'string']);
    }
  });

  test('it does not change with the call; onStall and onBug get the same record, or a new one if it is frozen', () => {
    for (const isFrozen of [false, true]) {
      const call = { ...read };
      const { told, observer } = createObserver();
      const onCallEnd = (record: CallRecord) => observer.onCallEnd(isFrozen ? Object.freeze(record) : record);
      const joined = joinObservers(undefined, { ...observer, onCallEnd });
      joined.onCallEnd(call);
      call.path = '/other';
      joined.onStall(call);
      Object.assign(call, { outcome: 'bug', cause: 'late' });
      joined.onBug(new Error('late'), call);
      for (const each of [told.stalled[0], told.bugs[0]?.[1]]) assert.equal(each === told.ended[0], !isFrozen);
      assert.partialDeepStrictEqual(told.bugs[0]?.[1], { outcome: 'bug', cause: 'late' });
      if (!isFrozen) assert.equal(told.ended[0]?.path, '/api/work-items/5');
    }
  });
});

describe('the option observer', () => {
  const act = () => undefined;

  test('every function is optional; an unknown name, and a value that is not a function, are refused', () => {
    class Counter {
      readonly counts = new Map<string, number>();
      onCallEnd = act;
    }
    class Misspelt extends Counter {
      onCallEnded = act;
    }
    const list = 'onCallEnd, onMalformed, onStall, onBug, onOutage';
    for (const [given, problem] of [
      ...[{}, { onCallEnd: act }, { onOutage: act, onStall: undefined }].map((each) => [each, undefined] as const),
      ...[Object.create(null) as object, new Counter()].map((each) => [each, undefined] as const),
      [{ onCallEnded: act }, 'has the unknown name onCallEnded: did you mean onCallEnd?'],
      [{ onCallEnd: act, log: act }, 'has the unknown name log'],
      [new Misspelt(), 'has the unknown name onCallEnded: did you mean onCallEnd?'],
      [{ onCallEnd: 'log' }, 'must have a function as onCallEnd'],
      [{ onBug: null }, 'must have a function as onBug'],
      [new Map(), `must have one of the functions ${list}`],
      ...[null, 'observer', act, [act], 5].map(
        (each) => [each, `must be an object with functions among ${list}`] as const,
      ),
    ] as const) {
      const accepted = observerRows.observer.kind.accept(given as GatewayObserver);
      if (problem === undefined) assert.equal(accepted, given);
      else assert.equal(accepted instanceof Problem && accepted.text, problem);
    }
  });

  test('the log of failures and the observer both get an event, even if one of them throws', () => {
    const got: string[] = [];
    const failing = (name: string) => () => {
      got.push(name);
      throw new Error(name);
    };
    const log = {
      onCallEnd: failing('log'),
      onMalformed: act,
      onStall: act,
      onBug: failing('bugs'),
      onOutage: failing('out'),
    };
    const joined = joinObservers(log, {
      onCallEnd: failing('ended'),
      onBug: failing('bug'),
      onOutage: failing('outage'),
    });
    assert.throws(() => joined.onCallEnd(read), /ended/);
    assert.throws(() => joined.onBug(new Error(), undefined), /bug/);
    assert.throws(() => joined.onOutage?.('keys', 'cause'), /outage/);
    assert.deepEqual(got, ['log', 'ended', 'bugs', 'bug', 'out', 'outage']);
  });

  test('a promise that rejects goes to onBug once, and does not end the process', async () => {
    const bugs: unknown[] = [];
    const reported = Promise.withResolvers<undefined>();
    const reject = (text: string) => Promise.reject(new Error(text)) as never;
    const joined = joinObservers(undefined, {
      onStall: () => reject('stall'),
      onBug: (error) => {
        bugs.push(error);
        reported.resolve(undefined);
        return reject('bug');
      },
    });
    joined.onStall(read);
    await reported.promise;
    await new Promise((turn) => setImmediate(turn));
    assert.deepEqual(bugs.map(String), ['Error: stall']);
  });
});

describe('lines on stderr', () => {
  const start = 'work-item-gateway: GET /api/work-items/5 (request id the-id) got';

  function observe() {
    const lines: string[] = [];
    return { lines, observer: writeFailureLines((line) => lines.push(line)) };
  }

  test('each failure of the backend or the gateway, and no other outcome, is a line with request, outcome and cause', () => {
    for (const outcome of callOutcomes) {
      const { lines, observer } = observe();
      observer.onCallEnd(createCallRecord({ outcome }));
      observer.onCallEnd(createCallRecord({ outcome, status: 0, cause: 'connect ECONNREFUSED 127.0.0.1:5104' }));
      const { fault, meaning } = outcomes[outcome];
      const expected = [
        `${start} 500, outcome ${outcome}: ${meaning}.`,
        `${start} no reply, outcome ${outcome}: ${meaning}. Cause: connect ECONNREFUSED 127.0.0.1:5104.`,
      ];
      assert.deepEqual(lines, ['backend', 'gateway'].includes(fault) ? expected : []);
    }
  });

  test('a bug has its stack in one line; a mistake of the host has its message, without advice', () => {
    const { lines, observer } = observe();
    const [mistake, error, bare] = [new HostMistake('put it first'), new Error('broken'), new HostMistake('bare')];
    delete bare.stack;
    observer.onBug(error, createCallRecord({ outcome: 'ok' }));
    observer.onBug(error, undefined);
    observer.onCallEnd(createCallRecord({ outcome: 'bug', cause: mistake }));
    observer.onCallEnd(createCallRecord({ outcome: 'bug', cause: bare }));
    const [late = '', none = '', first = '', second] = lines;
    assert.match(late, /bug: .*\/api\/work-items\/5.*the-id.*Error: broken\\u000a +at /);
    assert.match(none, /bug: a fault after the reply\. Cause: Error: broken/);
    assert.match(first, /got 500, outcome bug: Error: put it first\\u000a +at [^:]*:/);
    assert.equal(second, `${start} 500, outcome bug: bare`);
    assert.doesNotMatch(lines.join(''), /\n/);
  });

  test('an outage has a line at its beginning and at its end; a line is cut at 2,000 characters; control characters are escaped', () => {
    const { lines, observer } = observe();
    for (const what of ['keys', 'redis'] as const) {
      observer.onOutage?.(what, 'it is down');
      observer.onOutage?.(what, undefined);
      const { begins, ends } = outageTexts[what];
      assert.deepEqual(lines.splice(0), [
        `work-item-gateway: ${begins}. Cause: it is down.`,
        `work-item-gateway: ${ends}.`,
      ]);
    }
    observer.onOutage?.('keys', 'x');
    const rest = 2_000 - (lines[0] ?? '').length;
    for (const more of [rest, rest + 1]) observer.onOutage?.('keys', 'x'.repeat(1 + more));
    assert.equal(lines[1]?.length, 2_000);
    assert.equal(lines[2], `${lines[1].slice(0, -1)}x…`);
    const path = '/\u001b[2J\r\nwork-item-gateway: ok';
    observer.onCallEnd(createCallRecord({ path, cause: 'x\u2028\u202e' }));
    assert.doesNotMatch(lines[3] ?? '', /[\p{Cc}\u2028\u202e]/u);
    assert.match(lines[3] ?? '', /\/\\u001b\[2J\\u000d\\u000awork-item-gateway: ok/);
  });

  test('a dead backend causes few lines; further failures are only counted', (context) => {
    context.mock.timers.enable({ apis: ['setTimeout'] });
    const { lines, observer } = observe();
    const fail = (count: number) => {
      for (let failed = 0; failed < count; failed += 1)
        observer.onCallEnd(createCallRecord({ outcome: 'unreachable' }));
    };
    fail(5_000);
    assert.equal(lines.length, linesMax);
    context.mock.timers.tick(periodMs);
    assert.equal(lines.length, linesMax + 1);
    assert.match(lines.at(-1) ?? '', /^work-item-gateway: 4990 more failed in the last 10 s/);
    // The line with the count is the first of the `linesMax` lines of the next period.
    fail(linesMax);
    assert.equal(lines.length, 2 * linesMax);
    context.mock.timers.tick(periodMs);
    context.mock.timers.tick(periodMs);
    assert.match(lines.at(-1) ?? '', /: 1 more failed/);
    fail(1);
    assert.match(lines.at(-1) ?? '', /, outcome unreachable: /);
  });
});
