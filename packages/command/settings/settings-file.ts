// Reads a settings file: one VARIABLE=value per line [D32]. Node's `parseEnv` is not used, because it cuts values at `#`
// and after quotes, and skips invalid lines, all silently.

import { readFileSync } from 'node:fs';

import { quoteIfPlain } from '../../core/options/accepted-values.ts';
import { suggest } from '../../core/options/similar.ts';
import { settingNames, variableOf } from './settings.ts';

const known = settingNames.filter((each) => each !== 'settingsFile').map(variableOf);

/** Returns the variables of the file. Adds all problems of the file to `problems`; none of them shows a value. */
export function readSettingsFile(name: string, problems: string[]): NodeJS.Dict<string> {
  const variables: NodeJS.Dict<string> = {};
  if (name === '') return variables;
  const lineOf = new Map<string, number>();
  for (const [index, line] of readText(name, problems).split(/\r?\n/).entries()) {
    const number = index + 1;
    const [, variable, text = ''] = assignmentForm.exec(line) ?? [];
    if (emptyForm.test(line)) continue;
    if (variable === undefined || controlForm.test(line)) {
      problems.push(`line ${number} of the settings file is not VARIABLE=value`);
      continue;
    }
    if (!known.includes(variable)) {
      // Shows only text that looks like a variable: a mistyped line can have anything before its `=`, even a password.
      const isName = /^[A-Z_]{1,40}$/i.test(variable);
      const isShown = isName && variable === variable.toUpperCase();
      const named = isShown ? `${variable} in` : `the name (not shown) in line ${number} of`;
      const similar = isName ? suggest(variable.toUpperCase(), known) : '';
      problems.push(`${named} the settings file is not a setting that a settings file can have${similar}`);
      continue;
    }
    const first = lineOf.get(variable);
    if (first !== undefined) {
      problems.push(`${variable} is in the settings file twice, in lines ${first} and ${number}: remove one of them`);
    }
    lineOf.set(variable, number);
    const value = parseValue(text);
    if (value === undefined) {
      problems.push(`${variable} in the settings file has a quotation mark that is not closed on its line`);
      // The next lines may be inside the quotes, so they are not parsed.
      break;
    }
    if (value.rest !== '') problems.push(`${variable} in the settings file has text after its closing quotation mark`);
    variables[variable] = value.text;
  }
  return variables;
}

function readText(name: string, problems: string[]): string {
  const shown = quoteIfPlain(name);
  const subject = `SETTINGS_FILE${shown === undefined ? '' : ` is ${shown}, which`}`;
  try {
    // The decoder skips a byte-order mark.
    const text = new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(name));
    if (!text.includes('\0')) return text;
    problems.push(`${subject} is not UTF-8 text`);
  } catch (error) {
    const { code = String(error) } = error as NodeJS.ErrnoException;
    problems.push(
      code === 'ERR_ENCODING_INVALID_ENCODED_DATA'
        ? `${subject} is not UTF-8 text`
        : `${subject} cannot be read (${code})`,
    );
  }
  return '';
}

// A blank line or a comment.
const emptyForm = /^\s*(?:#.*)?$/;
const assignmentForm = /^\s*(?:export\s+)?([^\s=#][^=]*?)\s*=(.*)$/;
const controlForm = /[^\P{Cc}\t]/u;
const quotedForm = /^\s*(["'`])(.*?)\1(.*)$/;

/**
 * Returns the value without quotes and without a comment, which begins with `#` after white space. `rest` is the text
 * after the closing quote. Returns undefined if the quote is not closed.
 */
function parseValue(text: string): { readonly text: string; readonly rest: string } | undefined {
  const [, , quoted, after = ''] = quotedForm.exec(text) ?? [];
  if (quoted !== undefined) return { text: quoted, rest: withoutComment(after) };
  const plain = withoutComment(text);
  return /^["'`]/.test(plain) ? undefined : { text: plain, rest: '' };
}

function withoutComment(text: string): string {
  return text.replace(/\s#.*/, '').trim();
}
