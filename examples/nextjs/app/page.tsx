'use client';

import { useCallback, useEffect, useState, type FormEvent } from 'react';

interface WorkItem {
  readonly id: number;
  readonly title?: string;
  readonly state?: string;
}

const url = '/api/work-items';

/** Returns the JSON of a reply. Throws the gateway's message for an error. */
async function read(response: Response): Promise<unknown> {
  const value = await response.json();
  if (!response.ok) throw new Error(value.error);
  return value;
}

export default function Page() {
  const [items, setItems] = useState<readonly WorkItem[]>();
  const [problem, setProblem] = useState('');

  const list = useCallback(async () => {
    try {
      setItems((await read(await fetch(url))) as WorkItem[]);
      setProblem('');
    } catch (error) {
      setProblem((error as Error).message);
    }
  }, []);
  useEffect(() => void list(), [list]);

  async function create(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const form = event.currentTarget;
    const body = JSON.stringify({ title: new FormData(form).get('title'), state: 'New' });
    try {
      await read(await fetch(url, { method: 'POST', body }));
      form.reset();
      await list();
    } catch (error) {
      setProblem((error as Error).message);
    }
  }

  return (
    <main>
      <h1>Work items</h1>
      <form onSubmit={create}>
        <label>
          Title
          <input name="title" required />
        </label>
        <button>Create</button>
      </form>
      <p role="status">{problem || (items ? `${items.length} work items` : 'Loading…')}</p>
      <ul>
        {items?.map(({ id, title, state }) => (
          <li key={id}>
            {id}: {title ?? 'Untitled'} {state && `(${state})`}
          </li>
        ))}
      </ul>
    </main>
  );
}
