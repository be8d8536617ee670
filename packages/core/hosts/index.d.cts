// The package's types for CommonJS, where `require` gives what is in index.ts. Copied into dist/ by the build.

import type * as gateway from './index.js' with { 'resolution-mode': 'import' };

export type * from './index.js' with { 'resolution-mode': 'import' };
export declare const createGatewayServer: typeof gateway.createGatewayServer;
export declare const frameworkErrors: typeof gateway.frameworkErrors;
export declare const workItemGateway: typeof gateway.workItemGateway;
export default workItemGateway;
