// Comments, titles, messages and documents are in plain English: they have none of these patterns.

import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';

const root = resolve(import.meta.dirname, '../..');

type Pattern = readonly [name: string, pattern: RegExp, instead: string];

/** Patterns that are forbidden anywhere in a comment, a title, a message or a document. */
const inText: readonly Pattern[] = [
  [
    '"that is none"',
    /\b(?:that|which) (?:is|are|was|were) (?:none|no [a-z]+|not one)\b/g,
    'invalid, not a ..., without',
  ],
  [
    'a person without a name',
    /\b(?:whoever|whomever|whom|nobody|somebody|someone|no one)(?:'s)?\b/gi,
    'the client, the caller, the operator, the process',
  ],
  ['the genitive in front', /(?:^|[.:;] )Of (?!course\b)[a-z]+/g, 'the subject first'],
  [
    'a word for people',
    /\b(?:affairs?|at rest|under way|is away|are away|lets? go|(?:is|are|was|were) told|asks nothing|by and by|all the same)\b/gi,
    'decides, idle, in flight, down, releases, receives, gradually, anyway',
  ],
  ['an old word', /\b(?:anew|beside|so many|so long(?! as))\b/gi, 'again, with or next to, a given number, this long'],
];

/** A pattern that is forbidden at the beginning of a comment or a title: a clause in place of a noun. */
const opening: Pattern = [
  'a relative clause as a definition',
  /^(?:(?:For|In|By|To|From|With|At|On) )?(?:what|who|whom|whose|where|whether|which)\b[^?]*$/gi,
  'a noun phrase or a verb: "Parses ...", "The ... that ..."',
];

/** Values of the metrics label `fault`. */
const allowed = /^'?nobody'?$|\| nobody +\||fault(?:=|!=)\\?"nobody/;

interface Text {
  readonly line: number;
  readonly text: string;
  /** True for a comment or a title, because its first words are also checked. */
  readonly opens: boolean;
}

function sourceTexts(source: string): Text[] {
  const texts: Text[] = [];
  let block: { line: number; text: string } | undefined;
  for (const match of source.matchAll(/\b(?:test|describe)(?:\.\w+)?\(\s*(['"`])(.*?)\1,/gs)) {
    texts.push({ line: source.slice(0, match.index).split('\n').length, text: match[2] ?? '', opens: true });
  }
  for (const [index, each] of `${source}\n`.split('\n').entries()) {
    const line = index + 1;
    const comment = /^\s*(?:\/\/|\/\*\*?|\*(?!\/))\s?(.*?)(?:\*\/)?$/.exec(each)?.[1];
    if (comment !== undefined) {
      block ??= { line, text: '' };
      block.text += ` ${comment}`;
      continue;
    }
    if (block !== undefined) texts.push({ line: block.line, text: block.text.trim(), opens: true });
    block = undefined;
    const after = /\s\/\/ (.*)$/.exec(each)?.[1];
    if (after !== undefined) texts.push({ line, text: after, opens: true });
    for (const [, , text = ''] of each.matchAll(/(['"`])((?:(?!\1).)* (?:(?!\1).)*)\1/g)) {
      texts.push({ line, text, opens: false });
    }
  }
  return texts;
}

function documentTexts(source: string): Text[] {
  const prose = source.replaceAll(/^```.*?^```$/gms, (fence) => '\n'.repeat(fence.split('\n').length - 1));
  const lines = prose.replaceAll(/`[^`\n]*`/g, '``').split('\n');
  return lines.map((text, index) => ({ line: index + 1, text: text.replace(/^#+ /, ''), opens: false }));
}

function faults(texts: readonly Text[]): string[] {
  return texts
    .filter(({ text }) => !allowed.test(text))
    .flatMap(({ line, text, opens }) =>
      [...inText, ...(opens ? [opening] : [])].flatMap(([name, pattern, instead]) =>
        (text.match(pattern) ?? []).map((found) => `${line}: ${name}: "${found.slice(0, 60)}"; instead: ${instead}`),
      ),
    );
}

for (const [what, pattern, textsOf] of [
  ['sources', '{packages,scripts,examples,bench}/**/*.{ts,js,css}', sourceTexts],
  ['tests', 'test/**/*.ts', sourceTexts],
  ['documents', '{*.md,{docs,packages,test,bench,examples}/**/*.md}', documentTexts],
] as const) {
  test(`no text in ${what} has a pattern that readers stumble over`, () => {
    const exclude = ['**/{node_modules,build}/**', 'test/unit/english.test.ts'];
    const files = globSync(pattern, { cwd: root, exclude });
    assert.ok(files.length > 10);
    const found = files.flatMap((file) =>
      faults(textsOf(readFileSync(join(root, file), 'utf8'))).map((fault) => `${file}:${fault}`),
    );
    assert.deepEqual(found, []);
  });
}

test('each pattern finds an example of its fault', () => {
  for (const [text, ...names] of [
    ['// Who made a call.', opening[0]],
    ["test('what a call is', () => {", opening[0]],
    ["throw new Error('a method that is none');", '"that is none"'],
    ['// Of what was sent ahead nothing starts.', 'the genitive in front'],
    ['x(); // is the affair of another', 'a word for people'],
    ['// Fetched anew.', 'an old word'],
    ['// The client, which has left.'],
  ] as const) {
    assert.deepEqual(
      faults(sourceTexts(text)).map((each) => each.split(': ')[1]),
      names,
    );
  }
});
