// The pages for people and programs that want to know the interface: /docs and /openapi.json. Loaded only
// where they are wanted; everything is in memory from the start, and the gateway sends it like any reply.

import { readFileSync } from 'node:fs';

import { createFixedReply, replies, replyHeaders, type FixedReply, type Pages } from '../../core/replies.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Limits } from '../../core/hosts/openapi/document.ts';
import { createOpenApiText } from '../../core/hosts/openapi/openapi.ts';
import { isThisMachine } from '../../core/text/addresses.ts';

const json = 'application/json';
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

/** Where the dashboard is. */
interface AdminAddress {
  readonly adminHost: string;
  readonly adminPort: number;
}

/** The pages, with the limits in the document. Throws a StartError when their files are not there. */
export function loadPages(settings: Limits & AdminAddress): Pages {
  const reference = readPage('page/index.html', html, pageHeaders);
  const byPath = new Map<string, FixedReply>([
    ['/openapi.json', createPage(Buffer.from(createOpenApiText(settings)), json)],
    ['/docs', { ...reference, body: linkDashboard(reference.body, settings) }],
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

// The reference is for clients, and the dashboard is not: its address is named only where no other machine can
// open it. The page shows it to those who came by a name of this machine.
function linkDashboard(page: Buffer, { adminHost, adminPort }: AdminAddress): Buffer {
  if (!isThisMachine(adminHost) || adminPort === 0) {
    return page;
  }
  const host = adminHost.includes(':') ? `[${adminHost}]` : adminHost;
  return Buffer.from(
    page
      .toString()
      .replace('<html lang="en">', `<html lang="en" data-dashboard="http://${host}:${adminPort}/">`),
  );
}

function createPage(body: Buffer, contentType: string, headers: readonly string[] = []): FixedReply {
  return createFixedReply(200, replyHeaders(contentType, headers), body);
}

function readPage(file: string, contentType: string, headers: readonly string[] = []): FixedReply {
  try {
    return createPage(readFileSync(new URL(file, import.meta.url)), contentType, headers);
  } catch (error) {
    throw new StartError(
      `the API reference has no ${file}: run npm run build:docs, or start with DOCS=false`,
      error,
    );
  }
}
