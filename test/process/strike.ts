// Loaded into the built command with `node --import`: sends STRIKE_SIGNAL to its own process when the process begins to
// load a file whose path contains STRIKE_AT. The first STRIKE_SKIP of these files are skipped. If several processes load
// such files, only the first process gets the signal. It is the one that creates the file STRIKE_ONCE.

import { closeSync, openSync } from 'node:fs';
import { registerHooks } from 'node:module';

let skips = Number(process.env['STRIKE_SKIP'] ?? 0);

registerHooks({
  load(url, context, next) {
    if (url.includes(process.env['STRIKE_AT'] ?? ' ')) {
      skips -= 1;
      if (skips === -1 && isFirst()) process.kill(process.pid, process.env['STRIKE_SIGNAL']);
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
