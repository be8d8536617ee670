// Fetches the gateway's state every second while the page is visible.

/** @import { Message } from '../state.ts' */

const restMs = 1_000;
const timeoutMs = 5_000;

/**
 * Calls `onMessage` for each state, or with undefined if the gateway does not answer. Never ends.
 * @type {(address: () => string, onMessage: (message: Message | undefined) => void) => void}
 */
export const poll = (address, onMessage) => {
  /** @type {number | undefined} */
  let timer;
  let isFetching = false;

  /** @returns {Promise<Message | undefined>} */
  const read = async () => {
    try {
      const reply = await fetch(address(), { signal: AbortSignal.timeout(timeoutMs) });
      return reply.ok ? await reply.json() : undefined;
    } catch {
      return undefined;
    }
  };

  const run = async () => {
    window.clearTimeout(timer);
    if (document.hidden || isFetching) {
      return;
    }
    isFetching = true;
    const message = await read();
    isFetching = false;
    timer = window.setTimeout(run, restMs);
    onMessage(message);
  };
  document.addEventListener('visibilitychange', run);
  void run();
};
