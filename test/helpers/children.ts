// Child processes of the tests.

import type { ChildProcess } from 'node:child_process';

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** Kills `child` when the test's process exits. */
export function killAtExit<Child extends ChildProcess>(child: Child): Child {
  running.add(child);
  return child.once('exit', () => running.delete(child));
}

/** Kills `child` and resolves when it has ended. */
export async function kill(child: ChildProcess | undefined): Promise<void> {
  if (child?.exitCode !== null || child.signalCode !== null) return;
  const { promise, resolve } = Promise.withResolvers<unknown>();
  child.once('exit', resolve).kill('SIGKILL');
  await promise;
}
