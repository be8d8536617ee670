// The Node handler in a server of node:http, in Express and in Connect.

import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import connect from 'connect';
import express from 'express';
import { createNodeHandler, type NodeHandler, type NodeHandlerOptions } from '../../packages/core/hosts/node/node.ts';
import { beforeBackend, createObserver } from './in-process.ts';

type Mount = (handler: NodeHandler) => RequestListener;

/** Each server with only the handler. */
export const nodeServers: Readonly<Record<string, Mount>> = {
  'node:http': (handler) => handler,
  'Express 5': (handler) => createExpress().use(handler) as RequestListener,
  Connect: (handler) => connect().use(handler),
};

/** An Express application without the header that Express adds. */
export function createExpress(): express.Express {
  return express().disable('x-powered-by');
}

/** A server on a free port; `mount` makes its listener from the handler. */
export async function startNode(options: NodeHandlerOptions, mount: Mount = (handler) => handler) {
  const handler = createNodeHandler(options);
  const server = createServer(mount(handler)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = async () => {
    server.close();
    server.closeAllConnections();
    await handler.close();
  };
  return { handler, port: (server.address() as AddressInfo).port, close };
}

/** The same server in front of a scripted backend that answers `{"id":5}`. */
export function serveNode(options: Partial<NodeHandlerOptions> = {}, mount?: Mount) {
  return beforeBackend(async ({ url }) => {
    const { told, observer } = createObserver();
    return { told, ...(await startNode({ backendUrl: url, observer, ...options }, mount)) };
  });
}
