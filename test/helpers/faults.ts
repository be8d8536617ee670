// Loaded into the built command by `node --import`, so that the product has no hook for tests: makes parts of it
// throw. FAULTS names them, one by one: each SIGUSR2 switches the next one on, or off again, and each switch is a line
// on stderr. FAULT_FROM_START is on from the beginning.

import { createRequire } from 'node:module';
import { Server, Socket } from 'node:net';
import { resolve } from 'node:path';

const load = createRequire(resolve(import.meta.dirname, '../../package.json'));
const faults = (process.env['FAULTS'] ?? '').split(',');
let current = process.env['FAULT_FROM_START'] ?? '';
process.on('SIGUSR2', () => {
  const isOn = current === '';
  current = isOn ? (faults.shift() ?? '') : '';
  process.stderr.write(isOn ? 'fault on\n' : 'fault off\n');
  if (isOn) strike();
});

function fault(): Error {
  return new TypeError(`SECRET ${current}`);
}

type Method = (this: unknown, ...parameters: unknown[]) => unknown;

/** The method throws while `fault` is on, before or after it has done its work. */
function breakMethod(
  name: string,
  holder: object,
  method: string,
  when: 'before' | 'after' = 'before',
): void {
  if (!faults.includes(name)) return;
  const methods = holder as Record<string, Method>;
  const original = methods[method];
  if (original === undefined) throw new Error(`there is no ${method}`);
  methods[method] = function (...parameters) {
    if (current === name && when === 'before') throw fault();
    const result = original.apply(this, parameters);
    if (current === name) throw fault();
    return result;
  };
}

const servers: Server[] = [];

/** Faults outside of any request come as the switch is thrown. */
function strike(): void {
  switch (current) {
    case 'rejection':
      void Promise.reject(fault());
      break;
    case 'exceptions':
    case 'log and exceptions':
      setInterval(() => {
        throw fault();
      }, 20);
      break;
    case 'accept':
      for (const server of servers) server.emit('error', Object.assign(fault(), { code: 'EMFILE' }));
      break;
  }
}

if (faults.includes('accept')) {
  const listen = Reflect.get(Server.prototype, 'listen') as Method;
  Reflect.set(Server.prototype, 'listen', function (this: Server, ...parameters: unknown[]) {
    servers.push(this);
    return listen.apply(this, parameters);
  });
}

if (faults.includes('log') || faults.includes('log and exceptions')) {
  const { LogOutput } = load('./dist/telemetry/log-output.js') as {
    LogOutput: { prototype: { write: Method } };
  };
  const { write } = LogOutput.prototype;
  LogOutput.prototype.write = function (...parameters) {
    if (current.startsWith('log')) throw fault();
    return write.apply(this, parameters);
  };
}

if (faults.includes('scanner')) {
  type Exports = Record<string, unknown> & { scan?: Method };
  const assembly = (
    globalThis as unknown as { WebAssembly: { Instance: new (module: object) => { exports: Exports } } }
  ).WebAssembly;
  const { Instance } = assembly;
  assembly.Instance = class {
    exports: Exports;
    constructor(module: object, ...others: []) {
      const { exports } = new Instance(module, ...others);
      const { scan } = exports;
      this.exports = exports;
      if (scan !== undefined) {
        const broken: Method = (...parameters) => {
          if (current === 'scanner') throw fault();
          return scan(...parameters);
        };
        this.exports = { ...exports, scan: broken };
      }
    }
  };
}

interface Class {
  readonly prototype: object;
}
const { ClientConnection } = load('./dist/wire/client-connection.js') as { ClientConnection: Class };
const { ServerConnection } = load('./dist/wire/server-connection.js') as { ServerConnection: Class };
breakMethod('backend connection', ClientConnection.prototype, 'send');
breakMethod('backend socket', Socket.prototype, 'connect');
breakMethod('beginning of a reply', ServerConnection.prototype, 'reply');
breakMethod('end of a reply', ServerConnection.prototype, 'reply', 'after');
breakMethod('drain', Server.prototype, 'close');
