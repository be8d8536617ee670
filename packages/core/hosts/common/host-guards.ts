// Creates a host's guards when the host starts, or at the first request. After `close`, the next request creates new
// guards. Before the first guards are created, their code is not loaded, no keys are fetched and Redis is not contacted.

import type { GatewayObserver } from '../../call/gateway.ts';
import { joinGuards, type Admission, type Guard, type GuardedRequest } from '../../call/guard.ts';
import { createGuards, type Guards } from '../../guards/guard-parts.ts';
import { MissingPackageError } from '../../guards/ports/missing-package.ts';
import type { GuardObserver, outageTexts } from '../../guards/ports/ports.ts';
import type { GuardSettings } from '../../options/guard-options.ts';
import { escapeControls } from '../../text/escape.ts';
import { HostMistake } from './failure-lines.ts';
import { withCode } from './gateway-error.ts';

type JoinedGuards = Guards & { readonly guard: Guard };

/** `settings` must turn on at least one guard. */
export class HostGuards implements Guard {
  readonly #settings: GuardSettings;
  readonly #observer: GatewayObserver;
  // Undefined before the first use, after `close` and after a failure. In these states the next request creates guards.
  #making: Promise<JoinedGuards> | undefined;
  #made: JoinedGuards | undefined;

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
   * Creates the guards now. Rejects if `authJwksFile` has no keys. When a request creates the guards, a file without keys
   * counts as an outage, like a failed fetch from `authJwksUrl`.
   */
  async start(): Promise<void> {
    const { fileProblem } = await this.#make();
    if (fileProblem !== undefined) {
      this.close();
      throw withCode('ERR_GATEWAY_KEYS', new Error(`authJwksFile has no keys: ${fileProblem}`));
    }
  }

  /** Releases keys and connections. Guards that are still being created are closed when they are ready. */
  close(): void {
    this.#made?.close();
    this.#made = undefined;
    this.#making = undefined;
  }

  #make(): Promise<JoinedGuards> {
    if (this.#making !== undefined) return this.#making;
    const making = createGuards(this.#settings, this.#observeOutages(), undefined).then(
      (guards) => {
        const guard = joinGuards(guards.guards);
        if (guard === undefined) throw new Error('no guard is on');
        const made = { ...guards, guard };
        if (this.#making === making) {
          this.#made = made;
        } else {
          made.close();
        }
        return made;
      },
      (error: unknown) => {
        if (this.#making === making) this.#making = undefined;
        throw error instanceof MissingPackageError ? new HostMistake(error.message) : error;
      },
    );
    this.#making = making;
    return making;
  }

  // Returns an observer that reports the beginning and the end of each outage once.
  #observeOutages(): GuardObserver {
    let isFailing = false;
    return {
      onKeys: () => undefined,
      onInherited: () => undefined,
      onFetch: (cause) => {
        if (isFailing !== (cause !== undefined)) {
          isFailing = !isFailing;
          reportOutage(this.#observer, 'keys', cause);
        }
      },
      onCounter: (_who, cause) => {
        const text = cause instanceof Error ? cause.message : 'no answer';
        reportOutage(this.#observer, 'redis', cause === undefined ? undefined : text);
      },
      // An unused password is no outage, so nothing is reported: Redis still counts requests.
      onUnusedPassword: () => undefined,
    };
  }
}

/** Reports the beginning of an outage with its `cause`, or its end without one. */
export function reportOutage(
  observer: GatewayObserver,
  what: keyof typeof outageTexts,
  cause: string | undefined,
): void {
  try {
    observer.onOutage?.(what, cause === undefined ? undefined : escapeControls(cause));
  } catch (error) {
    try {
      observer.onBug(error, undefined);
    } catch {
      // The observer itself is broken, so the error cannot be reported.
    }
  }
}
