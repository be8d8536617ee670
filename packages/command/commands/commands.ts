// The list of commands, and the command `openapi`, which prints the OpenAPI document.

import type { Command } from '../settings/groups.ts';
import { checkCommand } from './check.ts';
import type { CommandEntry } from './command.ts';
import { backendCommand, devCommand } from './dev.ts';
import { healthCommand } from './health.ts';
import { serveCommand } from './serve.ts';

const openApiCommand: CommandEntry = {
  summary: 'print the OpenAPI document',
  description:
    'Prints the OpenAPI 3.1 document of the API that serve would offer with the same settings. The command starts no gateway. With DOCS on, the gateway serves the same document at /openapi.json.',
  examples: ['> openapi.json'],
  run: async ({ resolved, terminal }) => {
    const { createOpenApiText } = await import('../../core/hosts/openapi/openapi.ts');
    terminal.write(createOpenApiText(resolved.settings));
    return 0;
  },
};

export const commands: Readonly<Record<Command, CommandEntry>> = {
  serve: serveCommand,
  dev: devCommand,
  backend: backendCommand,
  check: checkCommand,
  openapi: openApiCommand,
  health: healthCommand,
};
