// The guards of a host, made when the host starts or with the first request, and again where a host that was closed is
// used again. Until then nothing of them is loaded: no keys are fetched, and no Redis is asked.

import type { GatewayObserver } from '../../call/gateway.ts';
import { joinGuards, type Admission, type Guard, type GuardedRequest } from '../../call/guard.ts';
import { createGuards } from '../../guards/create-guards.ts';
import { MissingPackageError } from '../../guards/options/missing-package.ts';
import { describeFetchError } from '../../guards/options/outages.ts';
import type { GuardObserver } from '../../guards/options/ports.ts';
import type { GuardSettings } from '../../guards/options/guard-options.ts';
import { escapeControls } from '../../text/escape.ts';
import { HostMistake } from './failure-lines.ts';

/** What was made, and how to let go of it. */
interface Made {
  readonly guard: Guard;
  readonly fileProblem: string | undefined;
  close(): void;
}

/**
 * `none` → `making` → `made`; `close` leads back to `none`, and so does a failure: the next request tries again. What is
 * still being made when it is closed is let go of as soon as it is there.
 */
type State =
  | { readonly is: 'none' }
  | { readonly is: 'making'; readonly made: Promise<Made> }
  | { readonly is: 'made'; readonly made: Made };

const none: State = { is: 'none' };
const everyone: Guard = { admit: ({ identity }) => ({ isAdmitted: true, identity }) };

/** Guards by `settings`; undefined where all of them are off. */
export function createHostGuards(settings: GuardSettings, observer: GatewayObserver): HostGuards | undefined {
  return settings.authIssuer === '' && settings.rateLimit === ''
    ? undefined
    : new HostGuards(settings, observer);
}

export class HostGuards implements Guard {
  readonly #settings: GuardSettings;
  readonly #observer: GatewayObserver;
  #state: State = none;

  constructor(settings: GuardSettings, observer: GatewayObserver) {
    this.#settings = settings;
    this.#observer = observer;
  }

  admit(request: GuardedRequest): Admission | Promise<Admission> {
    return this.#state.is === 'made'
      ? this.#state.made.guard.admit(request)
      : this.#make().then(({ guard }) => guard.admit(request));
  }

  /**
   * Makes them now; rejects with an `Error` for people where `authJwksFile` has no keys. Where a request makes them, it is
   * answered as in every other outage of keys.
   */
  async start(): Promise<void> {
    const { fileProblem } = await this.#make();
    if (fileProblem !== undefined) {
      this.close();
      throw new Error(`authJwksFile has no keys: ${fileProblem}`);
    }
  }

  /** Lets go of keys and connections, at once. */
  close(): void {
    const state = this.#state;
    this.#state = none;
    if (state.is === 'made') {
      state.made.close();
    }
  }

  #make(): Promise<Made> {
    if (this.#state.is === 'made') {
      return Promise.resolve(this.#state.made);
    }
    if (this.#state.is === 'making') {
      return this.#state.made;
    }
    const state: State = { is: 'making', made: this.#create() };
    this.#state = state;
    state.made.then(
      (made) => {
        if (this.#state === state) {
          this.#state = { is: 'made', made };
        } else {
          made.close();
        }
      },
      () => {
        if (this.#state === state) {
          this.#state = none;
        }
      },
    );
    return state.made;
  }

  async #create(): Promise<Made> {
    const made = await createGuards(this.#settings, this.#observeOutages(), undefined).catch(
      (error: unknown) => {
        throw error instanceof MissingPackageError ? new HostMistake(error.message) : error;
      },
    );
    return {
      guard: joinGuards(made.guards) ?? everyone,
      fileProblem: made.fileProblem,
      close: () => {
        made.close();
      },
    };
  }

  // Once for each change.
  #observeOutages(): GuardObserver {
    let isFailing = false;
    return {
      onKeys: () => undefined,
      onInherited: () => undefined,
      onFetch: (error) => {
        if (error !== undefined && !isFailing) {
          this.#tell('keys', describeFetchError(error));
        } else if (error === undefined && isFailing) {
          this.#tell('keys', undefined);
        }
        isFailing = error !== undefined;
      },
      onCounter: (_who, cause) => {
        const text = cause instanceof Error ? cause.message : 'it does not answer';
        this.#tell('redis', cause === undefined ? undefined : text);
      },
      // No outage: it counts.
      onIdlePassword: () => undefined,
    };
  }

  #tell(what: 'keys' | 'redis', cause: string | undefined): void {
    try {
      this.#observer.onOutage?.(what, cause === undefined ? undefined : escapeControls(cause));
    } catch (error) {
      try {
        this.#observer.onBug(error, undefined);
      } catch {
        // Whoever would say so is broken.
      }
    }
  }
}
