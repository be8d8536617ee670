// Checks the settings of TLS, which depend on each other and on files.

import {
  hasFiles,
  readCertificateSet,
  readFileTexts,
  type CertificateFiles,
  type CertificateUse,
  type NamedFile,
} from '../certificates/certificates.ts';
import { variableOf, type SettingName, type Settings } from './settings.ts';

const http2NodeMin = 26;

/** The problem with HTTP/2 on Node `version`; undefined if HTTP/2 works [D39]. */
export function findHttp2Problem(version = process.versions.node): string | undefined {
  // An older Node cannot send the headers of a reply as a list and then close the HTTP/2 stream. The code
  // checks the version, because a test for this flaw would need a connection.
  return Number.parseInt(version, 10) >= http2NodeMin
    ? undefined
    : `HTTP2 needs Node ${http2NodeMin} or newer, but this is Node ${version}: use a newer Node, or leave HTTP2 out`;
}

export function certificateFilesOf(settings: Settings): Record<CertificateUse, CertificateFiles> {
  const file = (name: SettingName): NamedFile => ({ variable: variableOf(name), path: String(settings[name]) });
  return {
    clients: { cert: file('tlsCertFile'), key: file('tlsKeyFile'), ca: file('tlsClientCaFile') },
    backend: { cert: file('backendCertFile'), key: file('backendKeyFile'), ca: file('backendCaFile') },
  };
}

const ownPair = ['tlsCertFile', 'tlsKeyFile'] as const;
const pairs = [ownPair, ['backendCertFile', 'backendKeyFile']] as const;
const ofClientTls = ['tlsClientCaFile', 'tlsMinVersion', 'http2'] as const;
const ofBackendTls = ['backendCaFile', 'backendCertFile', 'backendKeyFile', 'backendServerName'] as const;

/**
 * Returns the problems of the TLS settings: settings without effect, incomplete pairs [D41] and, if `readsFiles`,
 * unusable files. For a setting that the command (for instance `openapi`) does not have, `settings` has the default.
 */
export function findTlsProblems(
  settings: Partial<Settings>,
  isSet: (name: SettingName) => boolean,
  readsFiles: boolean,
): string[] {
  const hasPlainClients = ownPair.every((name) => settings[name] === '');
  const hasPlainBackend = settings.backendUrl !== undefined && settings.backendUrl.protocol !== 'https:';
  const files = certificateFilesOf(settings as Settings);
  const sets = Object.values(files).filter(hasFiles);
  const problems = [
    ...pairs.flatMap((pair) => {
      const [missing, other] = pair.filter((name) => settings[name] === '').map(variableOf);
      if (missing === undefined || other !== undefined) return [];
      return [`${pair.map(variableOf).join(' and ')} belong together: ${missing} is missing`];
    }),
    ...ofClientTls
      .filter((name) => hasPlainClients && isSet(name) && settings[name] !== false)
      .map((name) => `${variableOf(name)} needs TLS_CERT_FILE and TLS_KEY_FILE: without them clients use plain http`),
    ...ofBackendTls
      .filter((name) => hasPlainBackend && isSet(name))
      .map((name) => `${variableOf(name)} needs an https address in BACKEND_URL`),
  ];
  if (sets.length === 0 && isSet('tlsReloadMs')) {
    problems.push('TLS_RELOAD_MS has no effect without certificate files: set them, or leave TLS_RELOAD_MS out');
  }
  if (!readsFiles) return problems;
  const read = sets.map((each) => readCertificateSet(each, readFileTexts(each)));
  return [...problems, ...read.flatMap((set) => ('own' in set ? [] : set))];
}
