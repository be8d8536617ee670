// Holds the certificates in force. Reads their files at the start, then checks them for changes at intervals and on demand
// [D37]. File-system events would miss a change by Kubernetes, which swaps a symbolic link in a folder above the files.

import { readFile } from 'node:fs/promises';

import { certificateDaysMin, daysLeft, type CertificateStatus } from '../../figures/certificate-status.ts';
import type { Logger } from '../log/log.ts';
import {
  dateOf,
  describeMissing,
  findValidityProblem,
  hasFiles,
  readCertificateSet,
  readFileTexts,
  type CertificateFiles,
  type CertificateSet,
  type CertificateUse,
  type FileText,
  type FileTexts,
  type NamedFile,
  type TlsInForce,
} from './certificates.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';

interface CertificateStoreOptions {
  readonly tlsMinVersion: '1.2' | '1.3';
  readonly tlsReloadMs: number;
  /** If empty, the host name in the backend's address is used. */
  readonly backendServerName: string;
}

interface Use {
  readonly name: CertificateUse;
  readonly files: CertificateFiles;
  /** The files' texts at the last check. */
  seen: FileTexts;
  /** The texts of the set in force. */
  inForce: FileTexts;
  set: CertificateSet;
  problems: readonly string[];
  taken: number;
  refused: number;
}

// A changed file may still be incomplete. No check can detect this, because a truncated chain still matches its key. So
// changed files are read again at this interval until two reads in a row are equal, at most `settleTries` times.
const settleMs = 100;
const settleTries = 20;
// Session ticket keys are replaced after this time, because a stolen key decrypts the TLS 1.2 sessions resumed with it.
const ticketKeysMsMax = 86_400_000;

export class CertificateStore {
  inForce: TlsInForce;
  readonly #options: CertificateStoreOptions;
  readonly #logger: Logger;
  readonly #uses: readonly Use[];
  #ticketKeys = drawTicketKeys();
  #ticketKeysSince = Date.now();
  #timer: NodeJS.Timeout | undefined;
  // The check that was requested last.
  #last = Promise.resolve();
  // The requested check that has not started yet.
  #next: Promise<void> | undefined;
  #onChange: (tls: TlsInForce) => void = () => undefined;

  /** Reads the files, if any. Throws a StartError if they cannot be used. */
  constructor(
    files: Readonly<Record<CertificateUse, CertificateFiles>>,
    options: CertificateStoreOptions,
    logger: Logger,
  ) {
    this.#options = options;
    this.#logger = logger;
    const all = (['clients', 'backend'] as const).map((name) => readUse(name, files[name]));
    this.#uses = all.filter((use) => use !== undefined);
    this.inForce = this.#compose();
    for (const use of this.#uses) {
      this.#describe(use, 'certificate in force');
    }
  }

  /** The status of each use that has files. */
  status(): CertificateStatus[] {
    return this.#uses.map(({ name, set: { own }, problems, taken, refused }) => ({
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
    if (this.#uses.length > 0) {
      this.#timer = setInterval(() => {
        void this.look();
      }, this.#options.tlsReloadMs).unref();
    }
  }

  /** Stops checking the files. */
  end(): void {
    clearInterval(this.#timer);
  }

  /** Checks the files. Waits for a check in progress first. Resolves when done; never rejects. */
  async look(): Promise<void> {
    if (this.#next === undefined) {
      this.#next = this.#last.then(async () => {
        this.#next = undefined;
        await this.#lookOnce();
      });
      this.#last = this.#next;
    }
    await this.#next;
  }

  async #lookOnce(): Promise<void> {
    let hasChanged = false;
    for (const use of this.#uses) {
      hasChanged = (await this.#lookAt(use)) || hasChanged;
    }
    const now = Date.now();
    if (hasChanged || now - this.#ticketKeysSince >= ticketKeysMsMax) {
      this.#ticketKeys = drawTicketKeys();
      this.#ticketKeysSince = now;
      this.inForce = this.#compose();
      this.#onChange(this.inForce);
    }
  }

  // Returns true if the certificates in force have changed.
  async #lookAt(use: Use): Promise<boolean> {
    const texts = await readSettled(use.files, use.seen);
    if (areSame(texts, use.seen)) return false;
    use.seen = texts;
    if (areSame(texts, use.inForce)) {
      use.problems = [];
      this.#logger.info({ use: use.name }, 'certificate files again match the certificates in force');
      return false;
    }
    const set = readCertificateSet(use.files, texts);
    const problems = 'own' in set ? [findValidityProblem(use.files, set, Date.now())] : set;
    use.problems = problems.filter((each) => each !== undefined);
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

  #compose(): TlsInForce {
    const [clients, backend] = (['clients', 'backend'] as const).map(
      (name) => this.#uses.find((use) => use.name === name)?.set,
    );
    const { tlsMinVersion: minVersion, backendServerName } = this.#options;
    const serverName = backendServerName === '' ? undefined : backendServerName;
    return {
      clients:
        clients?.cert !== undefined && clients.key !== undefined
          ? { cert: clients.cert, key: clients.key, clientCa: clients.ca, minVersion, ticketKeys: this.#ticketKeys }
          : undefined,
      backend:
        backend !== undefined || serverName !== undefined
          ? { ca: backend?.ca, cert: backend?.cert, key: backend?.key, serverName }
          : undefined,
    };
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
    const flaw = findValidityProblem(files, set, Date.now());
    if (flaw !== undefined) {
      logger.error(facts, `${message}, but ${flaw}`);
    } else if (days < certificateDaysMin) {
      logger.warn(facts, `${message}, but it expires in ${days === 1 ? '1 day' : `${days} days`}`);
    } else {
      logger.info(facts, message);
    }
  }
}

// An `import` of node:crypto would load more than this function needs.
function drawTicketKeys(): Buffer {
  return process.getBuiltinModule('node:crypto').randomBytes(48);
}

function readUse(name: CertificateUse, files: CertificateFiles): Use | undefined {
  if (!hasFiles(files)) return undefined;
  const texts = readFileTexts(files);
  const set = readCertificateSet(files, texts);
  if (!('own' in set)) throw new StartError(set.join('; '), undefined);
  return { name, files, seen: texts, inForce: texts, set, problems: [], taken: 0, refused: 0 };
}

async function readSettled(files: CertificateFiles, seen: FileTexts): Promise<FileTexts> {
  let texts = await readTexts(files);
  for (let tries = 0; tries < settleTries && !areSame(texts, seen); tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, settleMs));
    const again = await readTexts(files);
    if (areSame(again, texts)) break;
    texts = again;
  }
  return texts;
}

// Asynchronous, unlike the reading at the start, because a hanging file system must not delay clients.
async function readTexts(files: CertificateFiles): Promise<FileTexts> {
  const read = async ({ path }: NamedFile): Promise<FileText> =>
    path === '' ? undefined : await readFile(path, 'latin1').catch(describeMissing);
  const [cert, key, ca] = await Promise.all([read(files.cert), read(files.key), read(files.ca)]);
  return { cert, key, ca };
}

function areSame(one: FileTexts, other: FileTexts): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
