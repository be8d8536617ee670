// Finds out how this program was started, so that messages show command lines that work.

import { basename, relative, sep } from 'node:path';

import type { Command } from '../settings/groups.ts';

export const programName = 'work-item-gateway';

export interface Invocation {
  /** True if an npm script of this package started the program. */
  readonly isNpmScript: boolean;
  /** Makes the command line that runs `command` with `flags`. */
  readonly line: (command: Command, flags: string) => string;
}

const npmScripts: Record<Command, string> = {
  serve: 'npm run serve',
  dev: 'npm start',
  backend: 'npm run backend',
  check: 'npm run check',
  // Without `--silent`, npm mixes lines of its own with the document.
  openapi: 'npm run --silent openapi',
  health: 'npm run health',
};

/** `script` is the file that Node runs. */
export function findInvocation(
  environment: Readonly<Record<string, string | undefined>>,
  script = programName,
): Invocation {
  const { npm_package_name: packageName, npm_lifecycle_event: event = '' } = environment;
  const isNpmScript = packageName === programName && (event === 'start' || Object.hasOwn(npmScripts, event));
  return {
    isNpmScript,
    line: (command, flags) => {
      const words = isNpmScript ? [npmScripts[command], flags && '--'] : [nameProgram(script), command];
      return [...words, flags].filter((word) => word !== '').join(' ');
    },
  };
}

function nameProgram(script: string): string {
  if (script.split(sep).includes('node_modules')) return `npx ${programName}`;
  if (basename(script) === programName) return programName;
  const fromHere = relative('', script);
  const path = fromHere.startsWith('..') ? script : fromHere;
  return `node ${path.includes(' ') ? JSON.stringify(path) : path}`;
}
