// Detects writes by a page of another site [D56]. Such a page can use `fetch` or a form, in the browser of a user who
// can reach the gateway. Browsers mark these writes in `sec-fetch-site`, which no page can change. Over http, browsers
// send this field only to `localhost` and other names of their own machine (W3C Fetch Metadata, 2.1), so over http this
// file detects only writes to these names.
// Origins that cors.ts allows are exempt [D45].

const writeMethods: ReadonlySet<string> = new Set(['POST', 'PUT', 'DELETE']);
// Also matches in a list of values, because an intermediary may have repeated the field or joined its values.
const crossSite = /(?:^|,)[ \t]*cross-site[ \t]*(?:[;,]|$)/i;

/** True for a write by another site. `secFetchSite` has all values of the field, joined by commas, or is undefined. */
export function isCrossSiteWrite(method: string, secFetchSite: string | undefined): boolean {
  return secFetchSite !== undefined && writeMethods.has(method) && crossSite.test(secFetchSite);
}
