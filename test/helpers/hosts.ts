// Fastify servers with the plugin in them: one that is the gateway's own, and one that is somebody else's.

import type { AddressInfo } from 'node:net';
import Fastify, { type FastifyInstance, type FastifyServerOptions } from 'fastify';
import { gatewayServerOptions, workItemGateway, type WorkItemGatewayOptions } from '../../src/index.ts';
import { request, type CallOptions } from './raw-client.ts';
import { answer, ScriptedBackend } from './scripted-backend.ts';

export interface Host {
  readonly name: string;
  readonly isOwn: boolean;
  create(options?: FastifyServerOptions): FastifyInstance;
}

export const ownHost: Host = {
  name: 'a server of gatewayServerOptions',
  isOwn: true,
  create: (options = {}) => Fastify({ ...gatewayServerOptions(), ...options }),
};
export const plainHost: Host = {
  name: 'a plain server',
  isOwn: false,
  create: (options = {}) => Fastify(options),
};
export const hosts = [ownHost, plainHost] as const;

export type PluginOptions = Partial<WorkItemGatewayOptions> & { readonly prefix?: string };

/** Starts `app` on a free port; `register` puts the plugin where the test wants it. */
export async function serveApp(app: FastifyInstance, register: (backendUrl: string) => PromiseLike<unknown>) {
  const backend = await ScriptedBackend.start();
  try {
    backend.answers(answer('{"id":5}'));
    await register(backend.url);
    await app.listen({ host: '127.0.0.1', port: 0 });
  } catch (error) {
    await backend.stop();
    throw error;
  }
  const { port } = app.server.address() as AddressInfo;
  return {
    backend,
    port,
    call: (method: string, path: string, options?: CallOptions) => request(port, method, path, options),
    [Symbol.asyncDispose]: async () => {
      app.server.closeAllConnections();
      await app.close();
      await backend.stop();
    },
  };
}

/** `app` with the plugin at its root, on a free port. */
export async function serve(app: FastifyInstance, options: PluginOptions = {}) {
  return await serveApp(app, (backendUrl) => app.register(workItemGateway, { backendUrl, ...options }));
}
