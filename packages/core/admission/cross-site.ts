// Which writes a page of another site sends [D56]: through `fetch` or a form, with the browser of somebody who can reach
// the gateway. Every browser says so in `sec-fetch-site`, which no page can set, and no other client does. Browsers say it
// to https and to this machine's own names only (W3C Fetch Metadata, 2.1). Which origins are allowed all the same is cors.ts's affair [D45].

const writeMethods: ReadonlySet<string> = new Set(['POST', 'PUT', 'DELETE']);
// Any of several values, should something on the way have joined or doubled them.
const crossSite = /(?:^|,)[ \t]*cross-site[ \t]*(?:[;,]|$)/i;

/** Whether it is one; `secFetchSite` has all values of that header, with commas between them, or is undefined. */
export function isCrossSiteWrite(method: string, secFetchSite: string | undefined): boolean {
  return secFetchSite !== undefined && writeMethods.has(method) && crossSite.test(secFetchSite);
}
