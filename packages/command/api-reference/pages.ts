// The API reference at /docs and the OpenAPI document at /openapi.json. This module is loaded only if DOCS is on. All
// pages are made at the start and sent like any reply.

import { readFileSync } from 'node:fs';

import { createFixedReply, replies, replyHeaders, type FixedReply, type Pages } from '../../core/replies.ts';
import type { Limits } from '../../core/hosts/openapi/document.ts';
import { createOpenApiText } from '../../core/hosts/openapi/openapi.ts';
import { isThisMachine } from '../../core/options/accepted-values.ts';
import { createReference } from './reference.ts';

// Allows only files from this gateway and calls to it. Forbids inline scripts and styles.
const contentSecurityPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const pageHeaders = ['content-security-policy', contentSecurityPolicy, 'referrer-policy', 'no-referrer'];

/** Makes the pages. The OpenAPI document contains the limits in `settings`. */
export function loadPages(settings: Limits & { readonly adminHost: string; readonly adminPort: number }): Pages {
  const document = createOpenApiText(settings);
  const html = readPage('index.html')
    .replace('<html lang="en"', `$&${describeDashboard(settings.adminHost, settings.adminPort)}`)
    .replace('<!-- reference -->', () => createReference(document));
  const byPath = new Map<string, FixedReply>([
    ['/openapi.json', createPage(document, 'application/json')],
    ['/docs', createPage(html, 'text/html; charset=utf-8', pageHeaders)],
    ['/docs/page.js', createPage(readPage('page.js'), 'text/javascript; charset=utf-8')],
    ['/docs/page.css', createPage(readPage('page.css'), 'text/css; charset=utf-8')],
    ['/docs/icon.svg', createPage(readPage('icon.svg'), 'image/svg+xml')],
  ]);
  return {
    replyTo: (path, method) => {
      const page = byPath.get(path);
      if (page === undefined || method === 'GET' || method === 'HEAD') return page;
      return method === 'OPTIONS' ? replies.pageOptions : replies.pageMethodNotAllowed;
    },
  };
}

// Clients must not learn the dashboard's address. So the page contains this address only if no other machine can reach
// it, and page.js shows the link only if the page itself has a local address.
function describeDashboard(host: string, port: number): string {
  if (!isThisMachine(host) || port === 0) return '';
  return ` data-dashboard="http://${host.includes(':') ? `[${host}]` : host}:${port}/"`;
}

function createPage(body: string, contentType: string, headers: readonly string[] = []): FixedReply {
  return createFixedReply(200, replyHeaders(contentType, headers), Buffer.from(body));
}

function readPage(file: string): string {
  return readFileSync(new URL(`page/${file}`, import.meta.url), 'utf8');
}
