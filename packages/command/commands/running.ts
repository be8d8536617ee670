// Shared by several commands.

import { CertificateStore } from '../certificates/certificate-store.ts';
import { createLog, type Log, type Logger } from '../log/log.ts';
import type { WholeService } from '../service/service.ts';
import type { Settings } from '../settings/settings.ts';
import { certificateFilesOf } from '../settings/tls-settings.ts';
import { findWarnings } from '../settings/warnings.ts';
import type { Terminal } from './command.ts';

/** Runs `run` with a log, then writes the remaining log lines. */
export async function withLog(
  { logLevel, logFormat, workers }: Settings,
  run: (log: Log) => Promise<number>,
): Promise<number> {
  const log = createLog({ logLevel, logFormat, isShared: workers > 1 });
  try {
    return await run(log);
  } finally {
    await log.end();
  }
}

export function openCertificates(settings: Settings, logger: Logger): CertificateStore {
  return new CertificateStore(certificateFilesOf(settings), settings, logger);
}

/** Returns a function that logs the warnings about settings, without those that the last settings had too. */
export function createWarner({ environment }: Terminal, logger: Logger): (settings: Settings) => void {
  let last: ReadonlyMap<string, unknown> = new Map();
  return (settings) => {
    const warnings = new Map(findWarnings(settings, environment).map((each) => [JSON.stringify(each), each]));
    for (const [text, { message, facts }] of warnings) {
      if (!last.has(text)) logger.warn(facts, message);
    }
    last = warnings;
  };
}

/** Returns the text that lists the addresses of a running gateway. `backend` is the line with the backend's address. */
export function describePlaces(
  { url, adminUrl, hasDashboard }: WholeService,
  { docs }: Settings,
  backend: string,
): string {
  const dashboard = hasDashboard ? `  Dashboard           ${adminUrl}/\n` : '';
  const reference = docs ? `  API reference       ${url}/docs  ${url}/openapi.json\n` : '';
  return `  Work Item Gateway   ${url}/api/work-items
${dashboard}${reference}  ${backend}
  Health and metrics  ${adminUrl}/readyz  ${adminUrl}/metrics`;
}

// Widths of a text, in columns, if the output is a file, and if it is a narrow terminal.
const columnsOfFile = 80;
const columnsMin = 40;

/** Returns `text` in lines, each with `indent` and a line end. `columns`: the terminal's width; undefined for a file. */
export function wrap(text: string, columns: number | undefined, indent: string): string {
  const width = Math.max(columnsMin, columns ?? columnsOfFile) - indent.length;
  return text.replace(new RegExp(`(.{1,${width}}|\\S+)(?: |$)`, 'g'), (_, words: string) => `${indent}${words}\n`);
}
