// The types of `work-item-gateway/node` for CommonJS. Copied into dist/ by the build.

import type * as node from './node.js' with { 'resolution-mode': 'import' };

export type * from './node.js' with { 'resolution-mode': 'import' };
export declare const createNodeHandler: typeof node.createNodeHandler;
