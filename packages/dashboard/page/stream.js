// The stream of events from the gateway: opens it, notices when it is gone, and opens it again. While the page
// is hidden there is none: browsers allow few streams to one address, and nobody looks.

/** @import { Message } from '../state.ts' */

/** @typedef {'connecting' | 'live' | 'lost' | 'full' | 'hidden'} StreamState */

const address = 'dashboard/events';
const retryMs = 1_000;
const fullRetryMs = 5_000;
// An event comes every second, or every other one while the backend does not answer at all.
const silenceMs = 5_000;

/**
 * Calls `onMessage` for each event and `onState` when the stream comes or goes; goes on for ever.
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
    // An event source does not say why: full, or away?
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
