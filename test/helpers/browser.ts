// A real browser: Chromium from a development dependency. Every page records its requests, failed requests, exceptions
// and errors in the console.

import chromium, { inflate } from '@sparticuz/chromium';
import { AxeBuilder } from '@axe-core/playwright';
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium as playwright, type Browser, type BrowserContext, type Page } from 'playwright-core';

// Long, because a browser is slow on a busy machine.
const deadlineMs = 60_000;
const root = resolve(import.meta.dirname, '../..');
const machineFonts = '/etc/fonts/fonts.conf';
const fontPackages = {
  'fonts-dejavu': 'truetype/dejavu',
  'fonts-liberation': 'truetype/liberation',
  'fonts-urw-base35': 'opentype/urw-base35',
};
const missing = Object.entries(fontPackages).find(([, folder]) => !existsSync(join('/usr/share/fonts', folder)));
/** Why a test with the fonts of a usual Debian is skipped; false if these are installed. */
export const missingFonts = missing && `${missing[0]} is not installed; on Debian: scripts/install-test-tools.sh`;
/** The folder of screenshots; not committed. */
const picturesFolder = join(root, 'test-output');

export interface PageOptions {
  /** Window size in CSS pixels. */
  readonly width?: number;
  readonly height?: number;
  readonly colorScheme?: 'light' | 'dark';
}

/** A page with its own cookies and storage. */
export class WatchedPage implements AsyncDisposable {
  readonly page: Page;
  /** The page's requests, in order, without `data:` addresses. */
  readonly requests: string[] = [];
  /** Errors in the console (also refusals by the content security policy), exceptions and failed requests. */
  readonly problems: string[] = [];
  readonly #context: BrowserContext;

  constructor(context: BrowserContext, page: Page) {
    this.#context = context;
    this.page = page;
    const note = (problem: string) => this.problems.push(problem);
    page.on('request', (request) => {
      if (!request.url().startsWith('data:')) this.requests.push(request.url());
    });
    page.on('requestfailed', (request) => note(`failed: ${request.url()} ${request.failure()?.errorText ?? ''}`));
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) note(`${message.type()}: ${message.text()}`);
    });
    page.on('pageerror', (error) => note(`exception: ${error.stack ?? error.message}`));
  }

  /** Fails if there was a problem, or a request to another origin than that of `url`. */
  assertClean(url: string): void {
    const { origin } = new URL(url);
    assert.deepEqual(this.problems, [], 'problems on the page');
    assert.ok(this.requests.length > 0, 'the page was loaded');
    const foreign = this.requests.filter((each) => new URL(each).origin !== origin);
    assert.deepEqual(foreign, [], 'requests to other origins');
  }

  /** Returns and forgets the problems so far, for a test that causes a problem on purpose. */
  takeProblems(): string[] {
    return this.problems.splice(0);
  }

  /** Fails when the page is wider than its window. */
  async assertFits(): Promise<void> {
    const [content = NaN, window = NaN] = await this.page.evaluate<number[]>(
      '[document.documentElement.scrollWidth, document.documentElement.clientWidth]',
    );
    assert.ok(content <= window, `the page is ${content} px wide in a window of ${window} px`);
  }

  /** The findings of axe: WCAG 2.2 A and AA, and its best practices. */
  async findAccessibilityProblems(): Promise<string[]> {
    // Axe inserts styles, which the content security policy blocks. So errors from this check are removed again.
    const problems = [...this.problems];
    const { violations } = await new AxeBuilder({ page: this.page }).options({ preload: false }).analyze();
    this.problems.splice(0, Infinity, ...problems);
    return violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id}: ${help}: ${target.join(' ')}: ${failureSummary ?? ''}`),
    );
  }

  /** Saves a screenshot as `test-output/<name>.png` if TEST_PICTURES is set. */
  async savePicture(name: string, { fullPage = true } = {}): Promise<void> {
    if (!process.env['TEST_PICTURES']) return;
    mkdirSync(picturesFolder, { recursive: true });
    await this.page.screenshot({ path: join(picturesFolder, `${name}.png`), fullPage, animations: 'disabled' });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#context.close();
  }
}

export class TestBrowser implements AsyncDisposable {
  readonly #browser: Browser;

  private constructor(browser: Browser) {
    this.#browser = browser;
  }

  /** Starts a browser that sees only Open Sans, or only the fonts of this machine. */
  static async start({ usesMachineFonts = false } = {}): Promise<TestBrowser> {
    const folder = await unpackChromium();
    const browser = await playwright.launch({
      executablePath: join(folder, 'chromium'),
      // The package's own arguments would switch off the same-origin policy.
      args: ['--no-zygote', '--disable-gpu', '--font-render-hinting=none'],
      env: {
        PATH: process.env['PATH'] ?? '',
        HOME: folder,
        LD_LIBRARY_PATH: join(folder, 'al2023/lib'),
        FONTCONFIG_FILE: usesMachineFonts ? machineFonts : join(import.meta.dirname, 'open-sans.conf'),
        // The folder of the fonts and of their cache in `open-sans.conf`.
        XDG_DATA_HOME: folder,
        XDG_DATA_DIRS: folder,
        XDG_CACHE_HOME: folder,
      },
    });
    return new TestBrowser(browser);
  }

  /** Opens `url` and waits until its files have been loaded. */
  async open(
    url: string,
    { width = 1280, height = 800, colorScheme = 'light' }: PageOptions = {},
  ): Promise<WatchedPage> {
    // The browser may not support the machine's locale.
    const look = { viewport: { width, height }, locale: 'en-GB', colorScheme, reducedMotion: 'reduce' } as const;
    const context = await this.#browser.newContext(look);
    context.setDefaultTimeout(deadlineMs);
    const page = new WatchedPage(context, await context.newPage());
    await page.page.goto(url, { waitUntil: 'load' });
    return page;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#browser.close();
  }
}

/** Unpacks the browser once per version and returns its folder. */
async function unpackChromium(): Promise<string> {
  const source = join(root, 'node_modules/@sparticuz/chromium');
  const manifest = readFileSync(join(source, 'package.json'), 'utf8');
  const { version } = JSON.parse(manifest) as { version: string };
  const folder = join(tmpdir(), `work-item-gateway-test-chromium-${version}`);
  if (existsSync(folder)) return folder;
  // Unpacked under another name and then renamed, since several test files may unpack it at the same time.
  const unfinished = await mkdtemp(`${folder}-`);
  const { TMPDIR = tmpdir() } = process.env;
  process.env['TMPDIR'] = unfinished;
  try {
    await chromium.executablePath();
    // Libraries that Chromium needs and the system may not have.
    await inflate(join(source, 'bin/al2023.tar.br'));
  } finally {
    process.env['TMPDIR'] = TMPDIR;
  }
  // The renaming fails if another process has created the folder first.
  await rename(unfinished, folder).catch(() => rm(unfinished, { recursive: true }));
  return folder;
}
