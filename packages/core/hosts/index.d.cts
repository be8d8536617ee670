// The package's types for CommonJS: `require` returns the exports of index.ts. The build copies this file into dist/.

import type * as gateway from './index.js' with { 'resolution-mode': 'import' };

export type * from './index.js' with { 'resolution-mode': 'import' };
export declare const createGatewayServer: typeof gateway.createGatewayServer;
export declare const frameworkErrors: typeof gateway.frameworkErrors;
export declare const workItemGateway: typeof gateway.workItemGateway;
export default workItemGateway;
