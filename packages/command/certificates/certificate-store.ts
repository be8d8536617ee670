// Holds the certificates in force. Reads their files at the start, then checks them for changes at intervals and on demand
// [D37]. File-system events would miss a change by Kubernetes, which swaps a symbolic link in a folder above the files.

import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';

import { certificateDaysMin, daysLeft, type CertificateStatus } from '../../figures/facts.ts';
import type { Logger } from '../log/log.ts';
import {
  dateOf,
  describeMissing,
  findValidityProblems,
  hasFiles,
  readCertificateSet,
  readFileTexts,
  type CertificateFiles,
  type CertificateSet,
  type CertificateUse,
  type FileTexts,
  type NamedFile,
  type TlsInForce,
} from './certificates.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';

type Files = Readonly<Record<CertificateUse, CertificateFiles>>;

interface CertificateOptions {
  readonly tlsMinVersion: '1.2' | '1.3';
  readonly tlsReloadMs: number;
  readonly backendServerName: string;
}

interface Use {
  readonly name: CertificateUse;
  readonly files: CertificateFiles;
  /** The files' texts at the last check. */
  seen: FileTexts;
  inForce: FileTexts;
  set: CertificateSet;
  problems: readonly string[];
  taken: number;
  refused: number;
}

/** The files that the settings name, and their contents. If a reload names other files, it replaces the whole source. */
interface Source {
  readonly name: string;
  readonly options: CertificateOptions;
  readonly uses: readonly Use[];
  ticketKeys: Buffer;
  ticketKeysSince: number;
  /** The check that was requested last. */
  last: Promise<void>;
  /** The requested check that has not started yet. */
  next: Promise<void> | undefined;
}

// A changed file may still be incomplete. No check can detect this, because a truncated chain still matches its key. So
// changed files are read again at this interval until two reads in a row are equal, at most `settleTries` times.
const settleMs = 100;
const settleTries = 20;
// Longest time that a reload waits for files, because a file system may hang.
const reloadMsMax = 3_000;
// Session ticket keys are replaced after this time, because a stolen key decrypts the TLS 1.2 sessions resumed with it.
const ticketKeysMsMax = 86_400_000;

export class CertificateStore {
  inForce: TlsInForce;
  readonly #logger: Logger;
  #source: Source;
  #timer: NodeJS.Timeout | undefined;
  #onChange: (tls: TlsInForce) => void = () => undefined;
  #isReloading = false;

  /** Reads the files, if any. Throws a StartError if they cannot be used. */
  constructor(files: Files, options: CertificateOptions, logger: Logger) {
    this.#logger = logger;
    const texts = { clients: readFileTexts(files.clients), backend: readFileTexts(files.backend) };
    this.#source = this.#open(files, texts, options, []);
    this.inForce = compose(this.#source);
  }

  #open(
    files: Files,
    texts: Readonly<Record<CertificateUse, FileTexts>>,
    options: CertificateOptions,
    previous: readonly Use[],
  ): Source {
    const configured = (['clients', 'backend'] as const).filter((name) => hasFiles(files[name]));
    const uses = configured.map((name): Use => {
      const set = readCertificateSet(files[name], texts[name]);
      if (!('own' in set)) throw new StartError(set.join('; '), undefined);
      // The counts of `previous` go on.
      const { taken = 0, refused = 0 } = previous.find((use) => use.name === name) ?? {};
      return { name, files: files[name], seen: texts[name], inForce: texts[name], set, problems: [], taken, refused };
    });
    for (const use of uses) this.#describe(use, 'certificate in force');
    const name = nameOf(files, options);
    return { name, options, uses, ...drawTicketKeys(), last: Promise.resolve(), next: undefined };
  }

  status(): CertificateStatus[] {
    return this.#source.uses.map(({ name, set: { own }, problems, taken, refused }) => ({
      use: name,
      own: own && { subject: own.subject, names: own.names, expiresAt: own.validTo },
      problems,
      taken,
      refused,
    }));
  }

  /** Starts to check the files at intervals. Calls `onChange` when the certificates or ticket keys in force have changed. */
  begin(onChange: (tls: TlsInForce) => void): void {
    this.#onChange = onChange;
    this.#startTimer(this.#source.options);
  }

  #startTimer({ tlsReloadMs }: CertificateOptions): void {
    clearInterval(this.#timer);
    this.#timer = setInterval(() => void this.look(), tlsReloadMs).unref();
  }

  end(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /**
   * Puts the certificates of these settings in force: checks the files, or reads them if they are not those in force. Then
   * calls `use`, and resolves with its result. A check that was waiting for a file changes nothing any more. If the
   * files cannot be used or `use` rejects, rejects too, and the certificates before stay in force.
   */
  async reload<T>(files: Files, options: CertificateOptions, use: (tls: TlsInForce) => Promise<T>): Promise<T> {
    const isSame = nameOf(files, options) === this.#source.name;
    if (isSame) await Promise.race([this.look(), delay(reloadMsMax, undefined, { ref: false })]);
    const { inForce } = this;
    const source = this.#source;
    this.#isReloading = true;
    try {
      if (!isSame) {
        const both = Promise.all([readTexts(files.clients), readTexts(files.backend)]);
        const texts = await Promise.race([both, delay(reloadMsMax, undefined, { ref: false })]);
        if (!texts) throw new StartError('the certificate files cannot be read: no answer for 3 s', undefined);
        const [clients, backend] = texts;
        this.#source = this.#open(files, { clients, backend }, options, source.uses);
        this.inForce = compose(this.#source);
      }
      const result = await use(this.inForce);
      if (this.#timer !== undefined) this.#startTimer(options);
      return result;
    } catch (error) {
      this.#source = source;
      this.inForce = inForce;
      throw error;
    } finally {
      this.#isReloading = false;
    }
  }

  /** Checks the files. Waits for a check in progress first. Resolves when done; never rejects. */
  async look(): Promise<void> {
    const source = this.#source;
    source.next ??= source.last.then(async () => {
      source.next = undefined;
      await this.#lookOnce(source);
    });
    source.last = source.next;
    await source.next;
  }

  async #lookOnce(source: Source): Promise<void> {
    const { uses } = source;
    const texts = await Promise.all(uses.map(async (use) => [use, await readSettled(use.files, use.seen)] as const));
    // A reload has begun or has replaced the source: the next check finds the change, if it still matters. Nothing is
    // awaited from here on.
    if (uses.length === 0 || this.#isReloading || source !== this.#source) return;
    const changed = texts.filter(([use, found]) => this.#take(use, found));
    if (changed.length > 0 || Date.now() - source.ticketKeysSince >= ticketKeysMsMax) {
      Object.assign(source, drawTicketKeys());
      this.inForce = compose(source);
      this.#onChange(this.inForce);
    }
  }

  // Returns true if the certificates in force have changed.
  #take(use: Use, texts: FileTexts): boolean {
    if (isDeepStrictEqual(texts, use.seen)) return false;
    use.seen = texts;
    if (isDeepStrictEqual(texts, use.inForce)) {
      use.problems = [];
      this.#logger.info({ use: use.name }, 'certificate files again match the certificates in force');
      return false;
    }
    const set = readCertificateSet(use.files, texts);
    use.problems = 'own' in set ? findValidityProblems(use.files, set, Date.now()) : set;
    if (!('own' in set) || use.problems.length > 0) {
      use.refused += 1;
      this.#logger.error(
        { use: use.name, problems: use.problems },
        'new certificate files refused: the previous certificates stay in force',
      );
      return false;
    }
    use.set = set;
    use.inForce = texts;
    use.taken += 1;
    this.#describe(use, 'new certificate in force');
    return true;
  }

  #describe({ name, files, set }: Use, message: string): void {
    const logger = this.#logger;
    const { own } = set;
    if (own === undefined) {
      logger.info({ use: name, authorities: set.authorities.length }, message);
      return;
    }
    const days = Math.floor(daysLeft(own.validTo, Date.now()));
    const facts = { use: name, subject: own.subject, names: own.names, expires: dateOf(own.validTo), daysLeft: days };
    const [flaw] = findValidityProblems(files, set, Date.now());
    if (flaw !== undefined) logger.error(facts, `${message}, but ${flaw}`);
    else if (days >= certificateDaysMin) logger.info(facts, message);
    else logger.warn(facts, `${message}, but it expires in ${days === 1 ? '1 day' : `${days} days`}`);
  }
}

function compose({ uses, options, ticketKeys }: Source): TlsInForce {
  const setOf = (name: CertificateUse) => uses.find((use) => use.name === name)?.set;
  const [clients, backend] = [setOf('clients'), setOf('backend')];
  const { tlsMinVersion: minVersion, backendServerName } = options;
  const serverName = backendServerName === '' ? undefined : backendServerName;
  const { cert, key, ca: clientCa } = clients ?? {};
  const isDefault = backend === undefined && serverName === undefined;
  return {
    clients: cert !== undefined && key !== undefined ? { cert, key, clientCa, minVersion, ticketKeys } : undefined,
    backend: isDefault ? undefined : { ca: backend?.ca, cert: backend?.cert, key: backend?.key, serverName },
  };
}

// An interval is not part of the name: with another interval, the same certificates stay in force.
function nameOf(files: Files, { tlsMinVersion, backendServerName }: CertificateOptions): string {
  return JSON.stringify([files, tlsMinVersion, backendServerName]);
}

// An `import` of node:crypto would load more than this function needs.
function drawTicketKeys(): Pick<Source, 'ticketKeys' | 'ticketKeysSince'> {
  return { ticketKeys: process.getBuiltinModule('node:crypto').randomBytes(48), ticketKeysSince: Date.now() };
}

async function readSettled(files: CertificateFiles, seen: FileTexts): Promise<FileTexts> {
  let texts = await readTexts(files);
  for (let tries = 0; tries < settleTries && !isDeepStrictEqual(texts, seen); tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, settleMs));
    const again = await readTexts(files);
    if (isDeepStrictEqual(again, texts)) break;
    texts = again;
  }
  return texts;
}

// Asynchronous, unlike the reading at the start, because a hanging file system must not delay clients.
async function readTexts(files: CertificateFiles): Promise<FileTexts> {
  const read = async ({ path }: NamedFile) =>
    path === '' ? undefined : await readFile(path, 'latin1').catch(describeMissing);
  const [cert, key, ca] = await Promise.all([read(files.cert), read(files.key), read(files.ca)]);
  return { cert, key, ca };
}
