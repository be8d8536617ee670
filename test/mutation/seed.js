// Loaded before a file of property tests: the same texts in every run, so that the result is the same too.

import fc from 'fast-check';

fc.configureGlobal({ seed: 1 });
