// For the command `check`: lists the certificates with their validity, problems and advice.

import { certificateDaysMin, daysLeft } from '../../figures/facts.ts';
import {
  dateOf,
  findValidityProblems,
  hasFiles,
  readCertificateSet,
  readFileTexts,
  type CertificateFacts,
  type CertificateFiles,
  type CertificateUse,
} from '../certificates/certificates.ts';
import type { CheckResult } from './command.ts';

const words: Readonly<Record<CertificateUse, { readonly title: string; readonly authority: string }>> = {
  clients: { title: 'TLS for clients', authority: 'clients need a certificate issued by' },
  backend: { title: 'TLS to the backend', authority: 'the backend needs a certificate issued by' },
};
// Largest number of authorities that are listed. If there are more, as in a bundle of all public authorities, only
// their number is shown.
const shownAuthoritiesMax = 5;

/** Checks the certificate files for `use`, and that the certificates are valid at `now` (milliseconds since 1970). */
export function checkCertificates(use: CertificateUse, files: CertificateFiles, now: number): Required<CheckResult> {
  if (!hasFiles(files)) return { lines: [], problems: [] };
  const set = readCertificateSet(files, readFileTexts(files));
  if (!('own' in set)) return { lines: [], problems: set };
  const { own, chain, authorities } = set;
  const { title, authority } = words[use];
  const lines = [own === undefined ? title : `${title}: key and certificate match`];
  const problems: string[] = [];
  if (own !== undefined) {
    const names = own.names.length === 0 ? 'without names' : `for ${own.names.join(', ')}`;
    lines.push(`  ${own.subject} ${names}: ${describeTime(own, now)}`, `  issued by ${own.issuer}`);
    lines.push(...chain.map((each) => `  chain: ${each.subject}: ${describeTime(each, now)}`));
    problems.push(...findValidityProblems(files, set, now));
    const days = daysLeft(own.validTo, now);
    if (days >= 0 && days < certificateDaysMin) lines.push('  renew this certificate soon');
    if (use === 'clients' && own.names.length === 0) {
      problems.push(`the certificate in ${files.cert.variable} has no names (subjectAltName): clients will reject it`);
    }
    if (![own, ...chain].every(({ leadsToNext }) => leadsToNext)) {
      problems.push(`the certificates in ${files.cert.variable} are not a chain: each must be issued by the next`);
    }
  }
  if (authorities.length > 0) {
    const shown =
      authorities.length > shownAuthoritiesMax
        ? `one of ${authorities.length} authorities`
        : authorities.map((each) => `${each.subject} (${describeTime(each, now)})`).join(', or ');
    lines.push(`  ${authority} ${shown}`);
    if (!authorities.some(({ isAuthority }) => isAuthority)) {
      lines.push(
        `  no certificate in ${files.ca.variable} is an authority: the gateway accepts only these certificates themselves, and only if they are self-signed`,
      );
    }
  }
  return { lines, problems };
}

function describeTime({ validTo }: CertificateFacts, now: number): string {
  const days = Math.floor(daysLeft(validTo, now));
  return days < 0
    ? `expired on ${dateOf(validTo)}`
    : `valid until ${dateOf(validTo)}, ${days} ${days === 1 ? 'day' : 'days'} left`;
}
