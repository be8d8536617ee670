// What the package gives to others: the gateway as a Fastify plugin, and the server options that complete it.

export {
  gatewayServerOptions,
  workItemGateway,
  workItemGateway as default,
  type WorkItemGatewayOptions,
} from './gateway/plugin.ts';
export type { GatewayLimits } from './gateway/options.ts';
export type { GatewayServerOptions } from './gateway/server.ts';
export type { CallRecord } from './gateway/call.ts';
export type { CallOutcome } from './gateway/outcomes.ts';
export type { GatewayObserver } from './gateway/gateway.ts';
