// What the package gives to others: the gateway as a Fastify plugin, and as a server of its own.

export {
  workItemGateway,
  workItemGateway as default,
  type WorkItemGatewayOptions,
} from './adapters/fastify.ts';
export { frameworkErrors } from './adapters/fastify-errors.ts';
export { createGatewayServer, type GatewayServer, type GatewayServerOptions } from './adapters/server.ts';
export type { GuardOptions } from './adapters/guard-options.ts';
export type { GatewayLimits } from './gateway/options.ts';
export type { CallRecord } from './gateway/call-record.ts';
export type { CallOutcome } from './gateway/outcomes.ts';
export type { GatewayObserver } from './gateway/gateway.ts';
