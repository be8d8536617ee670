// Changes how Node closes a connection after its last reply. Node has no option for this, so the code relies on internals:
// Node calls the socket's `destroySoon`, and reads with a 'data' listener. If Node changes these internals,
// test/plugin/connections.test.ts fails.

import type { Socket } from 'node:net';

import { lingerMs } from '../../http1/connection.ts';

/**
 * Makes Node half-close `socket` after the reply and drop incoming bytes for up to `lingerMs`. A full close while the client
 * is sending would reset the connection, and the reply would be lost. No further request is served, because Node's parser
 * releases a socket that gets another 'data' listener.
 */
export function linger(socket: Socket): void {
  socket.destroySoon = () => {
    socket.end();
    socket.removeAllListeners('data').on('data', () => undefined);
    socket.resume();
    const timer = setTimeout(() => socket.destroy(), lingerMs).unref();
    socket.once('close', () => clearTimeout(timer));
  };
}
