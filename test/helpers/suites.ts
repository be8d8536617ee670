// Resources that the tests of a file share.

import { after, beforeEach } from 'node:test';
import { answer, ScriptedBackend } from './scripted-backend.ts';

/** A backend for the tests of a file. Before each test, its record is cleared and `body` is set as its answer. */
export async function useBackend(body = '[]'): Promise<ScriptedBackend> {
  const backend = await ScriptedBackend.start();
  beforeEach(() => {
    backend.reset();
    backend.answers(answer(body));
  });
  after(() => backend.stop());
  return backend;
}
