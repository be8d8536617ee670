// The guard that wants a valid token of every call of an operation: a JSON Web Token [RFC 7519] in the `Authorization`
// header, signed by the issuer, for us, in force, and with the operation's scope [D41 to D44]. Signatures are jose's
// affair, the keys are key-set.ts's.

import { decodeProtectedHeader, errors, jwtVerify, type JWTPayload, type JWTVerifyOptions } from 'jose';

import type { Admission, Guard, GuardedRequest } from '../../call/guard.ts';
import type { OperationName } from '../../operations.ts';
import type { CallOutcome } from '../../outcomes.ts';
import { createScopeReply, replies, type FixedReply } from '../../replies.ts';
import { fieldValue, fieldValues } from '../../http1/head.ts';
import type { Clock } from '../../time/clock.ts';
import type { GuardSettings } from '../options/guard-options.ts';
import { scopesOf } from '../options/token-kinds.ts';
import type { KeySet } from './key-set.ts';
import { isSignatureAlgorithm, type SignatureAlgorithm } from '../options/signature-algorithms.ts';
import type { SigningKey } from './signing-keys.ts';
import { Slots } from './slots.ts';
import { tokenFlawNames, type TokenFlaw } from '../options/token-flaws.ts';
import { digestToken, TokenMemory, type TokenDigest } from './token-memory.ts';

type TokenSettings = Pick<
  GuardSettings,
  | 'authIssuer'
  | 'authAudience'
  | 'authAlgorithms'
  | 'authClockSkewMs'
  | 'authTokenType'
  | 'authScopes'
  | 'authScopeClaim'
>;

/** Tokens that are remembered at once, at most; each takes about half a kilobyte. */
const rememberedMax = 10_000;
const rememberedMsMax = 300_000;
// Who needs more than this for a name is verified each time: what is remembered must stay small.
const rememberedSubjectMax = 1_024;
// An issuer that gives its keys no names, or one name to several: each costs a forger's token one more verification.
const candidatesMax = 4;
// Tokens that are verified at a time: two keep a core as busy as a hundred do, and leave half of Node's four threads.
const verifiedAtOnceMax = 2;
/** Tokens that wait to be verified, at most: 1,024 of RS256 take a core about 0.1 s. */
const waitingMaxDefault = 1_024;

// RFC 6750, 2.1: one or more spaces, and the scheme in any case [RFC 9110, 11.1].
const bearerForm = /^bearer(?: +(.*))?$/i;
// Three parts of base64url, none of them empty [RFC 7515, 3.1].
const compactForm = /^[\w-]+\.[\w-]+\.[\w-]+$/;

/** A token that has been verified. */
interface Verified {
  readonly admission: Admission;
  /** For the operations whose scope it lacks. */
  readonly refusals: Refusals;
}

type Refusals = ReadonlyMap<OperationName, Admission>;

export class TokenGuard implements Guard {
  readonly #settings: TokenSettings;
  // The scope that an operation needs; one that is not named needs none.
  readonly #scopes: ReadonlyMap<OperationName, string>;
  readonly #keys: KeySet;
  readonly #clock: Clock;
  readonly #memory: TokenMemory<Verified>;
  readonly #slots: Slots;
  // For a token without any scope.
  readonly #refusals: Refusals;
  // Counts the changes of the keys: what was verified with those before is not remembered after.
  #generation = 0;

  constructor(
    settings: TokenSettings,
    keys: KeySet,
    clock: Clock,
    entriesMax = rememberedMax,
    waitingMax = waitingMaxDefault,
  ) {
    this.#settings = settings;
    this.#scopes = scopesOf(settings.authScopes);
    this.#keys = keys;
    this.#clock = clock;
    this.#memory = new TokenMemory(clock, entriesMax);
    this.#slots = new Slots(verifiedAtOnceMax, waitingMax);
    this.#refusals = new Map(
      [...this.#scopes].map(([operation, scope]) => [
        operation,
        refuse(createScopeReply(scope), 'insufficient-scope', `it lacks the scope ${scope}`),
      ]),
    );
  }

  /** How many tokens are remembered. */
  get remembered(): number {
    return this.#memory.size;
  }

  /** To be called when the keys have changed: no token counts any more for what it was found to be with others [D44]. */
  forgetAll(): void {
    this.#generation += 1;
    this.#memory.forgetAll();
  }

  admit({ head: { fields }, operation }: GuardedRequest): Admission | Promise<Admission> {
    const authorization = fieldValue(fields, 'authorization');
    if (authorization === undefined) {
      return noToken;
    }
    if (fieldValues(fields, 'authorization').length > 1) {
      return twoTokens;
    }
    const token = bearerForm.exec(authorization)?.[1];
    if (token === undefined || token === '') {
      return noToken;
    }
    const digest = digestToken(token);
    const verified = this.#memory.find(digest);
    return verified === undefined ? this.#verify(token, digest, operation) : admissionOf(verified, operation);
  }

  async #verify(token: string, digest: TokenDigest, operation: OperationName): Promise<Admission> {
    await this.#keys.first;
    if (this.#keys.current.keys.length === 0) {
      return noKeys;
    }
    try {
      const header = readHeader(token);
      await this.#seekKey(header);
      if (this.#slots.isFull) {
        return tooMany;
      }
      const verified = await this.#slots.run(async () => await this.#read(token, digest, header));
      return admissionOf(verified, operation);
    } catch (error) {
      if (error instanceof FlawedToken) {
        // What was fetched for it may have had no key at all.
        return this.#keys.current.keys.length === 0 ? noKeys : flawed[error.flaw];
      }
      throw error;
    }
  }

  // Throws a FlawedToken for every token that is not valid.
  async #read(token: string, digest: TokenDigest, header: Header): Promise<Verified> {
    // Now, and not before it had to wait: a key may have been taken away meanwhile.
    const keys = this.#findKeys(header);
    const generation = this.#generation;
    const { staleAt } = this.#keys;
    const claims = await this.#check(token, keys);
    const verified = this.#describe(claims);
    const { exp = 0, sub = '' } = claims;
    if (generation === this.#generation && sub.length <= rememberedSubjectMax) {
      const forgetAt = Math.min(this.#clock.steady() + rememberedMsMax, staleAt);
      this.#memory.remember(digest, verified, exp * 1_000, forgetAt);
    }
    return verified;
  }

  async #seekKey(header: Header): Promise<void> {
    const { algorithm, kid } = header;
    if (!this.#settings.authAlgorithms.includes(algorithm)) {
      throw new FlawedToken('algorithm');
    }
    if (kid !== undefined && !this.#keys.current.has(kid)) {
      // The issuer may have a new one.
      await this.#keys.seek();
    }
    this.#findKeys(header);
  }

  #findKeys({ algorithm, kid }: Header): readonly SigningKey[] {
    const keys = this.#keys.current.find(algorithm, kid);
    if (keys.length === 0) {
      throw new FlawedToken('unknown-key');
    }
    return keys.slice(0, candidatesMax);
  }

  async #check(token: string, keys: readonly SigningKey[]): Promise<JWTPayload> {
    const { authIssuer, authAudience, authClockSkewMs, authTokenType } = this.#settings;
    let flaw: TokenFlaw = 'signature';
    for (const { key, algorithm } of keys) {
      const options: JWTVerifyOptions = {
        algorithms: [algorithm],
        issuer: authIssuer,
        audience: [...authAudience],
        requiredClaims: ['exp'],
        clockTolerance: authClockSkewMs / 1_000,
        currentDate: new Date(this.#clock.now()),
        ...(authTokenType !== 'any' && { typ: authTokenType }),
      };
      try {
        return (await jwtVerify(token, key, options)).payload;
      } catch (error) {
        flaw = flawOf(error);
        if (flaw !== 'signature') {
          break;
        }
      }
    }
    throw new FlawedToken(flaw);
  }

  #describe({ exp, sub, ...others }: JWTPayload): Verified {
    const { authScopeClaim: claim } = this.#settings;
    // Types are of the library's wishes: what stands in a token is whatever the issuer has put there.
    const subject: unknown = sub;
    if (!Number.isFinite(exp) || !(subject === undefined || isName(subject))) {
      throw new FlawedToken('claims');
    }
    const granted = this.#scopes.size === 0 ? [] : readScopes(Object.hasOwn(others, claim) && others[claim]);
    const lacking = [...this.#refusals].filter(([name]) => !granted.includes(this.#scopes.get(name)));
    return {
      admission: { isAdmitted: true, identity: subject === '' ? undefined : subject },
      refusals: lacking.length === 0 ? none : new Map(lacking),
    };
  }
}

const none: Refusals = new Map();

function admissionOf({ admission, refusals }: Verified, operation: OperationName): Admission {
  const refusal = refusals.get(operation);
  return refusal === undefined ? admission : { ...refusal, identity: admission.identity };
}

// Half of a pair of surrogates has no bytes: two names could become one.
function isName(value: unknown): value is string {
  return typeof value === 'string' && value.isWellFormed();
}

function readScopes(claim: unknown): readonly unknown[] {
  return typeof claim === 'string' ? claim.split(' ') : Array.isArray(claim) ? (claim as unknown[]) : [];
}

/** What a token says of its key. */
interface Header {
  readonly algorithm: SignatureAlgorithm;
  readonly kid: string | undefined;
}

function readHeader(token: string): Header {
  if (!compactForm.test(token) || !hasOneSpelling(token)) {
    throw new FlawedToken('malformed');
  }
  let header;
  try {
    header = decodeProtectedHeader(token);
  } catch {
    throw new FlawedToken('malformed');
  }
  const { alg, kid } = header as { readonly alg: unknown; readonly kid: unknown };
  if (typeof alg !== 'string' || !(kid === undefined || typeof kid === 'string')) {
    throw new FlawedToken('malformed');
  }
  if (!isSignatureAlgorithm(alg)) {
    throw new FlawedToken('algorithm');
  }
  return { algorithm: alg, kid };
}

// The last character of a part can have bits that mean nothing. A decoder that drops them takes many texts for one token.
function hasOneSpelling(token: string): boolean {
  return token.split('.').every((part) => {
    const end = part.slice(-(part.length % 4 === 0 ? 4 : part.length % 4));
    return Buffer.from(end, 'base64url').toString('base64url') === end;
  });
}

class FlawedToken extends Error {
  readonly flaw: TokenFlaw;
  constructor(flaw: TokenFlaw) {
    super(flaw);
    this.flaw = flaw;
  }
}

// By the library's codes; what is no error of its own is a fault of ours.
function flawOf(error: unknown): TokenFlaw {
  if (!(error instanceof errors.JOSEError)) {
    throw error;
  }
  if (error instanceof errors.JWTClaimValidationFailed) {
    return error.reason === 'check_failed' ? (flawsOfClaims[error.claim] ?? 'claims') : 'claims';
  }
  return flawsOfErrors[error.code] ?? 'malformed';
}

const flawsOfErrors: Readonly<Record<string, TokenFlaw>> = {
  [errors.JWSSignatureVerificationFailed.code]: 'signature',
  [errors.JWTExpired.code]: 'expired',
  [errors.JOSEAlgNotAllowed.code]: 'algorithm',
};

const flawsOfClaims: Readonly<Record<string, TokenFlaw>> = {
  iss: 'issuer',
  aud: 'audience',
  nbf: 'not-yet-valid',
  typ: 'type',
};

function refuse(reply: FixedReply, outcome: CallOutcome, cause: string | undefined): Admission {
  return { isAdmitted: false, reply, outcome, cause };
}

const noToken = refuse(replies.unauthorized, 'no-token', undefined);
const twoTokens = refuse(replies.badRequest, 'bad-request', 'two authorization fields');
const noKeys = refuse(replies.noKeys, 'no-keys', undefined);
const tooMany = refuse(replies.overload, 'overload', 'too many tokens wait to be verified');
const flawed = Object.fromEntries(
  tokenFlawNames.map((flaw) => [flaw, { ...refuse(replies.invalidToken, 'invalid-token', flaw), flaw }]),
) as Record<TokenFlaw, Admission>;
