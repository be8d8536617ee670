// The flags of `check` that are no settings: what of the backend is to be tried, and how that is told. Imports nothing: the
// help has them, whatever is started.

export const contractFlags = {
  '--contract': {
    placeholder: undefined,
    help: 'try what the gateway needs of the backend: list, read, a missing item, connections',
  },
  '--write': {
    placeholder: undefined,
    help: 'with --contract: also create, update and delete one item of its own',
  },
  '--body': {
    placeholder: 'json|file',
    help: 'with --write: the item to create; a text of it is replaced by a marker (default {"title":"..."})',
  },
  '--json': { placeholder: undefined, help: 'with --contract: print one JSON document instead of text' },
} as const;
