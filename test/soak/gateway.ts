// The built command for the soak, with its log, its metrics, and its memory after a garbage collection.

import { within } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { countDescriptors, figureIn } from '../helpers/process-figures.ts';

export type Holdings = Awaited<ReturnType<typeof holdings>>;

// Lines of Node on standard error about its inspector.
const inspectorLines = /^(?:Debugger |For help, see:|$)/;

/** The gateway logs only failed calls, since the soak keeps every line. The inspector is only for garbage collections. */
export function startGateway(environment: NodeJS.ProcessEnv): Promise<Command> {
  return startCommand({ LOG_LEVEL: 'warn', ...environment }, { nodeFlags: ['--inspect=127.0.0.1:0'] });
}

/** Log lines at `error` or `fatal`, and standard error without the lines about the inspector. */
export function complaints({ logs, stderr }: Command): string[] {
  return [
    ...logs.filter(({ level }) => level === 'error' || level === 'fatal').map((line) => JSON.stringify(line)),
    ...stderr.split('\n').filter((line) => !inspectorLines.test(line)),
  ];
}

/** The resources that an idle gateway uses. */
export async function holdings(gateway: Command) {
  // Twice: after the finalizers of the first collection, the second collection can free more memory.
  await collectGarbage(gateway);
  await collectGarbage(gateway);
  const { text } = await gateway.admin('/metrics');
  const value = (name: string): number => {
    const figure = figureIn(text, name);
    if (figure === undefined) throw new Error(`no metric ${name}`);
    return figure;
  };
  const resources = [...text.matchAll(/^nodejs_active_resources\{type="([^"]+)"\} (\d+)$/gm)];
  return {
    rssBytes: value('process_resident_memory_bytes'),
    heapBytes: value('nodejs_heap_size_used_bytes'),
    externalBytes: value('nodejs_external_memory_bytes'),
    /** The number of active resources by Node's type names. */
    resources: new Map(resources.map(([, type = '', count]) => [type, Number(count)])),
    files: countDescriptors(gateway.process.pid),
    requestsInFlight: value('work_item_gateway_requests_in_flight'),
    bufferedBytes: value('work_item_gateway_buffered_bytes'),
    backendConnections: value('work_item_gateway_backend_connections'),
    bugs: value('work_item_gateway_bugs_total'),
  };
}

async function collectGarbage({ stderr }: Command): Promise<void> {
  const socket = new WebSocket(/ws:\/\/\S+/.exec(stderr)?.[0] ?? '');
  const { promise: done, resolve, reject } = Promise.withResolvers<unknown>();
  socket.addEventListener('open', () => socket.send('{"id":1,"method":"HeapProfiler.collectGarbage"}'));
  socket.addEventListener('message', resolve);
  socket.addEventListener('error', () => reject(new Error('the inspector does not answer')));
  await within(done, 'a garbage collection');
  const closed = new Promise((resolveClose) => socket.addEventListener('close', resolveClose));
  socket.close();
  await within(closed, 'the connection to the inspector is closed');
}
