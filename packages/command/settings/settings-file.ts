// The settings file: one VARIABLE=value a line.

import { readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';

import { quoteIfPlain } from '../../core/hosts/options/accepted-values.ts';
import { suggest } from '../../core/hosts/options/similar.ts';
import { settingNames, variableOf } from './settings.ts';

// Blank, a comment, or an assignment.
const settingLine = /^\s*(?:#.*|[^\s=#][^=]*=.*)?$/s;

// The variables of the file, checked to be settings; a problem is added to `problems`.
export function readSettingsFile(name: string, problems: string[]): NodeJS.Dict<string> {
  if (name === '') {
    return {};
  }
  let text;
  try {
    text = readFileSync(name, 'utf8');
  } catch (error) {
    const { code = String(error) } = error as NodeJS.ErrnoException;
    const shown = quoteIfPlain(name);
    problems.push(
      `SETTINGS_FILE${shown === undefined ? '' : ` is ${shown}, which`} cannot be read (${code})`,
    );
    return {};
  }
  // Node reads over what it does not understand: what somebody has turned on would be off, and nobody would know.
  for (const [index, line] of text.split('\n').entries()) {
    if (!settingLine.test(line)) {
      problems.push(`line ${index + 1} of the settings file is no VARIABLE=value`);
    }
  }
  const variables = parseEnv(text);
  const known = settingNames.filter((each) => each !== 'settingsFile').map(variableOf);
  for (const variable of Object.keys(variables).filter((each) => !known.includes(each))) {
    // A line that went wrong can have anything before its `=`, a password too.
    const named = /^[A-Z][A-Z_]{0,39}$/.test(variable) ? variable : 'a name that is not shown';
    problems.push(`${named} in the settings file is no setting that it can have${suggest(named, known)}`);
  }
  for (const variable of known.filter((each) => variables[each]?.includes('\n') === true)) {
    problems.push(`${variable} in the settings file has a quotation mark that does not end on its line`);
    // Of other lines, maybe: there is nothing in it to check.
    variables[variable] = '';
  }
  return variables;
}
