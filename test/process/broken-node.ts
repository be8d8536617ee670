// Loaded into the built command with `node --import`: makes functions of Node throw. FAULTS lists the faults. A SIGUSR2
// switches the next fault of the list on; the following SIGUSR2 switches that fault off. Both print a line to stderr.
// The fault FAULT_FROM_START is on from the start.

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

type Method = (this: unknown, ...parameters: unknown[]) => unknown;

/** Replaces a method of Node by `broken(original)`. */
function replace(name: string, holder: object, method: string, broken: (original: Method) => Method): void {
  if (!faults.includes(name)) return;
  const original = Reflect.get(holder, method) as Method;
  Reflect.set(holder, method, broken(original));
}

const servers: Server[] = [];

/** Causes the faults that need no request, as soon as they are switched on. */
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

replace(
  'accept',
  Server.prototype,
  'listen',
  (listen) =>
    function (...parameters) {
      servers.push(this as Server);
      return listen.apply(this, parameters);
    },
);

// The log copies each line into a buffer.
for (const name of ['log', 'log and exceptions']) {
  replace(
    name,
    Buffer.prototype as object,
    'write',
    (write) =>
      function (...parameters) {
        const [text] = parameters;
        if (current === name && typeof text === 'string' && text.startsWith('{"level":')) throw fault();
        return write.apply(this, parameters);
      },
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

// Sockets that the process has opened: they lead to the backend. Every other socket with a remote address is a
// client's. (Standard error may be a socket too, but has no address.)
const opened = new WeakSet<object>();
if (faults.some((name) => name.includes('connection') || name.includes('reply'))) {
  const connect = Reflect.get(Socket.prototype, 'connect') as Method;
  Reflect.set(Socket.prototype, 'connect', function (this: Socket, ...parameters: unknown[]) {
    opened.add(this);
    return connect.apply(this, parameters);
  });
}
for (const [name, isOpened] of [
  ['backend connection', true],
  ['beginning of a reply', false],
] as const) {
  replace(
    name,
    Socket.prototype,
    'write',
    (write) =>
      function (...parameters) {
        const socket = this as Socket;
        const isMeant = socket.remoteAddress !== undefined && opened.has(socket) === isOpened;
        if (current === name && isMeant) throw fault();
        return write.apply(this, parameters);
      },
  );
}

// A client connection reads `writableLength` after it has written a reply.
if (faults.includes('end of a reply')) {
  const length = Object.getOwnPropertyDescriptor(Writable.prototype, 'writableLength');
  Object.defineProperty(Socket.prototype, 'writableLength', {
    get(this: Socket) {
      const isMeant = this.remoteAddress !== undefined && !opened.has(this) && this.bytesWritten > 0;
      if (current === 'end of a reply' && isMeant) throw fault();
      return length?.get?.call(this) as number;
    },
  });
}

for (const [name, holder, method] of [
  ['backend socket', Socket.prototype, 'connect'],
  ['drain', Server.prototype, 'close'],
] as const) {
  replace(
    name,
    holder,
    method,
    (original) =>
      function (...parameters) {
        if (current === name) throw fault();
        return original.apply(this, parameters);
      },
  );
}
