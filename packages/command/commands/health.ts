// The command `health`: checks whether a gateway on this machine is alive. Meant for health checks that must run a
// program, such as Docker's, in an image without a shell.

import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';

import { isWildcard } from '../../core/hosts/common/listen.ts';
import { startDeadline } from '../../core/hosts/common/process-deadline.ts';
import { escapeControls } from '../../core/text/escape.ts';
import type { CommandEntry } from './command.ts';

const timeoutMs = 4_000;
const bytesMax = 4_096;

export const healthCommand: CommandEntry = {
  summary: 'check whether a running gateway is alive',
  description:
    'Requests /livez from the admin listener of a gateway on this machine, and prints the answer. The command finds the listener through the same settings as serve. It exits 0 if the gateway is alive and 1 if not. Meant for the health check of a container.',
  examples: ['', '--admin-port 9465'],
  run: async ({ resolved: { settings }, terminal }) => {
    terminal.signals.release();
    const { isAlive, text } = await askHealth(settings.adminHost, settings.adminPort);
    const write = isAlive ? terminal.write : terminal.writeError;
    write(`${escapeControls(text)}\n`);
    return isAlive ? 0 : 1;
  },
};

/** Requests `/livez` from the admin listener. `text` is the line to print. Never rejects. */
async function askHealth(host: string, port: number): Promise<{ isAlive: boolean; text: string }> {
  // A listener on all addresses is reached through localhost.
  const own = isWildcard(host) ? 'localhost' : host;
  const url = `http://${own.includes(':') ? `[${own}]` : own}:${port}/livez`;
  const late = new AbortController();
  const callOff = startDeadline(timeoutMs, () => late.abort());
  try {
    // An `import` of node:http would load a WebSocket client too.
    const { request } = process.getBuiltinModule('node:http');
    const outgoing = request({ host: own, port, path: '/livez', agent: false, signal: late.signal }).end();
    const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
    let text = '';
    for await (const part of answer.setEncoding('utf8')) {
      text = (text + String(part)).slice(0, bytesMax);
    }
    const isAlive = answer.statusCode === 200;
    return { isAlive, text: `${isAlive ? '' : 'not '}alive: ${url} answered ${answer.statusCode} ${text.trim()}` };
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException;
    const why = late.signal.aborted
      ? `timed out after ${timeoutMs / 1_000} s`
      : message === ''
        ? String(code)
        : message;
    return { isAlive: false, text: `not alive: ${url} does not answer: ${why}` };
  } finally {
    callOff();
  }
}
