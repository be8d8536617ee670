// Loaded into the built command by `node --import`: the process gets the signal STRIKE_SIGNAL at the worst moment, as it
// begins to load the file STRIKE_AT. Only one process of those that load it does, the one that can create STRIKE_ONCE.

import { closeSync, openSync } from 'node:fs';
import { registerHooks } from 'node:module';

registerHooks({
  load(url, context, next) {
    if (url.endsWith(process.env['STRIKE_AT'] ?? ' ') && isFirst()) {
      process.kill(process.pid, process.env['STRIKE_SIGNAL']);
    }
    return next(url, context);
  },
});

function isFirst(): boolean {
  try {
    closeSync(openSync(process.env['STRIKE_ONCE'] ?? '', 'wx'));
    return true;
  } catch {
    return false;
  }
}
