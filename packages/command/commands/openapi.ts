// The command `openapi`: prints the OpenAPI document.

import type { CommandEntry } from './command.ts';

export const openApiCommand: CommandEntry = {
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
