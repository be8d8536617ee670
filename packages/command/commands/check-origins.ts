// What `check` says of the origins whose pages may call: those that are allowed, and what is unwise about them [D45].

import { anyOrigin } from '../../core/admission/cors.ts';
import type { CorsValues } from '../../core/hosts/options/cors-options.ts';
import { isThisMachine } from '../../core/text/addresses.ts';

/** Lines for people, each without its end; empty where no origin is allowed. */
export function describeOrigins({
  corsOrigins = [],
  corsCredentials = false,
}: Partial<CorsValues>): string[] {
  if (corsOrigins.length === 0) {
    return [];
  }
  if (corsOrigins.includes(anyOrigin)) {
    return [
      'cors: every page may call and read replies',
      '  Whoever can open a page and reach the gateway can have it called; name the origins unless that is wanted.',
    ];
  }
  const withCredentials = corsCredentials ? ', with cookies and client certificates' : '';
  return [
    `cors: pages of ${corsOrigins.join(', ')} may call and read replies${withCredentials}`,
    ...corsOrigins.flatMap((origin) => adviseOn(origin, corsOrigins)),
  ];
}

function adviseOn(origin: string, origins: readonly string[]): string[] {
  const { protocol, hostname } = new URL(origin);
  if (protocol !== 'http:' && protocol !== 'https:') {
    return [];
  }
  if (isVisitorsMachine(hostname)) {
    return origins.some((each) => !isVisitorsMachine(new URL(each).hostname))
      ? [`  ${origin} is any program's page on a visitor's own machine: for development only.`]
      : [];
  }
  if (protocol === 'https:') {
    return [];
  }
  const secure = origins.includes(origin.replace('http:', 'https:')) ? ' Leave it out: https is there.' : '';
  return [
    `  ${origin} is not https: whoever is on its way to a visitor can change that page, and call with it.${secure}`,
  ];
}

// Browsers keep names under `.localhost` on their own machine.
function isVisitorsMachine(hostname: string): boolean {
  return isThisMachine(hostname) || hostname.endsWith('.localhost');
}
