// The types of `work-item-gateway/node` for CommonJS. The build copies this file into dist/.

import type * as node from './node.js' with { 'resolution-mode': 'import' };

export type * from './node.js' with { 'resolution-mode': 'import' };
export declare const createNodeHandler: typeof node.createNodeHandler;
