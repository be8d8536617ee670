// Loaded into the built command with `node --import`: makes functions of Node throw. FAULTS lists the faults. A SIGUSR2
// switches the next fault of the list on; the following SIGUSR2 switches that fault off. Each signal prints a line to
// stderr. The fault in FAULT_FROM_START is on from the start.

import { Server, Socket } from 'node:net';
import { Writable } from 'node:stream';

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

const servers: Server[] = [];

/** Called when a fault is switched on: causes it immediately if it needs no request. */
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

type Method = (this: unknown, ...parameters: unknown[]) => unknown;
type Look = (self: unknown, first: unknown) => boolean;

/** Makes a method of Node call `look` first, and throw if `look` returns true while the fault `name` is on. */
function breakMethod(name: string, holder: object, method: string, look: Look = () => true): void {
  if (!faults.includes(name)) return;
  const original = Reflect.get(holder, method) as Method;
  const broken: Method = function (...parameters) {
    if (look(this, parameters[0]) && current === name) throw fault();
    return original.apply(this, parameters);
  };
  Reflect.set(holder, method, broken);
}

breakMethod('accept', Server.prototype, 'listen', (server) => {
  servers.push(server as Server);
  return false;
});
breakMethod('backend socket', Socket.prototype, 'connect');
breakMethod('drain', Server.prototype, 'close');
// The log writes each line into a buffer. These faults break this write.
for (const name of ['log', 'log and exceptions']) {
  breakMethod(
    name,
    Buffer.prototype as object,
    'write',
    (_, text) => typeof text === 'string' && text.startsWith('{"level":'),
  );
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
      this.exports = { ...new Instance(module, ...others).exports };
      if (this.exports.scan !== undefined) breakMethod('scanner', this.exports, 'scan');
    }
  };
}

// Sockets that the process has opened: they lead to the backend. Every other socket with a remote address
// belongs to a client. (Standard error may be a socket too, but has no address.)
const opened = new WeakSet<object>();
const hasRemote = (socket: unknown): socket is Socket => (socket as Socket).remoteAddress !== undefined;
for (const name of ['backend connection', 'beginning of a reply', 'end of a reply']) {
  breakMethod(name, Socket.prototype, 'connect', (socket) => {
    opened.add(socket as Socket);
    return false;
  });
}
breakMethod('backend connection', Socket.prototype, 'write', (socket) => hasRemote(socket) && opened.has(socket));
breakMethod('beginning of a reply', Socket.prototype, 'write', (socket) => hasRemote(socket) && !opened.has(socket));

// A client connection reads `writableLength` after it has written a reply, so this getter breaks the end of a reply.
if (faults.includes('end of a reply')) {
  const length = Object.getOwnPropertyDescriptor(Writable.prototype, 'writableLength');
  Object.defineProperty(Socket.prototype, 'writableLength', {
    get(this: Socket) {
      const isMeant = hasRemote(this) && !opened.has(this) && this.bytesWritten > 0;
      if (current === 'end of a reply' && isMeant) throw fault();
      return length?.get?.call(this) as number;
    },
  });
}
