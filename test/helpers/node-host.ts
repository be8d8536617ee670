// The Node handler in servers that people use: Node's own, Express and Connect.

import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import connect from 'connect';
import express from 'express';
import {
  createNodeHandler,
  type NodeHandler,
  type NodeHandlerOptions,
} from '../../packages/core/hosts/node/node.ts';
import { createObserver } from './in-process.ts';
import { request, type CallOptions } from './raw-client.ts';
import { answer, ScriptedBackend } from './scripted-backend.ts';

/** Each server that people use, with nothing but the handler in it. */
export const nodeServers: Readonly<Record<string, (handler: NodeHandler) => RequestListener>> = {
  'node:http': (handler) => handler,
  'Express 5': (handler) => createExpress().use(handler) as RequestListener,
  Connect: (handler) => connect().use(handler),
};

/** Without the header that Express has of its own. */
export function createExpress(): express.Express {
  return express().disable('x-powered-by');
}

/** What `mount` makes of a handler, on a free port before a scripted backend that answers `{"id":5}`. */
export async function serveNode(
  options: Partial<NodeHandlerOptions> = {},
  mount: (handler: NodeHandler) => RequestListener = (handler) => handler,
) {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const { told, observer } = createObserver();
  const handler = createNodeHandler({ backendUrl: backend.url, observer, ...options });
  const { server, port } = await serveListener(mount(handler));
  return {
    backend,
    told,
    handler,
    port,
    call: (method: string, path: string, callOptions?: CallOptions) =>
      request(port, method, path, callOptions),
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
      await handler.close();
      await backend.stop();
    },
  };
}

/** `listener` in a server of Node's own, on a free port. */
export async function serveListener(listener: RequestListener): Promise<{ server: Server; port: number }> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, port: (server.address() as AddressInfo).port };
}

/** A server with nothing but the handler in it. */
export async function serveNodeHandler(options: NodeHandlerOptions) {
  const handler = createNodeHandler(options);
  const { server, port } = await serveListener(handler);
  return {
    port,
    stop: async () => {
      server.close();
      server.closeAllConnections();
      await handler.close();
    },
  };
}
