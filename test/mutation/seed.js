// Loaded before property tests: a fixed seed gives the same result in every run.

import fc from 'fast-check';

fc.configureGlobal({ seed: 1 });
