// Loaded into the built command with `node --import`: makes the gateway resend writes too, which tests must detect.

import { registerHooks } from 'node:module';

registerHooks({
  load(url, context, next) {
    const loaded = next(url, context);
    if (!url.endsWith('/dist/core/backend/client.js')) return loaded;
    const source = Buffer.from(loaded.source as Uint8Array).toString('utf8');
    const changed = source.replace("this.#request.method === 'GET' && isReusedAndSilent", 'isReusedAndSilent');
    if (changed === source) throw new Error('the condition for a resend was not found');
    return { ...loaded, source: changed };
  },
});
