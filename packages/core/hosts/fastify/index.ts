// What `@work-item-gateway/core/fastify` gives: the plugin.

export { workItemGateway, workItemGateway as default, type WorkItemGatewayOptions } from './fastify.ts';
export { frameworkErrors } from './fastify-errors.ts';
