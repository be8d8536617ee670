// What the flags of the check ask for.

import { defaultTemplate, readTemplate, type Template } from './template.ts';

interface ContractWishes {
  /** Undefined: nothing is to be written. */
  readonly write: Template | undefined;
  readonly isJson: boolean;
}

/** What the flags given ask for, and what is wrong with them. */
export function readWishes(given: Readonly<Record<string, string | true>>): {
  readonly wishes: ContractWishes;
  readonly problems: readonly string[];
} {
  const problems: string[] = [];
  const has = (flag: string): boolean => Object.hasOwn(given, flag);
  for (const flag of has('--contract') ? [] : ['--write', '--body', '--json'].filter(has)) {
    problems.push(`${flag} needs --contract`);
  }
  const body = given['--body'];
  if (has('--contract') && body !== undefined && !has('--write')) {
    problems.push('--body needs --write: without it nothing is created');
  }
  const template =
    body === undefined ? defaultTemplate : body === true ? '--body needs a value' : readTemplate(body);
  if (typeof template === 'string') {
    problems.push(template);
  }
  const isWritten = has('--write') && typeof template !== 'string';
  return { wishes: { write: isWritten ? template : undefined, isJson: has('--json') }, problems };
}
