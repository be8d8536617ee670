// Resources that the tests of a file share.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach } from 'node:test';
import { CertificateFolder } from './certificates.ts';
import { answer, ScriptedBackend, type Answer } from './scripted-backend.ts';

/** A backend for the tests of a file. Before each test, its record is cleared and `script` is set as its answer. */
export async function useBackend(script: string | Answer = '[]'): Promise<ScriptedBackend> {
  const backend = await ScriptedBackend.start();
  beforeEach(() => {
    backend.reset();
    backend.answers(typeof script === 'string' ? answer(script) : script);
  });
  after(() => backend.stop());
  return backend;
}

/** A folder for certificates that is removed after the tests of a file or suite. */
export function useCertificates(): CertificateFolder {
  const folder = new CertificateFolder();
  after(() => folder[Symbol.dispose]());
  return folder;
}

/** A folder that is removed after the tests of a file or suite. */
export function useFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-'));
  after(() => rmSync(folder, { recursive: true }));
  return folder;
}
