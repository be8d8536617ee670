// Connections that the primary process hands to a worker which does not take them: it ended before, or it has no
// descriptor left. node:cluster keeps its own end of each until the worker says that it has it: for ever, with a client
// that waits as long; and a worker that has not said so of one gets no other.

import cluster, { type Worker } from 'node:cluster';

interface Handle {
  close(): void;
}

/**
 * What node:cluster sends to a worker with a connection, and what comes back, as far as it matters here: first that the
 * descriptor has arrived, or not (`cmd`), then that the connection is taken (`ack`).
 */
interface ClusterMessage {
  readonly cmd?: string;
  readonly act?: string;
  readonly seq?: number;
  readonly ack?: number;
}

type Send = (message: ClusterMessage, ...others: unknown[]) => boolean;

// What one worker had no descriptor for: another one may have, and is asked once.
const bounced = new WeakSet<Handle>();

/**
 * Watches what a new worker is handed; `onRefused` is told of a connection that is closed for want of a descriptor. The
 * function that it returns is to be called when the worker has gone: it closes what was not taken, and has node:cluster
 * forget the worker. Another worker cannot have such a connection: what the first one has read of it is lost, and a
 * write in it may have been done.
 */
export function closeUntakenConnections(worker: Worker, onRefused: () => void): () => void {
  const untaken = new Map<number, Handle>();
  // Those that have not arrived: one at a time is sent, in order.
  const underWay: number[] = [];
  const channel = worker.process as unknown as { send?: Send };
  const send = channel.send;
  if (send !== undefined) {
    channel.send = (message, ...others) => {
      if (message.act === 'newconn' && message.seq !== undefined) {
        untaken.set(message.seq, others[0] as Handle);
        underWay.push(message.seq);
      }
      return send.call(worker.process, message, ...others);
    };
  }
  worker.process.on('internalMessage', ({ cmd, ack }: ClusterMessage) => {
    if (ack !== undefined) {
      untaken.delete(ack);
    } else if (cmd === 'NODE_HANDLE_ACK') {
      underWay.shift();
    } else if (cmd === 'NODE_HANDLE_NACK') {
      const seq = underWay.shift();
      const handle = seq === undefined ? undefined : untaken.get(seq);
      if (handle !== undefined) {
        // Said in the worker's place: taken, so that it is closed here; or not, so that another one gets it.
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
    // With a connection that was never taken, or without a process, nothing tells it that the worker has gone; it would
    // keep the port open for it.
    if (cluster.workers?.[worker.id] !== undefined) {
      worker.disconnect();
    }
  };
}
