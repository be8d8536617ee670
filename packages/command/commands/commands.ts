// The list of commands.

import type { Command } from '../settings/groups.ts';
import { backendCommand } from './backend.ts';
import { checkCommand } from './check.ts';
import type { CommandEntry } from './command.ts';
import { devCommand } from './dev.ts';
import { healthCommand } from './health.ts';
import { openApiCommand } from './openapi.ts';
import { serveCommand } from './serve.ts';

export const commands: Readonly<Record<Command, CommandEntry>> = {
  serve: serveCommand,
  dev: devCommand,
  backend: backendCommand,
  check: checkCommand,
  openapi: openApiCommand,
  health: healthCommand,
};
