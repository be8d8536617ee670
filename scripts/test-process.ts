// Prepares the process of each test file. The npm scripts that run tests preload this file.

import { enableCompileCache } from 'node:module';

import '../test/helpers/overwrite-released.ts';

// Then a test file does not compile the gateway again.
enableCompileCache('build/compile-cache');
