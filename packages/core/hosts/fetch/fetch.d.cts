// The types of `work-item-gateway/fetch` for CommonJS. Copied into dist/ by the build.

import type * as fetch from './fetch.js' with { 'resolution-mode': 'import' };

export type * from './fetch.js' with { 'resolution-mode': 'import' };
export declare const createFetchHandler: typeof fetch.createFetchHandler;
