// The exports of `work-item-gateway/fastify`.

export { workItemGateway, workItemGateway as default, type WorkItemGatewayOptions } from './fastify.ts';
export { frameworkErrors } from './fastify-errors.ts';
