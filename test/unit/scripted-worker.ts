// A worker process that the test controls by messages: it sends the value of the property `say`, or exits with the code
// in `exit`. It prints all other messages, and answers each connection with its process id.

import type { Socket } from 'node:net';

process.on('message', (message: { readonly say?: unknown; readonly exit?: number }, socket?: Socket) => {
  if (message.exit !== undefined) process.exit(message.exit);
  if (message.say !== undefined) process.send?.(message.say);
  else process.stdout.write(`${JSON.stringify(message)}\n`);
  socket?.end(`${process.pid}`);
});
process.on('disconnect', () => process.exit(0));
