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
import { figureNames, Figures, type FigureName } from './figures.ts';
import type { Reports } from './report.ts';

export const historyMs = 900_000;
export const minuteMs = 60_000;
export const stepMs = 5_000;
// With fewer unsuccessful answers than this, one client could be at fault for all of them.
const noSuccessAnswersMin = 10;
const noSuccessMs = 300_000;

export function addFigures({ living, ended }: Omit<Reports, 'isServing'>): Figures {
  return living.reduce((sum, { figures }) => sum.add(new Figures(figures)), new Figures(ended.figures));
}

/** All counts from the start until `at`, in milliseconds since 1970. */
interface Step {
  readonly at: number;
  readonly figures: Figures;
}

/** The counts between two times in milliseconds since 1970. */
export interface Stretch {
  readonly from: number;
  readonly at: number;
  readonly passed: Figures;
  readonly isIdle: boolean;
}

const culprits = ['backend', 'gateway'] as const;

type Culprit = (typeof culprits)[number];

export class History {
  // The first step is only the base: the counts at the moment when the history begins. At first they are all zero.
  readonly #steps: [Step, ...Step[]];
  // For each party, the counts when its last failure was seen.
  readonly #marks = countCalls(new Figures());

  /** `startedAt` is in milliseconds since 1970. The caller must call `record` every `stepMs`. */
  constructor(startedAt: number) {
    this.#steps = [{ at: startedAt, figures: new Figures() }];
  }

  /** Records and returns the step that ends now. */
  record(counted: Figures): Stretch {
    this.#mark(counted);
    const last = this.#steps.at(-1) ?? this.#steps[0];
    const stretch = stretchOf(last, counted);
    this.#steps.push({ at: stretch.at, figures: stretch.isIdle ? last.figures : counted });
    if (this.#steps.length > historyMs / stepMs + 1) this.#steps.shift();
    return stretch;
  }

  /** Returns the counts of about the last `ms`, or of the whole history if it is shorter. */
  since(ms: number, counted: Figures): Stretch {
    const at = Date.now() - ms;
    return stretchOf(this.#steps.findLast((step) => step.at <= at) ?? this.#steps[0], counted);
  }

  /** The minutes that ended within the last `ms`, one for each step, the latest first. */
  *minutes(ms: number, counted: Figures): Iterable<Stretch> {
    const ends = [...this.#steps.slice(1), { at: Date.now(), figures: counted }].reverse();
    for (const end of ends) {
      if (end.at <= Date.now() - ms) return;
      const start = this.#steps.findLast(({ at }) => at <= end.at - minuteMs) ?? this.#steps[0];
      yield { ...stretchOf(start, end.figures), at: end.at };
    }
  }

  /** The end of the last step in which `count` of the figures changed. */
  lastChange(counted: Figures, count: (figures: Figures) => number): number {
    const ends = [...this.#steps, { at: Date.now(), figures: counted }];
    return (
      ends.findLast(({ figures }, index) => count(figures) !== count(ends[index - 1]?.figures ?? figures))?.at ?? 0
    );
  }

  /** True if the backend answered at least ten calls in the last 5 minutes, all of them without success [D51]. */
  hasNoSuccess(counted: Figures): boolean {
    const { passed } = this.since(noSuccessMs, counted);
    return (
      countBackendCalls(passed, ['ok']) === 0 && countBackendCalls(passed, unsuccessfulAnswers) >= noSuccessAnswersMin
    );
  }

  /** Returns for each party the last failure that it caused, or null. `failures` is sorted, the latest first. */
  lastFailures(counted: Figures, failures: readonly Failure[]): Record<Culprit, LastFailure | null> {
    const count = this.#mark(counted);
    const describe = (fault: Culprit): LastFailure | null => {
      const last = failures.find(({ party }) => party === fault);
      return last === undefined ? null : { at: last.at, callsSince: count[fault].well - this.#marks[fault].well };
    };
    return { backend: describe('backend'), gateway: describe('gateway') };
  }

  // If a party has new failures, keeps its counts as its mark.
  #mark(counted: Figures): Record<Culprit, Count> {
    const count = countCalls(counted);
    for (const fault of culprits) {
      if (count[fault].failed !== this.#marks[fault].failed) this.#marks[fault] = count[fault];
    }
    return count;
  }
}

function stretchOf(from: Step, counted: Figures): Stretch {
  return { from: from.at, at: Date.now(), passed: counted.since(from.figures), isIdle: !counted.isOther(from.figures) };
}

interface Count {
  readonly failed: number;
  /** All other calls to the backend since the start, except cancelled calls. */
  readonly well: number;
}

const answeredOutcomes = backendOutcomes.filter((outcome) => outcome !== 'cancelled');
const backendFailures = backendOutcomes.filter((outcome) => faultOfBackendOutcome(outcome) === 'backend');
const gatewayFailures = callOutcomes.filter((outcome) => outcomes[outcome].fault === 'gateway');

function countCalls(figures: Figures): Record<Culprit, Count> {
  const answered = countBackendCalls(figures, answeredOutcomes);
  const failed = countBackendCalls(figures, backendFailures);
  const failedHere = sum(gatewayFailures, (outcome, name) => figures.outcomes(name, outcome));
  return { backend: { failed, well: answered - failed }, gateway: { failed: failedHere, well: answered } };
}

function countBackendCalls(figures: Figures, among: readonly BackendOutcome[]): number {
  return sum(among, (outcome, name) => figures.backendOutcomes(name, outcome));
}

function sum<Outcome>(among: readonly Outcome[], count: (outcome: Outcome, name: FigureName) => number): number {
  return among.reduce((all, outcome) => figureNames.reduce((some, name) => some + count(outcome, name), all), 0);
}
