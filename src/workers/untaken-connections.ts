// Connections that the primary process has handed to a worker which ended before it took them. node:cluster keeps
// its own end of each until the worker says that it has it: for ever, with a client that waits as long.

import cluster, { type Worker } from 'node:cluster';

interface Handle {
  close(): void;
}

/** What node:cluster sends to a worker with a connection, and what the worker answers, as far as it matters here. */
interface ClusterMessage {
  readonly act?: string;
  readonly seq?: number;
  readonly ack?: number;
}

type Send = (message: ClusterMessage, ...others: unknown[]) => boolean;

/**
 * Watches what a new worker is handed. The function that it returns is to be called when the worker has gone: it
 * closes what was not taken, and has node:cluster forget the worker. Another worker cannot have such a connection:
 * what the first one has read of it is lost, and a write in it may have been done.
 */
export function closeUntakenConnections(worker: Worker): () => void {
  const untaken = new Map<number, Handle>();
  const channel = worker.process as unknown as { send?: Send };
  const send = channel.send;
  if (send !== undefined) {
    channel.send = (message, ...others) => {
      if (message.act === 'newconn' && message.seq !== undefined) {
        untaken.set(message.seq, others[0] as Handle);
      }
      return send.call(worker.process, message, ...others);
    };
  }
  worker.process.on('internalMessage', ({ ack }: ClusterMessage) => {
    if (ack !== undefined) {
      untaken.delete(ack);
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
