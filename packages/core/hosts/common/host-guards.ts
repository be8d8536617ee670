// The guards of a host, made when the host starts or with the first request, and again where a host that was closed is
// used again. Until then nothing of them is loaded: no keys are fetched, and no Redis is asked.

import type { GatewayObserver } from '../../call/gateway.ts';
import { joinGuards, type Admission, type Guard, type GuardedRequest } from '../../call/guard.ts';
import { createGuards, type Guards } from '../../guards/create-guards.ts';
import { MissingPackageError } from '../../guards/options/missing-package.ts';
import { describeFetchError } from '../../guards/options/outages.ts';
import type { GuardObserver } from '../../guards/options/ports.ts';
import type { GuardSettings } from '../../guards/options/guard-options.ts';
import { escapeControls } from '../../text/escape.ts';
import { HostMistake } from './failure-lines.ts';

/** All guards as one, and how to let go of them. */
type Made = Guards & { readonly guard: Guard };

const everyone: Guard = { admit: ({ identity }) => ({ isAdmitted: true, identity }) };

export class HostGuards implements Guard {
  readonly #settings: GuardSettings;
  readonly #observer: GatewayObserver;
  // Undefined before the first request and after `close`, and after a failure: the next request tries again.
  #making: Promise<Made> | undefined;
  // The result of `#making`.
  #made: Made | undefined;

  constructor(settings: GuardSettings, observer: GatewayObserver) {
    this.#settings = settings;
    this.#observer = observer;
  }

  admit(request: GuardedRequest): Admission | Promise<Admission> {
    return this.#made === undefined
      ? this.#make().then(({ guard }) => guard.admit(request))
      : this.#made.guard.admit(request);
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

  /** Lets go of keys and connections: at once, or as soon as they are made. */
  close(): void {
    this.#made?.close();
    this.#made = undefined;
    this.#making = undefined;
  }

  #make(): Promise<Made> {
    if (this.#making !== undefined) {
      return this.#making;
    }
    const making = this.#create();
    this.#making = making;
    making.then(
      (made) => {
        if (this.#making === making) {
          this.#made = made;
        } else {
          made.close();
        }
      },
      () => {
        if (this.#making === making) {
          this.#making = undefined;
        }
      },
    );
    return making;
  }

  async #create(): Promise<Made> {
    const made = await createGuards(this.#settings, this.#observeOutages(), undefined).catch(
      (error: unknown) => {
        throw error instanceof MissingPackageError ? new HostMistake(error.message) : error;
      },
    );
    return { ...made, guard: joinGuards(made.guards) ?? everyone };
  }

  // Once for each change.
  #observeOutages(): GuardObserver {
    let isFailing = false;
    return {
      onKeys: () => undefined,
      onInherited: () => undefined,
      onFetch: (error) => {
        if (isFailing !== (error !== undefined)) {
          isFailing = !isFailing;
          this.#tell('keys', error === undefined ? undefined : describeFetchError(error));
        }
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
