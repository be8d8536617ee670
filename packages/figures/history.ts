// The figures of the last 15 minutes in steps, in a ring of fixed size. A step of a gateway at rest shares the figures of
// the one before it and costs nearly nothing.

import {
  backendOutcomes,
  callOutcomes,
  faultOfBackendOutcome,
  outcomes,
  unsuccessfulAnswers,
  type BackendOutcome,
} from '../core/outcomes.ts';
import type { Failure } from './failures.ts';
import { figureNames, Figures } from './figures.ts';
import type { Report } from './report.ts';

export const historyMs = 900_000;
// Fewer answers can be the mistakes of one client.
const noSuccessAnswersMin = 10;
const noSuccessMs = 300_000;

/** What all the processes of `reports` have counted, added up. */
export function addFigures(reports: readonly Pick<Report, 'figures'>[]): Figures {
  const sum = new Figures();
  for (const report of reports) {
    sum.add(new Figures(report.figures));
  }
  return sum;
}

/** What was counted up to a moment, which is in milliseconds since 1970. */
interface Step {
  readonly at: number;
  readonly figures: Figures;
}

/** What was counted between two moments, which are in milliseconds since 1970. */
export interface Stretch {
  readonly from: number;
  readonly at: number;
  readonly passed: Figures;
  /** Nothing was counted. */
  readonly isIdle: boolean;
}

interface LastFailure {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Calls to the backend that have come through since; a few of the latest may not be counted yet. */
  readonly callsSince: number;
}

type Culprit = 'backend' | 'gateway';

export class History {
  readonly stepMs: number;
  readonly #steps: Step[] = [];
  // What the first step is compared with: the start, and later the step that has just left the ring.
  #before: Step;
  // How things stood when a failure of each was last seen.
  readonly #marks = countCalls(new Figures());

  /** `startedAt` is in milliseconds since 1970; a step is to be recorded every `stepMs`. */
  constructor(startedAt: number, stepMs: number) {
    this.stepMs = stepMs;
    this.#before = { at: startedAt, figures: new Figures() };
  }

  /** Takes a step that ends now, and gives it; undefined where no worker answers: what they count is not known. */
  record(reports: readonly Report[]): Stretch | undefined {
    if (reports.length === 0) {
      return undefined;
    }
    const counted = addFigures(reports);
    this.#mark(counted);
    const last = this.#steps.at(-1) ?? this.#before;
    const stretch = stretchOf(last, counted);
    this.#steps.push({ at: stretch.at, figures: stretch.isIdle ? last.figures : counted });
    if (this.#steps.length > historyMs / this.stepMs) {
      this.#before = this.#steps.shift() ?? this.#before;
    }
    return stretch;
  }

  /** What has been counted in about the last `ms`, as far back as is known. */
  since(ms: number, counted: Figures): Stretch {
    const at = Date.now() - ms;
    return stretchOf(this.#steps.findLast((step) => step.at <= at) ?? this.#before, counted);
  }

  /** Whether the backend answered calls of the last 5 minutes, and none of them with success [D51]. */
  hasNoSuccess(counted: Figures): boolean {
    const { passed } = this.since(noSuccessMs, counted);
    const count = (outcome: BackendOutcome): number =>
      figureNames.reduce((sum, name) => sum + passed.backendOutcomes(name, outcome), 0);
    return (
      count('ok') === 0 &&
      unsuccessfulAnswers.reduce((sum, outcome) => sum + count(outcome), 0) >= noSuccessAnswersMin
    );
  }

  /** When each last failed a call, null where it never did; `failures` has the latest first. */
  lastFailures(counted: Figures, failures: readonly Failure[]): Record<Culprit, LastFailure | null> {
    this.#mark(counted);
    const count = countCalls(counted);
    const describe = (fault: Culprit): LastFailure | null => {
      const last = failures.find(({ party }) => party === fault);
      return last === undefined
        ? null
        : { at: last.at, callsSince: count[fault].well - this.#marks[fault].well };
    };
    return { backend: describe('backend'), gateway: describe('gateway') };
  }

  // A count that has shrunk (a worker was killed) says nothing of when: as if it had failed again.
  #mark(counted: Figures): void {
    const count = countCalls(counted);
    for (const fault of ['backend', 'gateway'] as const) {
      if (count[fault].failed !== this.#marks[fault].failed) {
        this.#marks[fault] = count[fault];
      }
    }
  }
}

function stretchOf(from: Step, counted: Figures): Stretch {
  return {
    from: from.at,
    at: Date.now(),
    passed: counted.since(from.figures),
    isIdle: !counted.isOther(from.figures),
  };
}

/** Calls since the start that someone has failed, and those that came through. */
interface Count {
  readonly failed: number;
  readonly well: number;
}

function countCalls(figures: Figures): Record<Culprit, Count> {
  let answered = 0;
  let failedByBackend = 0;
  let failedByGateway = 0;
  for (const name of figureNames) {
    for (const outcome of backendOutcomes) {
      const calls = figures.backendOutcomes(name, outcome);
      answered += outcome === 'cancelled' ? 0 : calls;
      failedByBackend += faultOfBackendOutcome(outcome) === 'backend' ? calls : 0;
    }
    for (const outcome of callOutcomes) {
      failedByGateway += outcomes[outcome].fault === 'gateway' ? figures.outcomes(name, outcome) : 0;
    }
  }
  return {
    backend: { failed: failedByBackend, well: answered - failedByBackend },
    gateway: { failed: failedByGateway, well: answered },
  };
}
