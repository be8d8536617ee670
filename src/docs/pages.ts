// The pages for people and programs that want to know the interface: /docs and /openapi.json. Loaded only
// where they are wanted; everything is in memory from the start, and the gateway sends it like any reply.

import { readFileSync } from 'node:fs';

import { replies, type FixedReply, type Pages } from '../gateway/replies.ts';
import { StartError } from '../start-error.ts';
import { createOpenApiText, type Limits } from './openapi.ts';

const html = 'text/html; charset=utf-8';
const css = 'text/css; charset=utf-8';
const javascript = 'text/javascript; charset=utf-8';
const svg = 'image/svg+xml';

// Nothing but our own files, no inline script or style, and calls to this gateway alone.
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const pageHeaders = ['content-security-policy', contentSecurityPolicy, 'referrer-policy', 'no-referrer'];

/** The pages, with `limits` in the document. Throws a StartError when their files are not there. */
export function loadPages(limits: Limits): Pages {
  const byPath = new Map<string, FixedReply>([
    ['/openapi.json', { status: 200, body: Buffer.from(createOpenApiText(limits)), headers: [] }],
    ['/docs', readPage('page/index.html', html, pageHeaders)],
    ['/docs/page.js', readPage('page/page.js', javascript)],
    ['/docs/page.css', readPage('page/page.css', css)],
    ['/docs/icon.svg', readPage('page/icon.svg', svg)],
    ['/docs/swagger-ui.js', readPage('swagger-ui/swagger-ui-bundle.js', javascript)],
    ['/docs/swagger-ui.css', readPage('swagger-ui/swagger-ui.css', css)],
  ]);
  return {
    replyTo: (path, method) => {
      const page = byPath.get(path);
      if (page === undefined || method === 'GET' || method === 'HEAD') {
        return page;
      }
      return method === 'OPTIONS' ? replies.pageOptions : replies.pageMethodNotAllowed;
    },
  };
}

function readPage(file: string, contentType: string, headers: readonly string[] = []): FixedReply {
  try {
    return { status: 200, body: readFileSync(new URL(file, import.meta.url)), contentType, headers };
  } catch (error) {
    throw new StartError(
      `the API reference has no ${file}: run npm run build:docs, or start with DOCS=false`,
      error,
    );
  }
}
