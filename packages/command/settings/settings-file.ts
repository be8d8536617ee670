// Reads the settings file, which has one VARIABLE=value per line.

import { readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';

import { quoteIfPlain } from '../../core/hosts/options/accepted-values.ts';
import { suggest } from '../../core/hosts/options/similar.ts';
import { settingNames, variableOf } from './settings.ts';

// A blank line, a comment or an assignment.
const settingLine = /^\s*(?:#.*|[^\s=#][^=]*=.*)?$/s;

/** Returns the variables of the file. Adds a problem for each invalid line and each name that is not a setting. */
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
    problems.push(`SETTINGS_FILE${shown === undefined ? '' : ` is ${shown}, which`} cannot be read (${code})`);
    return {};
  }
  // Node's parser silently skips invalid lines, so a mistyped setting would have no effect.
  for (const [index, line] of text.split('\n').entries()) {
    if (!settingLine.test(line)) {
      problems.push(`line ${index + 1} of the settings file is not VARIABLE=value`);
    }
  }
  const variables = parseEnv(text);
  const known = settingNames.filter((each) => each !== 'settingsFile').map(variableOf);
  for (const variable of Object.keys(variables).filter((each) => !known.includes(each))) {
    // A mistyped line can have anything before its `=`, even a password.
    const named = /^[A-Z][A-Z_]{0,39}$/.test(variable) ? variable : 'a name (not shown)';
    problems.push(
      `${named} in the settings file is not a setting that a settings file can have${suggest(named, known)}`,
    );
  }
  for (const variable of known.filter((each) => variables[each]?.includes('\n') === true)) {
    problems.push(`${variable} in the settings file has a quotation mark that is not closed on its line`);
    // The value may contain the text of other lines, so it is not checked.
    variables[variable] = '';
  }
  return variables;
}
