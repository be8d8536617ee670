// The error for one value of an option.

export class Problem {
  /** Follows the option's name in a message: `must be a host name`. */
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}
