// The guard that requires a valid token for every operation: a JSON Web Token [RFC 7519] in the `Authorization` header
// [D41 to D44]. The issuer must have signed the token for our audience. The token must be valid now and have the
// operation's scope. jose, which is loaded as soon as there is a key, checks signatures. key-set.ts provides the keys.

import { hash } from 'node:crypto';

import type { JWTPayload, JWTVerifyOptions } from 'jose';

import type { Admission, Guard, GuardedRequest } from '../../call/guard.ts';
import { fieldValue, fieldValues } from '../../http1/head.ts';
import type { OperationName } from '../../operations.ts';
import type { CallOutcome } from '../../outcomes.ts';
import { createScopeReply, replies, type FixedReply } from '../../replies.ts';
import type { Clock } from '../time/clock.ts';
import type { GuardSettings } from '../../options/guard-options.ts';
import { scopesOf } from '../../options/guard-kinds.ts';
import { tokenFlawNames, type TokenFlaw } from '../ports/ports.ts';
import type { KeySet } from './key-set.ts';
import { jose, type SigningKey } from './signing-keys.ts';
import { TokenMemory } from './token-memory.ts';

// Each cached token needs about half a kilobyte.
const rememberedMax = 10_000;
const rememberedMsMax = 300_000;
// Tokens with a longer subject are not cached, to keep entries small.
const rememberedSubjectMax = 1_024;
// Largest number of keys tried for a token without a key id, or whose id several keys share. For a forged token, each of
// these keys costs one verification.
const candidatesMax = 4;
// Two verifications keep a core as busy as a hundred would, and leave two of Node's four pool threads free.
const verifiedAtOnceMax = 2;
// Verifying 1,024 RS256 tokens takes a core about 0.1 s.
const waitingMaxDefault = 1_024;

// RFC 6750, 2.1: the scheme in capital or small letters [RFC 9110, 11.1], then one or more spaces.
const bearerForm = /^bearer(?: +(.*))?$/i;
// Three non-empty parts of base64url [RFC 7515, 3.1].
const compactForm = /^[\w-]+\.[\w-]+\.[\w-]+$/;

interface VerifiedToken {
  readonly admission: Admission;
  /** The scopes that the token has and that operations require. */
  readonly scopes: readonly string[];
}

export class TokenGuard implements Guard {
  readonly #settings: GuardSettings;
  readonly #verifyOptions: JWTVerifyOptions;
  readonly #keys: KeySet;
  readonly #clock: Clock;
  readonly #waitingMax: number;
  #memory: TokenMemory<VerifiedToken>;
  #verifiedAtOnce = 0;
  // For each waiting token, the function that starts its verification, in order of arrival.
  readonly #waiting: (() => void)[] = [];
  readonly #required: ReadonlyMap<OperationName, { readonly scope: string; readonly refusal: Admission }>;

  constructor(settings: GuardSettings, keys: KeySet, clock: Clock, waitingMax = waitingMaxDefault) {
    const { authIssuer, authAudience, authClockSkewMs, authTokenType, authScopes } = settings;
    this.#settings = settings;
    this.#verifyOptions = {
      issuer: authIssuer,
      audience: [...authAudience],
      requiredClaims: ['exp'],
      clockTolerance: authClockSkewMs / 1_000,
      ...(authTokenType !== 'any' && { typ: authTokenType }),
    };
    this.#keys = keys;
    this.#clock = clock;
    this.#waitingMax = waitingMax;
    this.#memory = new TokenMemory(clock, rememberedMax);
    this.#required = new Map(
      [...scopesOf(authScopes)].map(([operation, scope]) => {
        const refusal = refuse(createScopeReply(scope), 'insufficient-scope', `the token lacks the scope ${scope}`);
        return [operation, { scope, refusal }];
      }),
    );
  }

  get remembered(): number {
    return this.#memory.size;
  }

  /** Empties the cache. Call this when the keys change, because cached tokens were verified with the old keys [D44]. */
  forgetAll(): void {
    this.#memory = new TokenMemory(this.#clock, rememberedMax);
  }

  admit({ head: { fields }, operation }: GuardedRequest): Admission | Promise<Admission> {
    const authorization = fieldValue(fields, 'authorization');
    if (authorization === undefined) return noToken;
    if (fieldValues(fields, 'authorization').length > 1) return twoTokens;
    const token = bearerForm.exec(authorization)?.[1];
    if (token === undefined || token === '') return noToken;
    // The SHA-256 of the whole token, as Latin-1 text: the shortest and fastest form, with one character per byte.
    const digest = hash('sha256', token, 'latin1');
    const verified = this.#memory.find(digest);
    return verified === undefined ? this.#verify(token, digest, operation) : this.#decide(verified, operation);
  }

  #decide({ admission, scopes }: VerifiedToken, operation: OperationName): Admission {
    const required = this.#required.get(operation);
    return required === undefined || scopes.includes(required.scope)
      ? admission
      : { ...required.refusal, identity: admission.identity };
  }

  async #verify(token: string, digest: string, operation: OperationName): Promise<Admission> {
    await this.#keys.first;
    const known = this.#keys.current;
    if (known.length === 0) return noKeys;
    try {
      const header = readHeader(token, this.#settings.authAlgorithms);
      const verified = await this.#readInTurn(token, digest, header).catch(async (error: unknown) => {
        if (!needsOtherKey(error)) throw error;
        // The issuer may have replaced its keys. A new key may have the id of an old key, or no id.
        await this.#keys.seek();
        // That fetch may have begun before the issuer replaced its keys.
        if (this.#keys.current === known) await this.#keys.seek();
        if (this.#keys.current === known) throw error;
        return await this.#readInTurn(token, digest, header);
      });
      return verified === undefined ? tooMany : this.#decide(verified, operation);
    } catch (error) {
      if (!(error instanceof FlawedToken)) throw error;
      // The fetch may have replaced the keys with an empty set.
      return this.#keys.current.length === 0 ? noKeys : flawed[error.flaw];
    }
  }

  // Reads only a few tokens at a time, in order of arrival. Returns undefined immediately if too many tokens wait.
  async #readInTurn(token: string, digest: string, header: TokenHeader): Promise<VerifiedToken | undefined> {
    // Throws if no key matches, so that such a token does not wait.
    this.#findKeys(header);
    if (this.#verifiedAtOnce < verifiedAtOnceMax) {
      this.#verifiedAtOnce += 1;
    } else if (this.#waiting.length < this.#waitingMax) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else {
      return undefined;
    }
    try {
      return await this.#read(token, digest, header);
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) {
        this.#verifiedAtOnce -= 1;
      } else {
        next();
      }
    }
  }

  async #read(token: string, digest: string, header: TokenHeader): Promise<VerifiedToken> {
    // Looked up after the wait in the queue, because a key may have been removed meanwhile.
    const keys = this.#findKeys(header);
    // Read before the verification: if the keys change meanwhile, `forgetAll` replaces the cache. Then the token is
    // stored in the old cache, which is not read any more.
    const memory = this.#memory;
    const { staleAt } = this.#keys;
    const claims = await this.#readClaims(token, keys);
    const { exp = NaN } = claims;
    // jose declares a type but does not check it, so a claim can have any value.
    const subject: unknown = claims.sub;
    if (subject !== undefined && typeof subject !== 'string') throw new FlawedToken('claims');
    // UTF-8 cannot encode lone surrogates, so different names would be sent as the same bytes.
    if (!Number.isFinite(exp) || subject?.isWellFormed() === false) throw new FlawedToken('claims');
    const granted = scopesIn(claims, this.#settings.authScopeClaim);
    const verified: VerifiedToken = {
      admission: { isAdmitted: true, identity: subject === '' ? undefined : subject },
      scopes: [...this.#required.values()].map(({ scope }) => scope).filter((scope) => granted.includes(scope)),
    };
    if ((subject ?? '').length <= rememberedSubjectMax) {
      memory.remember(digest, verified, exp * 1_000, Math.min(this.#clock.steady() + rememberedMsMax, staleAt));
    }
    return verified;
  }

  #findKeys({ algorithm, kid }: TokenHeader): readonly SigningKey[] {
    const keys = this.#keys.current.filter(
      (key) => key.algorithm === algorithm && (kid === undefined || key.kid === kid),
    );
    if (keys.length === 0) throw new FlawedToken('unknown-key');
    return keys.slice(0, candidatesMax);
  }

  async #readClaims(token: string, keys: readonly SigningKey[]): Promise<JWTPayload> {
    let flaw: TokenFlaw = 'signature';
    for (const { key, algorithm } of keys) {
      const currentDate = new Date(this.#clock.now());
      try {
        const options = { ...this.#verifyOptions, algorithms: [algorithm], currentDate };
        return (await jose.jwtVerify(token, key, options)).payload;
      } catch (error) {
        flaw = flawOf(error);
        if (flaw !== 'signature') break;
      }
    }
    throw new FlawedToken(flaw);
  }
}

// Returns the scopes in all claims that `names` name [D42].
function scopesIn(claims: JWTPayload, names: readonly string[]): readonly unknown[] {
  return names
    .flatMap((name) => claimsNamed(name, claims))
    .flatMap((claim) =>
      typeof claim === 'string' ? claim.split(' ') : Array.isArray(claim) ? (claim as unknown[]) : [],
    );
}

// A dot in `name` leads into an object, but can also be part of a claim's own name.
function claimsNamed(name: string, object: unknown): unknown[] {
  if (typeof object !== 'object' || object === null || Array.isArray(object)) return [];
  return Object.entries(object).flatMap(([key, value]: [string, unknown]) =>
    key === name ? [value] : name.startsWith(`${key}.`) ? claimsNamed(name.slice(key.length + 1), value) : [],
  );
}

interface TokenHeader {
  readonly algorithm: string;
  readonly kid: string | undefined;
}

function readHeader(token: string, algorithms: readonly string[]): TokenHeader {
  // Unused bits in the last character of a base64url part must be 0. Otherwise a token would have several spellings.
  const isSpelledSo = (part: string): boolean => Buffer.from(part, 'base64url').toString('base64url') === part;
  if (!compactForm.test(token) || !token.split('.').every(isSpelledSo)) throw new FlawedToken('malformed');
  let header: { readonly alg?: unknown; readonly kid?: unknown };
  try {
    header = jose.decodeProtectedHeader(token);
  } catch {
    throw new FlawedToken('malformed');
  }
  const { alg, kid } = header;
  if (typeof alg !== 'string' || !(kid === undefined || typeof kid === 'string')) throw new FlawedToken('malformed');
  if (!algorithms.includes(alg)) throw new FlawedToken('algorithm');
  return { algorithm: alg, kid };
}

class FlawedToken extends Error {
  readonly flaw: TokenFlaw;
  constructor(flaw: TokenFlaw) {
    super(flaw);
    this.flaw = flaw;
  }
}

function needsOtherKey(error: unknown): boolean {
  return error instanceof FlawedToken && (error.flaw === 'unknown-key' || error.flaw === 'signature');
}

// Maps an error of jose to a flaw. Rethrows any other error, which is a bug in the gateway.
function flawOf(error: unknown): TokenFlaw {
  const { errors } = jose;
  if (!(error instanceof errors.JOSEError)) throw error;
  if (error instanceof errors.JWSSignatureVerificationFailed) return 'signature';
  if (error instanceof errors.JWTExpired) return 'expired';
  if (!(error instanceof errors.JWTClaimValidationFailed)) return 'malformed';
  // `invalid` is a time that is not a number.
  return (error.reason === 'invalid' ? undefined : claimFlaws[error.claim]) ?? 'claims';
}

const claimFlaws: NodeJS.Dict<TokenFlaw> = { iss: 'issuer', aud: 'audience', nbf: 'not-yet-valid', typ: 'type' };

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
