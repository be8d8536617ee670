// Detects writes by a page of another site [D56]. Such a page can use `fetch` or a form, in the browser of a user who
// can reach the gateway. Browsers mark these writes in `sec-fetch-site`, which no page can change, but they send this
// field only to https and to this machine (W3C Fetch Metadata, 2.1). Without it, the page's `origin` must be the host
// of the request. Origins that cors.ts allows are exempt [D45].

import { absoluteForm } from '../http1/grammar.ts';
import { fieldValue, fieldValues, onlyFieldValue, type RequestHead } from '../http1/head.ts';
import { splitList } from '../text/lists.ts';

const writeMethods: ReadonlySet<string> = new Set(['POST', 'PUT', 'DELETE']);
// Also matches in a list of values, because an intermediary may have repeated the field or joined its values.
const crossSite = /(?:^|,)[ \t]*cross-site[ \t]*(?:[;,]|$)/i;
const webOrigin = /^(https?:\/\/)[^/\\?#@\s]+$/i;

/**
 * True for a write by another site. If the peer is trusted, its `x-forwarded-host` replaces the request's host. Without
 * `sec-fetch-site`, `allowedOrigin` may write too.
 */
export function isCrossSiteWrite(
  { method, target, fields }: Pick<RequestHead, 'method' | 'target' | 'fields'>,
  isTrusted: () => boolean,
  allowedOrigin?: string,
): boolean {
  if (!writeMethods.has(method)) return false;
  const sites = fieldValue(fields, 'sec-fetch-site') === undefined ? '' : fieldValues(fields, 'sec-fetch-site').join();
  if (/[^ \t,]/.test(sites)) return crossSite.test(sites);
  // Without `origin`, the client is not a browser.
  if (fieldValue(fields, 'origin') === undefined) return false;
  const origin = onlyFieldValue(fields, 'origin') ?? '';
  if (origin === allowedOrigin && webOrigin.test(origin)) return false;
  const forwarded = isTrusted() ? splitList(fieldValues(fields, 'x-forwarded-host').join()) : [];
  // No page can set `x-forwarded-host`, so each value comes from a proxy, or from a client that is not a browser.
  if (forwarded.length > 0) return !forwarded.some((each) => isOriginOf(origin, each));
  const host = fieldValue(fields, 'host') ?? '';
  return !isOriginOf(origin, host) || !isOriginOf(origin, absoluteForm.exec(target)?.[1] ?? host);
}

// Compares host and port. The default port is that of the origin's scheme, because a proxy in front may end TLS.
function isOriginOf(origin: string, host: string): boolean {
  const own = (webOrigin.exec(origin)?.[1] ?? '') + host;
  return webOrigin.test(own) && URL.parse(origin)?.host === (URL.parse(own)?.host ?? '');
}
