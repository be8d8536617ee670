// Loaded into the built command by `node --import`: a gateway that sends a write again as it does a read, for tests that must
// notice it.

import { registerHooks } from 'node:module';

registerHooks({
  load(url, context, next) {
    const loaded = next(url, context);
    if (!url.endsWith('/dist/core/backend/client.js')) return loaded;
    const source = Buffer.from(loaded.source as Uint8Array).toString('utf8');
    const changed = source.replace(
      "this.#request.method === 'GET' && isReusedAndSilent",
      'isReusedAndSilent',
    );
    if (changed === source) throw new Error('the condition for sending again is another one');
    return { ...loaded, source: changed };
  },
});
