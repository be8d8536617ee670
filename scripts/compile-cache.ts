// Keeps compiled modules in build/, so that a test file does not compile the gateway again. `npm run test:only` preloads
// this file in the process of each test file.

import { enableCompileCache } from 'node:module';

enableCompileCache('build/compile-cache');
