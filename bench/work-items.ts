// Fixed work items, with the same bytes in every run: answers of the backend, bodies of clients, and probes. A probe shows
// whether a gateway passes bytes on unchanged or writes the JSON again.

const PEOPLE = ['Zoë Müller', 'Łukasz Nowak', 'Ana García', 'Sam Okafor', '田中 美咲', 'Priya Nair'];
const TITLES = [
  'Import stops after the first page',
  'Größe der Anhänge prüfen',
  'Login button does nothing on a slow line',
  'Résumé the upload after a lost connection',
  'Sort by priority, then by date',
  '検索結果が空になる',
];
const STATES = ['New', 'Active', 'Resolved', 'Closed'];
const NOTES =
  'Seen twice on the test system, never in production. Steps: open the list, choose a filter, press “Save” — ' +
  'the page shows the old values until it is loaded again. See C:\\logs\\web.log and the report of 12 March. ';

/** A realistic work item. Its description is padded, so that the item has exactly `bytes` bytes of JSON. */
function makeWorkItem(id: number, bytes: number) {
  const item = {
    id,
    title: TITLES[id % TITLES.length],
    state: STATES[id % STATES.length],
    priority: 1 + (id % 4),
    assignedTo: PEOPLE[id % PEOPLE.length],
    tags: ['web', id % 3 === 0 ? 'regression' : 'customer'],
    estimateHours: (id % 16) + 0.5,
    parentId: id % 5 === 0 ? null : Math.floor(id / 5),
    blocked: id % 7 === 0,
    createdAt: '2026-03-14T09:26:53.589Z',
    changedAt: '2026-04-02T16:05:11.020Z',
    description: '',
  };
  const room = bytes - Buffer.byteLength(JSON.stringify(item));
  // Pads with whole characters while they fit, then with spaces, because some characters take several bytes in JSON.
  let used = 0;
  for (const character of NOTES.repeat(3)) {
    const cost = Buffer.byteLength(JSON.stringify(character)) - 2;
    if (used + cost > room) break;
    item.description += character;
    used += cost;
  }
  item.description += ' '.repeat(room - used);
  return item;
}

const lists = new Map<number, Buffer>();

/** A list of items, of about 417 bytes each. */
export function makeList(length: number): Buffer {
  const items = (): object[] => Array.from({ length }, (_, index) => makeWorkItem(index + 1, 416));
  const list = lists.get(length) ?? Buffer.from(JSON.stringify(items()));
  lists.set(length, list);
  return list;
}

export const ITEM = Buffer.from(JSON.stringify(makeWorkItem(17, 432)));

/** The body of PUT and POST. */
export const SENT_ITEM = Buffer.from(JSON.stringify({ ...makeWorkItem(17, 400), id: undefined }));

/** The backend's answer to POST: the item with its new id. */
export const CREATED_ITEM = Buffer.from(JSON.stringify(makeWorkItem(18, 432)));

/** Valid JSON whose bytes change if a gateway parses it and writes it again. */
export const EXACT_PROBE = Buffer.from(
  '{ "id": 9007199254740993,\t"ratio": 1.0, "huge": 1e400, "name": "\\u0041\\/", "name": "again" }\n',
);

/** Invalid JSON: a gateway refuses it only if it checks JSON. */
export const NOT_JSON = Buffer.from('{"id": 17, "title": "cut o');

/** Ids with special answers from the backend; every other id gets `ITEM`. */
export const PROBE_IDS = { exact: 900_001, notJson: 900_002, missing: 900_404 };
