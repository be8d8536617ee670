// The certificates in force: read at the start, and compared with their files again and again, and when somebody asks
// [D37]. Never by watching files: Kubernetes swaps a symbolic link above them. What new ones are for is others' affair.

import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';

import { certificateDaysMin, daysLeft, type CertificateStatus } from '../../figures/certificate-status.ts';
import type { Logger } from '../log/log.ts';
import {
  dateOf,
  describeMissing,
  findFlawInTime,
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
  readonly files: Readonly<Record<CertificateUse, CertificateFiles>>;
  readonly minVersion: '1.2' | '1.3';
  /** Empty: that of the backend's address. */
  readonly backendServerName: string;
  readonly reloadMs: number;
  readonly logger: Logger;
}

interface Use {
  readonly name: CertificateUse;
  readonly files: CertificateFiles;
  /** What the files had when they were last looked at. */
  seen: FileTexts;
  /** What they had when the set in force was taken. */
  inForce: FileTexts;
  set: CertificateSet;
  problems: readonly string[];
  taken: number;
  refused: number;
}

// Files that have changed are read again after so long, until they stay as they are: somebody may be writing them, and
// a chain without its end would fit its key.
const settleMs = 100;
const settleTries = 20;
// Whoever gets hold of ticket keys can read what was said in TLS 1.2 sessions that were resumed with them.
const ticketKeysMsMax = 86_400_000;

export class CertificateStore {
  /** Is told whenever what is in force has changed. */
  onChange: (tls: TlsInForce) => void = () => undefined;
  /** What is in force now. */
  inForce: TlsInForce;
  readonly #options: CertificateStoreOptions;
  readonly #uses: readonly Use[];
  #ticketKeys = randomBytes(48);
  #ticketKeysSince = Date.now();
  #isAsked = false;
  #looking: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** Reads the files; throws a StartError when they cannot be used. */
  constructor(options: CertificateStoreOptions) {
    this.#options = options;
    const all = (['clients', 'backend'] as const).map((name) => readUse(name, options.files[name]));
    this.#uses = all.filter((use) => use !== undefined);
    this.inForce = this.#compose();
    for (const use of this.#uses) {
      this.#describe(use, 'certificate in force');
    }
  }

  /** Of each use that has files. */
  status(): CertificateStatus[] {
    return this.#uses.map(({ name, set: { own }, problems, taken, refused }) => ({
      use: name,
      own: own && { subject: own.subject, names: own.names, expiresAt: own.validTo },
      problems,
      taken,
      refused,
    }));
  }

  /** From now on the files are looked at again and again. */
  begin(): void {
    if (this.#uses.length > 0) {
      this.#timer = setInterval(() => {
        void this.look();
      }, this.#options.reloadMs).unref();
    }
  }

  /** They are looked at no more. */
  end(): void {
    clearInterval(this.#timer);
  }

  /** Looks at the files now, or once more if it is doing so; resolves when it has, never rejects. */
  async look(): Promise<void> {
    this.#isAsked = true;
    await (this.#looking ??= this.#lookInTurn());
  }

  async #lookInTurn(): Promise<void> {
    try {
      while (this.#isAsked) {
        this.#isAsked = false;
        await this.#lookOnce();
      }
    } finally {
      this.#looking = undefined;
    }
  }

  async #lookOnce(): Promise<void> {
    let hasChanged = false;
    for (const use of this.#uses) {
      hasChanged = (await this.#lookAt(use)) || hasChanged;
    }
    const now = Date.now();
    if (hasChanged || now - this.#ticketKeysSince >= ticketKeysMsMax) {
      this.#ticketKeys = randomBytes(48);
      this.#ticketKeysSince = now;
      this.inForce = this.#compose();
      this.onChange(this.inForce);
    }
  }

  // True when what is in force has changed.
  async #lookAt(use: Use): Promise<boolean> {
    const { logger } = this.#options;
    const texts = await readSettled(use.files, use.seen);
    if (areSame(texts, use.seen)) {
      return false;
    }
    use.seen = texts;
    if (areSame(texts, use.inForce)) {
      use.problems = [];
      logger.info({ use: use.name }, 'the certificate files are again what is in force');
      return false;
    }
    const set = readCertificateSet(use.files, texts);
    const problems = 'own' in set ? [findFlawInTime(use.files, set, Date.now())] : set;
    use.problems = problems.filter((each) => each !== undefined);
    if (!('own' in set) || use.problems.length > 0) {
      use.refused += 1;
      logger.error(
        { use: use.name, problems: use.problems },
        'the new certificate files cannot be used: what is in force stays',
      );
      return false;
    }
    use.set = set;
    use.inForce = texts;
    use.taken += 1;
    this.#describe(use, 'new certificates are in force');
    return true;
  }

  #compose(): TlsInForce {
    const [clients, backend] = (['clients', 'backend'] as const).map(
      (name) => this.#uses.find((use) => use.name === name)?.set,
    );
    const { minVersion, backendServerName } = this.#options;
    return {
      clients:
        clients?.cert === undefined || clients.key === undefined
          ? undefined
          : {
              cert: clients.cert,
              key: clients.key,
              clientCa: clients.ca,
              minVersion,
              ticketKeys: this.#ticketKeys,
            },
      backend:
        backend === undefined && backendServerName === ''
          ? undefined
          : {
              ca: backend?.ca,
              cert: backend?.cert,
              key: backend?.key,
              serverName: backendServerName === '' ? undefined : backendServerName,
            },
    };
  }

  #describe({ name, files, set }: Use, message: string): void {
    const { logger } = this.#options;
    const { own } = set;
    if (own === undefined) {
      logger.info({ use: name, authorities: set.authorities.length }, message);
      return;
    }
    const days = Math.floor(daysLeft(own.validTo, Date.now()));
    const facts = {
      use: name,
      subject: own.subject,
      names: own.names,
      expires: dateOf(own.validTo),
      daysLeft: days,
    };
    const flaw = findFlawInTime(files, set, Date.now());
    if (flaw !== undefined) {
      logger.error(facts, `${message}, but ${flaw}`);
    } else if (days < certificateDaysMin) {
      logger.warn(
        facts,
        `${message}, but not for long: ${days === 1 ? '1 day is' : `${days} days are`} left`,
      );
    } else {
      logger.info(facts, message);
    }
  }
}

function readUse(name: CertificateUse, files: CertificateFiles): Use | undefined {
  if (!hasFiles(files)) {
    return undefined;
  }
  const texts = readFileTexts(files);
  const set = readCertificateSet(files, texts);
  if (!('own' in set)) {
    throw new StartError(set.join('; '), undefined);
  }
  return { name, files, seen: texts, inForce: texts, set, problems: [], taken: 0, refused: 0 };
}

async function readSettled(files: CertificateFiles, seen: FileTexts): Promise<FileTexts> {
  let texts = await readTexts(files);
  for (let tries = 0; tries < settleTries && !areSame(texts, seen); tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, settleMs));
    const again = await readTexts(files);
    if (areSame(again, texts)) {
      break;
    }
    texts = again;
  }
  return texts;
}

// Not as at the start: a file system that hangs must not keep clients waiting.
async function readTexts(files: CertificateFiles): Promise<FileTexts> {
  const read = async ({ path }: NamedFile): Promise<FileText> =>
    path === '' ? undefined : await readFile(path, 'latin1').catch(describeMissing);
  const [cert, key, ca] = await Promise.all([read(files.cert), read(files.key), read(files.ca)]);
  return { cert, key, ca };
}

function areSame(one: FileTexts, other: FileTexts): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
