// The command `openapi`.

import type { CommandEntry } from './command.ts';

export const openApiCommand: CommandEntry = {
  summary: 'print the OpenAPI document',
  description:
    'Prints the OpenAPI 3.1 document of what serve would offer with the same settings; starts nothing. A gateway with DOCS on serves the same at /openapi.json.',
  examples: ['> openapi.json'],
  run: async ({ resolved, terminal }) => {
    const { createOpenApiText } = await import('../../core/hosts/openapi/openapi.ts');
    terminal.write(createOpenApiText(resolved.settings));
    return 0;
  },
};
