import js from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  {
    ignores: [
      'dist/',
      'build/',
      'bench/contenders/next*/build/',
      'examples/',
      'test/mutation/',
      'scripts/release/',
      'node_modules/',
      '**/*.as.ts',
      'test-output/',
    ],
  },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  ...tseslint.configs.stylisticTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/no-floating-promises': [
        'error',
        {
          allowForKnownSafeCalls: [
            {
              from: 'package',
              name: ['test', 'it', 'describe', 'suite', 'before', 'after', 'beforeEach', 'afterEach'],
              package: 'node:test',
            },
          ],
        },
      ],
    },
  },
  { files: ['**/*.{js,cjs}'], extends: [tseslint.configs.disableTypeChecked] },
  {
    files: ['scripts/**/*.cjs'],
    languageOptions: { globals: { require: 'readonly', process: 'readonly', __dirname: 'readonly' } },
    rules: { '@typescript-eslint/no-require-imports': 'off' },
  },
  {
    files: ['bench/contenders/**/*.js'],
    languageOptions: {
      globals: { Buffer: 'readonly', URL: 'readonly', process: 'readonly', fetch: 'readonly', Response: 'readonly' },
    },
  },
  // It must load on any Node, to say that one is too old.
  { files: ['scripts/start.cjs', 'scripts/node/link.cjs'], languageOptions: { ecmaVersion: 2020 } },
  // The names that a browser has are the type checker's affair.
  { files: ['packages/**/page/*.js'], rules: { 'no-undef': 'off' } },
);
