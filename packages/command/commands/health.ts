// The command `health`: checks whether a gateway on this machine is alive. Meant for health checks that can only run a
// program, as in a container without a shell.

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
  const own = host === '0.0.0.0' || host === '::' ? 'localhost' : host;
  const url = `http://${own.includes(':') ? `[${own}]` : own}:${port}/livez`;
  try {
    const { status, text } = await ask(own, port);
    return status === 200
      ? { isAlive: true, text: `alive: ${url} answered ${status} ${text}` }
      : { isAlive: false, text: `not alive: ${url} answered ${status} ${text}` };
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException;
    const why = message === '' ? String(code) : message;
    return { isAlive: false, text: `not alive: ${url} does not answer: ${why}` };
  }
}

async function ask(host: string, port: number): Promise<{ status: number; text: string }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; text: string }>();
  // An `import` of node:http would load a WebSocket client too.
  const { request } = process.getBuiltinModule('node:http');
  const outgoing = request({ host, port, path: '/livez', agent: false }, (answer) => {
    let text = '';
    answer.setEncoding('utf8');
    answer.on('data', (part: string) => {
      text = (text + part).slice(0, bytesMax);
    });
    answer.on('error', reject);
    answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text: text.trim() }));
  });
  const timer = setTimeout(() => outgoing.destroy(new Error(`timed out after ${timeoutMs / 1_000} s`)), timeoutMs);
  outgoing.on('error', reject);
  outgoing.end();
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
  }
}
