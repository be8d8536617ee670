// What is wrong with one value of a setting. Imports nothing.

export class Problem {
  /** What it must be, as it stands behind `must be`. */
  readonly expectation: string;
  constructor(expectation: string) {
    this.expectation = expectation;
  }
}
