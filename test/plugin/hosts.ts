// Fastify servers with the plugin, for the newest and the oldest supported version of Fastify. Also the list of all
// hosts on node:http.

import type { FastifyInstance, FastifyReply, FastifyRequest, FastifyServerOptions } from 'fastify';
import type { WorkItemGatewayOptions } from '../../packages/core/hosts/index.ts';
import { loadFastify } from '../helpers/fastify.ts';
import { startGateway } from '../helpers/gateway.ts';

/** The tested versions of Fastify, newest first. */
export const versions = { newest: await loadFastify('newest'), oldest: await loadFastify('oldest') };

export interface Host {
  readonly name: string;
  readonly create: (options?: HostOptions) => FastifyInstance;
}

/** `router`: options of Fastify's router. In the oldest version, they are server options. */
export type HostOptions = FastifyServerOptions & { readonly router?: object };

export const hosts: readonly Host[] = (['newest', 'oldest'] as const).map((version) => ({
  name: `a plain server, ${version} Fastify`,
  create: ({ router = {}, ...others } = {}) =>
    versions[version]({ ...others, ...(version === 'oldest' ? router : { routerOptions: router }) }),
}));

/** Every host in which node:http parses the requests: a Fastify server of each version, and the Node handler. */
export const nodeHosts = [
  ...hosts.map(({ name, create }) => ({ name, serve: (options?: PluginOptions) => serve(create(), options) })),
  { name: 'the Node handler', serve: (settings: PluginOptions = {}) => startGateway({ host: 'node', settings }) },
];

type PluginOptions = Partial<WorkItemGatewayOptions> & { readonly prefix?: string };

/** A hook that calls `act`. */
export function calling(act: (request: FastifyRequest, reply: FastifyReply) => unknown) {
  return (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    act(request, reply);
    return Promise.resolve();
  };
}

/** Starts `app` on a free port, in front of a backend that answers `{"id":5}`; `register` adds the plugin to `app`. */
export function serveApp(app: FastifyInstance, register: (backendUrl: string) => PromiseLike<unknown>) {
  return startGateway({ host: 'plugin', app, register });
}

/** Starts `app` with the plugin at its root, on a free port; failures go to the log of `app`. */
export function serve(app: FastifyInstance, options: PluginOptions = {}) {
  return startGateway({ host: 'plugin', app, settings: { log: undefined, ...options } });
}
