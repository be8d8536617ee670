// What `check` says of certificates: whose they are, until when, and what is wrong or unwise about them.

import { certificateDaysMin, daysLeft } from '../../figures/certificate-status.ts';
import {
  dateOf,
  findFlawInTime,
  hasFiles,
  readCertificateSet,
  readFileTexts,
  type CertificateFacts,
  type CertificateFiles,
  type CertificateUse,
} from '../certificates/certificates.ts';
import type { CheckResult } from './command.ts';

const words: Readonly<Record<CertificateUse, { readonly title: string; readonly authority: string }>> = {
  clients: { title: 'TLS for clients', authority: 'clients need a certificate of' },
  backend: { title: 'TLS towards the backend', authority: 'the backend needs a certificate of' },
};
// A bundle of all the world's authorities is not listed.
const shownAuthoritiesMax = 5;

/** What there is to say of the files of one use, as of `now` (milliseconds since 1970). */
export function checkCertificates(
  use: CertificateUse,
  files: CertificateFiles,
  now: number,
): Required<CheckResult> {
  if (!hasFiles(files)) {
    return { lines: [], problems: [] };
  }
  const set = readCertificateSet(files, readFileTexts(files));
  if (!('own' in set)) {
    return { lines: [], problems: set };
  }
  const { own, chain, authorities } = set;
  const { title, authority } = words[use];
  const lines = [own === undefined ? title : `${title}: key and certificate fit`];
  const problems: string[] = [];
  if (own !== undefined) {
    const names = own.names.length === 0 ? 'without names' : `for ${own.names.join(', ')}`;
    lines.push(`  ${own.subject} ${names}: ${describeTime(own, now)}`, `  issued by ${own.issuer}`);
    lines.push(...chain.map((each) => `  then ${each.subject}: ${describeTime(each, now)}`));
    const flaw = findFlawInTime(files, set, now);
    problems.push(...(flaw === undefined ? [] : [flaw]));
    const days = daysLeft(own.validTo, now);
    if (days >= 0 && days < certificateDaysMin) {
      lines.push('  it is time to renew it');
    }
    if (use === 'clients' && own.names.length === 0) {
      problems.push(
        `the certificate in ${files.cert.variable} has no names (subjectAltName): no client takes it`,
      );
    }
    if (![own, ...chain].every(({ leadsToNext }) => leadsToNext)) {
      problems.push(
        `the certificates in ${files.cert.variable} are no chain: each has to be issued by the next`,
      );
    }
  }
  if (authorities.length > 0) {
    const shown =
      authorities.length > shownAuthoritiesMax
        ? `one of ${authorities.length} authorities`
        : authorities.map((each) => `${each.subject} (${describeTime(each, now)})`).join(', or ');
    lines.push(`  ${authority} ${shown}`);
    if (!authorities.some(({ isAuthority }) => isAuthority)) {
      lines.push(`  none of those in ${files.ca.variable} is an authority: only they themselves are taken`);
    }
  }
  return { lines, problems };
}

function describeTime({ validTo }: CertificateFacts, now: number): string {
  const days = Math.floor(daysLeft(validTo, now));
  return days < 0
    ? `expired on ${dateOf(validTo)}`
    : `until ${dateOf(validTo)}, ${days} ${days === 1 ? 'day' : 'days'} left`;
}
