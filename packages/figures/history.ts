// Keeps the figures of the last 15 minutes, in steps of equal length. A step without traffic shares the figures of the
// step before it, and so needs almost no memory.

import {
  backendOutcomes,
  callOutcomes,
  faultOfBackendOutcome,
  outcomes,
  unsuccessfulAnswers,
  type BackendOutcome,
} from '../core/outcomes.ts';
import type { Failure, LastFailure } from './failures.ts';
import { figureNames, Figures } from './figures.ts';
import type { Report } from './report.ts';

export const historyMs = 900_000;
export const stepMs = 5_000;
// With fewer unsuccessful answers than this, one client could be at fault for all of them.
const noSuccessAnswersMin = 10;
const noSuccessMs = 300_000;

/** The sum of the figures of `reports`. */
export function addFigures(reports: readonly Pick<Report, 'figures'>[]): Figures {
  const sum = new Figures();
  for (const report of reports) {
    sum.add(new Figures(report.figures));
  }
  return sum;
}

/** All counts from the start until `at`, in milliseconds since 1970. */
interface Step {
  readonly at: number;
  readonly figures: Figures;
}

/** The counts between `from` and `at`, in milliseconds since 1970. */
export interface Stretch {
  readonly from: number;
  readonly at: number;
  readonly passed: Figures;
  /** True if no figure changed. */
  readonly isIdle: boolean;
}

type Culprit = 'backend' | 'gateway';

export class History {
  readonly #steps: Step[] = [];
  // The step before `#steps[0]`. At first this is the start, with all counts at zero.
  #before: Step;
  // For each party, the counts when its last failure was seen.
  readonly #marks = countCalls(new Figures());

  /** `startedAt` is in milliseconds since 1970. The caller records a step every `stepMs`. */
  constructor(startedAt: number) {
    this.#before = { at: startedAt, figures: new Figures() };
  }

  /** Records and returns the step that ends now. Returns undefined if no worker has reported its counts. */
  record(reports: readonly Report[]): Stretch | undefined {
    if (reports.length === 0) return undefined;
    const counted = addFigures(reports);
    this.#mark(counted);
    const last = this.#steps.at(-1) ?? this.#before;
    const stretch = stretchOf(last, counted);
    this.#steps.push({ at: stretch.at, figures: stretch.isIdle ? last.figures : counted });
    if (this.#steps.length > historyMs / stepMs) this.#before = this.#steps.shift() ?? this.#before;
    return stretch;
  }

  /** Returns the counts of about the last `ms`, or of the whole history if it is shorter. */
  since(ms: number, counted: Figures): Stretch {
    const at = Date.now() - ms;
    return stretchOf(this.#steps.findLast((step) => step.at <= at) ?? this.#before, counted);
  }

  /** True if the backend answered at least ten calls in the last 5 minutes, all of them without success [D51]. */
  hasNoSuccess(counted: Figures): boolean {
    const { passed } = this.since(noSuccessMs, counted);
    const count = (outcome: BackendOutcome): number =>
      figureNames.reduce((sum, name) => sum + passed.backendOutcomes(name, outcome), 0);
    return (
      count('ok') === 0 && unsuccessfulAnswers.reduce((sum, outcome) => sum + count(outcome), 0) >= noSuccessAnswersMin
    );
  }

  /** Returns the last failure that each party caused, or null. `failures` is sorted, the latest first. */
  lastFailures(counted: Figures, failures: readonly Failure[]): Record<Culprit, LastFailure | null> {
    this.#mark(counted);
    const count = countCalls(counted);
    const describe = (fault: Culprit): LastFailure | null => {
      const last = failures.find(({ party }) => party === fault);
      return last === undefined ? null : { at: last.at, callsSince: count[fault].well - this.#marks[fault].well };
    };
    return { backend: describe('backend'), gateway: describe('gateway') };
  }

  // Keeps the counts of each party with new failures. A count shrinks when a worker is killed. Then the code assumes
  // that the party has new failures.
  #mark(counted: Figures): void {
    const count = countCalls(counted);
    for (const fault of ['backend', 'gateway'] as const) {
      if (count[fault].failed !== this.#marks[fault].failed) this.#marks[fault] = count[fault];
    }
  }
}

function stretchOf(from: Step, counted: Figures): Stretch {
  return { from: from.at, at: Date.now(), passed: counted.since(from.figures), isIdle: !counted.isOther(from.figures) };
}

/**
 * Calls since the start. `failed`: calls that the party caused to fail. `well`: all other calls to the backend, except
 * cancelled calls.
 */
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
