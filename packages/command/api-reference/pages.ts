// The API reference at /docs and the OpenAPI document at /openapi.json. This module is loaded only if DOCS is on. All
// pages are read into memory at the start and sent like any reply.

import { readFileSync } from 'node:fs';

import { createFixedReply, replies, replyHeaders, type FixedReply, type Pages } from '../../core/replies.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Limits } from '../../core/hosts/openapi/document.ts';
import { createOpenApiText } from '../../core/hosts/openapi/openapi.ts';
import { isThisMachine } from '../../core/options/accepted-values.ts';

const json = 'application/json';
const html = 'text/html; charset=utf-8';
const css = 'text/css; charset=utf-8';
const javascript = 'text/javascript; charset=utf-8';
const svg = 'image/svg+xml';

// Allows only files from this gateway and calls to it. Forbids inline scripts and styles.
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

/** The address of the dashboard. */
interface AdminAddress {
  readonly adminHost: string;
  readonly adminPort: number;
}

/** Loads the pages. The OpenAPI document contains the limits in `settings`. Throws a StartError if a file is missing. */
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
      if (page === undefined || method === 'GET' || method === 'HEAD') return page;
      return method === 'OPTIONS' ? replies.pageOptions : replies.pageMethodNotAllowed;
    },
  };
}

// Clients must not learn the dashboard's address. So the page contains this address only if no other machine can reach
// it, and page.js shows the link only if the page itself has a local address.
function linkDashboard(page: Buffer, { adminHost, adminPort }: AdminAddress): Buffer {
  if (!isThisMachine(adminHost) || adminPort === 0) return page;
  const host = adminHost.includes(':') ? `[${adminHost}]` : adminHost;
  return Buffer.from(
    page.toString().replace('<html lang="en">', `<html lang="en" data-dashboard="http://${host}:${adminPort}/">`),
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
      `the API reference lacks the file ${file}: run npm run build:docs, or start with DOCS=false`,
      error,
    );
  }
}
