// What is wrong with one value of an option. Imports nothing.

export class Problem {
  /** As it stands behind the option's name: `must be a host name`. */
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}
