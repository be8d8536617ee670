// The two parts of undici that are used here, and nothing else of it: its index would load fetch, caches and
// mocks too, at a tenth of the whole start-up time. The version is fixed in package.json, since these paths
// are not promised.

import { createRequire } from 'node:module';
import type { buildConnector as BuildConnector, Client as UndiciClient } from 'undici';

const require = createRequire(import.meta.url);

export const Client = require('undici/lib/dispatcher/client.js') as typeof UndiciClient;
export const buildConnector = require('undici/lib/core/connect.js') as typeof BuildConnector;
