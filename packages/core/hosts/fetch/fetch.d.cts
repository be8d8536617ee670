// The types of `work-item-gateway/fetch` for CommonJS. The build copies this file into dist/.

import type * as fetch from './fetch.js' with { 'resolution-mode': 'import' };

export type * from './fetch.js' with { 'resolution-mode': 'import' };
export declare const createFetchHandler: typeof fetch.createFetchHandler;
