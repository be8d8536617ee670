// The package's main exports: the Fastify plugin, and a server for the gateway alone.

export * from './fastify/index.ts';
export { default } from './fastify/index.ts';
export { createGatewayServer, type GatewayServer, type GatewayServerOptions } from './gateway-server.ts';
export type { GuardOptions } from '../options/guard-options.ts';
export type { GatewayLimits } from '../options/gateway-options.ts';
export type { GatewayErrorCode } from './common/gateway-error.ts';
export type { CallOutcome } from '../outcomes.ts';
export type { CallLine, CallRecord, GatewayObserver } from '../options/observer-options.ts';
