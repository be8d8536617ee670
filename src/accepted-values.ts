// What a time limit and the backend's base address may be, for the settings of the command and the options of the
// plugin alike.

/** The longest time that a timer of the platform can hold, 2^31 - 1 ms: about 24.8 days. */
export const msMax = 2_147_483_647;

/** What `text` would have to be instead, each as in `an address ...`; empty when it is right. */
export function wishesForBackendUrl(text: string): string[] {
  if (!URL.canParse(text)) {
    return ['an address'];
  }
  const url = new URL(text);
  const wishes: string[] = [];
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    wishes.push('an http or https address');
  }
  if (url.username !== '' || url.password !== '') {
    wishes.push('an address without user name and password (the gateway sends no credentials)');
  }
  if (url.search !== '' || url.hash !== '' || text.includes('?') || text.includes('#')) {
    wishes.push('an address without query and fragment');
  }
  try {
    decodeURIComponent(url.pathname);
  } catch {
    wishes.push('an address whose path has no malformed escape');
  }
  return wishes;
}

export const backendUrlExample = 'for instance http://localhost:5104';
