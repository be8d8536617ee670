// Loaded into the built command with `node --import`: makes the gateway resend writes, too. The tests must detect this.

import { registerHooks } from 'node:module';

registerHooks({
  load(url, context, next) {
    const loaded = next(url, context);
    if (!url.includes('/dist/command/')) return loaded;
    const source = Buffer.from(loaded.source as Uint8Array).toString('utf8');
    return { ...loaded, source: source.replace('!this.isWrite && isReusedAndSilent', 'isReusedAndSilent') };
  },
});
