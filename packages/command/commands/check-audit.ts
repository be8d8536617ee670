// `check --audit`: lists risky settings, as text for people or as a JSON document for programs. Calls nothing.

import { joinWithOr } from '../../core/options/similar.ts';
import { version } from '../../core/version.ts';
import type { GivenFlags } from '../service/process-parts.ts';
import { findRisks, severities, type Risk } from '../settings/audit.ts';
import type { CommandRun } from './command.ts';
import { wrap } from './running.ts';

export function findAuditProblems(own: GivenFlags): string[] {
  const { '--severity': severity } = own;
  const hasAudit = '--audit' in own;
  const ofContract = ['--contract', '--write', '--body'].filter((flag) => flag in own);
  return [
    ...(hasAudit ? ofContract.map((flag) => `--audit and ${flag} cannot be combined`) : []),
    ...(severity !== undefined && !hasAudit ? ['--severity needs --audit'] : []),
    ...(severity === undefined || severities.some((each) => each === severity)
      ? []
      : [`--severity must be ${joinWithOr(severities)}`]),
  ];
}

/** Prints the risks. Returns 1 if one of them has at least the given severity. */
export function audit({ resolved: { settings }, ownFlags, terminal }: CommandRun): number {
  terminal.signals.release();
  const { '--severity': from = 'medium' } = ownFlags;
  const failing = severities.slice(severities.findIndex((each) => each === from));
  const risks = findRisks(settings);
  const exitCode = risks.some(({ severity }) => failing.includes(severity)) ? 1 : 0;
  const counts = severities.toReversed().map((each) => {
    return `${risks.filter(({ severity }) => severity === each).length} ${each}`;
  });
  terminal.write(
    '--json' in ownFlags
      ? `${JSON.stringify({ schema: 'work-item-gateway/audit/1', version, exitCode, risks })}\n`
      : `${risks.map((risk) => describeRisk(risk, terminal.columns)).join('')}audit: ${counts.join(', ')}\n`,
  );
  return exitCode;
}

function describeRisk({ code, severity, settings, risk, advice }: Risk, columns: number | undefined): string {
  const values = Object.entries(settings).map(([name, value]) => `${name}${value === null ? ' not set' : `=${value}`}`);
  const title = wrap(`${severity.toUpperCase()} ${code}: ${values.join(', ')}`, columns, '');
  return `${title}${wrap(risk, columns, '  ')}${wrap(`Do: ${advice}`, columns, '  ')}\n`;
}
