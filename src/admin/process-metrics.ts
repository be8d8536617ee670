// prom-client's figures of this process: memory, processor time, event loop, garbage collection, handles.
// They are gathered from the moment this file is loaded.

import { collectDefaultMetrics, Registry } from 'prom-client';

export const processRegistry = new Registry();
collectDefaultMetrics({ register: processRegistry });
