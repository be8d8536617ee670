// Loaded into the built command with `node --import`: sends STRIKE_SIGNAL to its own process when the process begins to
// load a file whose path contains STRIKE_AT. If several processes load that file, only the first gets the signal. The
// first is the process that creates the file STRIKE_ONCE.

import { closeSync, openSync } from 'node:fs';
import { registerHooks } from 'node:module';

registerHooks({
  load(url, context, next) {
    if (url.includes(process.env['STRIKE_AT'] ?? ' ') && isFirst()) {
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
