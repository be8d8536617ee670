// For the command `check`: lists the allowed origins and warns about unsafe origins [D45].

import { anyOrigin } from '../../core/admission/cors.ts';
import type { CorsValues } from '../../core/options/cors-options.ts';
import { isThisMachine } from '../../core/options/accepted-values.ts';

export function describeOrigins({ corsOrigins = [], corsCredentials = false }: Partial<CorsValues>): string[] {
  if (corsOrigins.length === 0) return [];
  if (corsOrigins.includes(anyOrigin)) {
    return [
      'cors: pages of every origin may call and read replies',
      '  So any website can call the gateway from the browser of a visitor who can reach the gateway. List the origins unless this is intended.',
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
  if (protocol !== 'http:' && protocol !== 'https:') return [];
  if (isVisitorsMachine(hostname)) {
    return origins.some((each) => !isVisitorsMachine(new URL(each).hostname))
      ? [`  ${origin} is the visitor's own machine, where any program can serve pages. Use it for development only.`]
      : [];
  }
  if (protocol === 'https:') return [];
  const secure = origins.includes(origin.replace('http:', 'https:'))
    ? ' Leave this origin out, because the https origin is listed.'
    : '';
  return [
    `  ${origin} is not https: an attacker on the network can change its pages, and these pages can call the gateway.${secure}`,
  ];
}

// Browsers resolve names under `.localhost` to their own machine.
function isVisitorsMachine(hostname: string): boolean {
  return isThisMachine(hostname) || hostname.endsWith('.localhost');
}
