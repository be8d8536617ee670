// A worker process that the test controls: it sends the messages in `say`, ends with the code in `exit`, answers each
// connection with its process id, and prints all other messages that it gets.

import type { Socket } from 'node:net';

process.on('message', (message: { readonly say?: unknown; readonly exit?: number }, socket?: Socket) => {
  if (message.exit !== undefined) process.exit(message.exit);
  if (message.say !== undefined) process.send?.(message.say);
  else process.stdout.write(`${JSON.stringify(message)}\n`);
  socket?.end(`${process.pid}`);
});
process.on('disconnect', () => process.exit(0));
