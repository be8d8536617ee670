// Comments, titles, messages and documents are in plain English: they have none of these patterns.

import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';

const root = resolve(import.meta.dirname, '../..');

interface Pattern {
  readonly name: string;
  readonly pattern: RegExp;
  readonly instead: string;
}

/** Patterns that are forbidden anywhere in a comment, a title, a message or a document. */
const inText: readonly Pattern[] = [
  {
    name: '"that is none"',
    pattern: /\b(?:that|which) (?:is|are|was|were) (?:none|no [a-z]+|not one)\b/g,
    instead: 'invalid, not a ..., without',
  },
  {
    name: 'a person without a name',
    pattern: /\b(?:whoever|whomever|whom|nobody|somebody|someone|no one)(?:'s)?\b/gi,
    instead: 'the client, the caller, the operator, the process',
  },
  { name: 'the genitive in front', pattern: /(?:^|[.:;] )Of (?!course\b)[a-z]+/g, instead: 'the subject first' },
  {
    name: 'a word for people',
    pattern:
      /\b(?:affairs?|at rest|under way|is away|are away|lets? go|(?:is|are|was|were) told|asks nothing|by and by|all the same)\b/gi,
    instead: 'decides, idle, in flight, down, releases, receives, gradually, anyway',
  },
  {
    name: 'an old word',
    pattern: /\b(?:anew|beside|so many|so long(?! as))\b/gi,
    instead: 'again, with or next to, a given number, this long',
  },
];

/** Patterns that are forbidden at the beginning of a comment or a title: a clause in place of a noun. */
const opening: Pattern = {
  name: 'a relative clause as a definition',
  pattern: /^(?:(?:For|In|By|To|From|With|At|On) )?(?:what|who|whom|whose|where|whether|which)\b[^?]*$/gi,
  instead: 'a noun phrase or a verb: "Parses ...", "The ... that ..."',
};

/** Sentences that may stay, each with its reason. */
const allowed: readonly { readonly text: RegExp; readonly why: string }[] = [
  { text: /^'?nobody'?$|\| nobody +\||fault(?:=|!=)\\?"nobody/, why: 'a value of the metrics label `fault`' },
];

interface Text {
  readonly file: string;
  readonly line: number;
  readonly text: string;
  /** True for a comment or a title, because its first words are also checked. */
  readonly opens: boolean;
}

function sourceTexts(file: string, source: string): Text[] {
  const texts: Text[] = [];
  const lines = source.split('\n');
  let block: { line: number; text: string } | undefined;
  const end = (): void => {
    if (block !== undefined) texts.push({ file, line: block.line, text: block.text.trim(), opens: true });
    block = undefined;
  };
  for (const match of source.matchAll(/\b(?:test|describe)(?:\.\w+)?\(\s*(['"`])(.*?)\1,/gs)) {
    const line = source.slice(0, match.index).split('\n').length;
    texts.push({ file, line, text: match[2] ?? '', opens: true });
  }
  for (const [index, each] of lines.entries()) {
    const comment = /^\s*(?:\/\/|\/\*\*?|\*(?!\/))\s?(.*?)(?:\*\/)?$/.exec(each)?.[1];
    if (comment !== undefined) {
      block ??= { line: index + 1, text: '' };
      block.text += ` ${comment}`;
      continue;
    }
    end();
    const after = /\s\/\/ (.*)$/.exec(each)?.[1];
    if (after !== undefined) texts.push({ file, line: index + 1, text: after, opens: true });
    for (const [, , text = ''] of each.matchAll(/(['"`])((?:(?!\1).)* (?:(?!\1).)*)\1/g)) {
      texts.push({ file, line: index + 1, text, opens: false });
    }
  }
  end();
  return texts;
}

function documentTexts(file: string, source: string): Text[] {
  const prose = source.replaceAll(/^```.*?^```$/gms, (fence) => '\n'.repeat(fence.split('\n').length - 1));
  return prose
    .replaceAll(/`[^`\n]*`/g, '``')
    .split('\n')
    .map((text, index) => ({ file, line: index + 1, text: text.replace(/^#+ /, ''), opens: false }));
}

function faults(texts: readonly Text[]): string[] {
  return texts
    .filter(({ text }) => !allowed.some((each) => each.text.test(text)))
    .flatMap(({ file, line, text, opens }) =>
      [...inText, ...(opens ? [opening] : [])].flatMap(({ name, pattern, instead }) =>
        [...text.matchAll(pattern)].map(
          ([found]) => `${file}:${line}: ${name}: "${found.slice(0, 60)}"; instead: ${instead}`,
        ),
      ),
    );
}

for (const [what, pattern, textsOf] of [
  ['sources', '{packages,scripts,examples,bench}/**/*.{ts,js,css}', sourceTexts],
  ['tests', 'test/**/*.ts', sourceTexts],
  ['documents', '{*.md,{docs,packages,test,bench,examples}/**/*.md}', documentTexts],
] as const) {
  describe(`plain English in ${what}`, () => {
    test('no text has a pattern that readers stumble over', () => {
      const files = globSync(pattern, {
        cwd: root,
        exclude: ['**/{node_modules,build}/**', 'test/unit/english.test.ts'],
      });
      assert.ok(files.length > 10);
      const found = files.flatMap((file) =>
        faults(textsOf(file.replaceAll('\\', '/'), readFileSync(join(root, file), 'utf8'))),
      );
      assert.deepEqual(found, []);
    });
  });
}

test('each pattern finds an example of its fault', () => {
  const found = (text: string): string[] => faults(sourceTexts('a.ts', text)).map((each) => each.split(': ')[1] ?? '');
  assert.deepEqual(found('// Who made a call.'), [opening.name]);
  assert.deepEqual(found("test('what a call is', () => {"), [opening.name]);
  assert.deepEqual(found("throw new Error('a method that is none');"), ['"that is none"']);
  assert.deepEqual(found('// Of what was sent ahead nothing starts.'), ['the genitive in front']);
  assert.deepEqual(found('x(); // is the affair of another'), ['a word for people']);
  assert.deepEqual(found('// Fetched anew.'), ['an old word']);
  assert.deepEqual(found('// The client, which has left.'), []);
});
