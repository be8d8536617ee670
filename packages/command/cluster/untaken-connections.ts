// Closes connections that a worker did not accept from the primary process, because the worker ended first or had no file
// descriptor left. Otherwise node:cluster would keep such a connection open until the worker confirms it. Then the client
// would wait forever, and the worker would get no further connection.

import cluster, { type Worker } from 'node:cluster';

interface Handle {
  close(): void;
}

/**
 * The fields of node:cluster's messages about a connection that this file reads. The worker first reports whether the
 * descriptor has arrived (`cmd`), then whether the connection is accepted (`ack`).
 */
interface ClusterMessage {
  readonly cmd?: string;
  readonly act?: string;
  readonly seq?: number;
  readonly ack?: number;
}

type Send = (message: ClusterMessage, ...others: unknown[]) => boolean;

// Connections refused by one worker for lack of a descriptor. Each connection is offered once more, to another worker.
const bounced = new WeakSet<Handle>();

/**
 * Watches the connections sent to a new worker. `onRefused` is called for each connection closed for lack of a descriptor.
 * Call the returned function when the worker has ended. It closes the connections that the worker did not accept, and makes
 * node:cluster forget the worker. No other worker gets these connections, because the ended worker may have read bytes from
 * them, or carried out a write.
 */
export function closeUntakenConnections(worker: Worker, onRefused: () => void): () => void {
  const untaken = new Map<number, Handle>();
  // Numbers of the connections in transit. They are sent one at a time, so the worker's replies come in this order.
  const inTransit: number[] = [];
  const channel = worker.process as unknown as { send?: Send };
  const send = channel.send;
  if (send !== undefined) {
    channel.send = (message, ...others) => {
      if (message.act === 'newconn' && message.seq !== undefined) {
        untaken.set(message.seq, others[0] as Handle);
        inTransit.push(message.seq);
      }
      return send.call(worker.process, message, ...others);
    };
  }
  worker.process.on('internalMessage', ({ cmd, ack }: ClusterMessage) => {
    if (ack !== undefined) {
      untaken.delete(ack);
    } else if (cmd === 'NODE_HANDLE_ACK') {
      inTransit.shift();
    } else if (cmd === 'NODE_HANDLE_NACK') {
      const seq = inTransit.shift();
      const handle = seq === undefined ? undefined : untaken.get(seq);
      if (handle !== undefined) {
        // Answers node:cluster in place of the worker. After the first refusal the answer is "not accepted", so that
        // another worker gets the connection. After the second it is "accepted", so that node:cluster closes the connection
        // in this process.
        const accepted = bounced.has(handle);
        bounced.add(handle);
        if (accepted) {
          onRefused();
        }
        worker.process.emit('internalMessage', { cmd: 'NODE_CLUSTER', ack: seq, accepted });
      }
    }
  });
  return () => {
    for (const handle of untaken.values()) {
      handle.close();
    }
    untaken.clear();
    // If the worker left a connection unaccepted, or never started, node:cluster does not notice the worker's end and
    // would keep the port open for it.
    if (cluster.workers?.[worker.id] !== undefined) {
      worker.disconnect();
    }
  };
}
