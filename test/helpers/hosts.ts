// Fastify servers with the plugin in them, of the newest Fastify and of the oldest that the package says it works with.

import type { AddressInfo } from 'node:net';
import type { FastifyInstance, FastifyServerOptions } from 'fastify';
import { workItemGateway, type WorkItemGatewayOptions } from '../../packages/core/hosts/index.ts';
import { serveNode } from './node-host.ts';
import { loadFastify, type FastifyVersion } from './fastify.ts';
import { request, type CallOptions } from './raw-client.ts';
import { answer, ScriptedBackend } from './scripted-backend.ts';

/** Each Fastify, newest first. */
export const versions = { newest: await loadFastify('newest'), oldest: await loadFastify('oldest') };

export interface Host {
  readonly name: string;
  readonly create: (options?: HostOptions) => FastifyInstance;
}

export type HostOptions = FastifyServerOptions & {
  /** Options of the router, which stand elsewhere in an old Fastify. */
  readonly router?: object;
};

function hostsOf(version: FastifyVersion): Host[] {
  const Fastify = versions[version];
  const place = ({ router, ...others }: HostOptions): FastifyServerOptions =>
    version === 'oldest' ? { ...others, ...router } : { ...others, routerOptions: router ?? {} };
  return [
    {
      name: `a plain server, ${version} Fastify`,
      create: (options = {}) => Fastify(place(options)),
    },
  ];
}

export const hosts: readonly Host[] = [...hostsOf('newest'), ...hostsOf('oldest')];

/** Everything whose HTTP is read by node:http: a Fastify server of each version, and the Node handler. */
export const nodeHosts = [
  ...hosts.map(({ name, create }) => ({
    name,
    serve: (options?: PluginOptions) => serve(create(), options),
  })),
  { name: 'the Node handler', serve: (options?: PluginOptions) => serveNode(options) },
];

export type PluginOptions = Partial<WorkItemGatewayOptions> & { readonly prefix?: string };

/** Starts `app` on a free port; `register` puts the plugin where the test wants it. */
export async function serveApp(
  app: FastifyInstance,
  register: (backendUrl: string) => PromiseLike<unknown>,
  host = '127.0.0.1',
) {
  const backend = await ScriptedBackend.start();
  try {
    backend.answers(answer('{"id":5}'));
    await register(backend.url);
    await app.listen({ host, port: 0 });
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
