// Starts the built command for tests in which its output is not read or is not JSON. Only the admin listener shows when
// the gateway is ready.

import assert from 'node:assert/strict';
import { poll } from '../helpers/changes.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { runCommand, type Command, type ProcessLimits } from '../helpers/command.ts';

/** Starts the gateway on free ports; resolves when its admin listener reports that it is ready. */
export async function startUnseen(environment: NodeJS.ProcessEnv, limits: ProcessLimits = {}): Promise<Command> {
  const [port, adminPort] = [await findFreePort(), await findFreePort()];
  const command = runCommand(
    ['serve'],
    { HOST: '127.0.0.1', PORT: `${port}`, ADMIN_HOST: '127.0.0.1', ADMIN_PORT: `${adminPort}`, ...environment },
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
