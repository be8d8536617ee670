// The types of `work-item-gateway/fastify` for CommonJS. The build copies this file into dist/.

import type * as plugin from './index.js' with { 'resolution-mode': 'import' };

export type * from './index.js' with { 'resolution-mode': 'import' };
export declare const frameworkErrors: typeof plugin.frameworkErrors;
export declare const workItemGateway: typeof plugin.workItemGateway;
export default workItemGateway;
