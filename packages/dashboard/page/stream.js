// Keeps the event stream from the gateway open, and reopens it when it breaks. Closes the stream while the page is
// hidden, because browsers allow few streams per origin.

/** @import { Message } from '../state.ts' */

/** @typedef {'connecting' | 'live' | 'lost' | 'full' | 'hidden'} StreamState */

const address = 'dashboard/events';
const retryMs = 1_000;
const fullRetryMs = 5_000;
// Without an event for this long, the stream is reopened. An event comes every second, or every other second while the
// backend does not answer.
const silenceMs = 5_000;

/**
 * Calls `onMessage` for each event and `onState` for the stream's state. Never ends.
 * @type {(onMessage: (message: Message) => void, onState: (state: StreamState) => void) => void}
 */
export const follow = (onMessage, onState) => {
  /** @type {EventSource | undefined} */
  let source;
  /** @type {number | undefined} */
  let timer;

  const stop = () => {
    window.clearTimeout(timer);
    source?.close();
    source = undefined;
  };

  /** @type {(state: StreamState, ms: number) => void} */
  const retry = (state, ms) => {
    stop();
    onState(state);
    timer = window.setTimeout(open, ms);
  };

  const lose = () => {
    retry('lost', retryMs);
    // EventSource does not tell the status, so this request reads it. It is 503 if too many dashboards are open.
    fetch(address, { method: 'HEAD' }).then(
      ({ status }) => {
        if (status === 503 && source === undefined) {
          retry('full', fullRetryMs);
        }
      },
      () => undefined,
    );
  };

  const watch = () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(lose, silenceMs);
  };

  const open = () => {
    stop();
    source = new EventSource(address);
    source.onmessage = (event) => {
      watch();
      onState('live');
      onMessage(/** @type {Message} */ (JSON.parse(String(event.data))));
    };
    source.onerror = lose;
    watch();
  };

  const followVisibility = () => {
    if (document.hidden) {
      stop();
      onState('hidden');
    } else {
      onState('connecting');
      open();
    }
  };
  document.addEventListener('visibilitychange', followVisibility);
  followVisibility();
};
