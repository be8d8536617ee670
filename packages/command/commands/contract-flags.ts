// The flags of `check` that are not settings. The help shows them even in a build without the contract check, so they
// are not in packages/contract-check/.

export const contractFlags = {
  '--contract': {
    placeholder: undefined,
    help: 'test what the gateway needs of the backend: list, read, a missing item, connections',
  },
  '--write': { placeholder: undefined, help: 'with --contract: also create, update and delete one item' },
  '--body': {
    placeholder: 'json|file',
    help: 'with --write: the item to create; one of its texts is replaced by a marker (default {"title":"..."})',
  },
  '--json': { placeholder: undefined, help: 'with --contract: print one JSON document instead of text' },
} as const;
