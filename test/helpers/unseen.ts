// The built command with an output that nobody reads, or that is not JSON.

import assert from 'node:assert/strict';
import { poll } from './changes.ts';
import { findFreePort } from './haproxy.ts';
import { runCommand, type Command, type ProcessLimits } from './targets.ts';

/** Starts the gateway on free ports; it is ready when the admin listener says so, whatever its output is. */
export async function startUnseen(
  environment: NodeJS.ProcessEnv,
  limits: ProcessLimits = {},
): Promise<Command> {
  const [port, adminPort] = [await findFreePort(), await findFreePort()];
  const command = runCommand(
    ['serve'],
    {
      HOST: '127.0.0.1',
      PORT: `${port}`,
      ADMIN_HOST: '127.0.0.1',
      ADMIN_PORT: `${adminPort}`,
      ...environment,
    },
    limits,
  );
  command.port = port;
  command.adminPort = adminPort;
  await poll(
    () =>
      command.admin('/readyz').then(
        ({ status }) => status === 200,
        () => !command.isRunning,
      ),
    'the gateway is ready',
  );
  assert.ok(command.isRunning, command.output);
  return command;
}
