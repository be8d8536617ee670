// Replaces how Node closes a connection after its last reply. Node has no option for it: it calls `destroySoon` of the
// socket, and reads the socket with a listener of its own. test/plugin/connections.test.ts fails where Node changes that.

import type { Socket } from 'node:net';

import { lingerMs } from '../../http1/connection.ts';

/**
 * Ends only our side of the connection where Node would close it, and drops what comes for a while: closed at once, the
 * connection would be reset under what the client still sends, and the reply lost. Node's parser releases a socket that
 * has another reader, so that nothing after the reply is served. A client that ends its side closes it sooner.
 */
export function linger(socket: Socket): void {
  socket.destroySoon = () => {
    socket.end();
    socket.removeAllListeners('data').on('data', () => undefined);
    socket.resume();
    const timer = setTimeout(() => socket.destroy(), lingerMs).unref();
    socket.once('close', () => {
      clearTimeout(timer);
    });
  };
}
