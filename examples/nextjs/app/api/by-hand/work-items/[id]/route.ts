// Typical handwritten routes, which the gateway replaces. `Wrong: 4.` means row 4 of the table in /README.md.

const backend = `${process.env.BACKEND_URL ?? 'http://localhost:5104'}/api/WorkItem`;
const headers = { 'Content-Type': 'application/json' };

type Context = { params: Promise<{ id: string }> };

export async function GET(_request: Request, { params }: Context) {
  const id = Number.parseInt((await params).id, 10); // Wrong: 4.
  if (Number.isNaN(id)) return Response.json({ error: 'Invalid ID format' }, { status: 400 });
  try {
    const response = await fetch(`${backend}/${id}`, { headers, cache: 'no-store' }); // Wrong: 2, 5.
    if (response.status === 404) return Response.json({ error: 'Work item not found' }, { status: 404 });
    if (!response.ok) throw new Error(`Backend responded with status ${response.status}`);
    return Response.json(await response.json()); // Wrong: 1, 7.
  } catch {
    return Response.json({ error: 'Failed to fetch work item' }, { status: 500 });
  }
}

export async function PUT(request: Request, { params }: Context) {
  const id = Number.parseInt((await params).id, 10); // Wrong: 4.
  if (Number.isNaN(id)) return Response.json({ error: 'Invalid ID format' }, { status: 400 });
  try {
    const body = JSON.stringify(await request.json()); // Wrong: 1, 3, 6.
    const response = await fetch(`${backend}/${id}`, { method: 'PUT', headers, body }); // Wrong: 5.
    if (!response.ok) throw new Error(`Backend responded with status ${response.status}`);
    return Response.json({ success: true });
  } catch {
    return Response.json({ error: 'Failed to update work item' }, { status: 500 });
  }
}

export async function DELETE(_request: Request, { params }: Context) {
  const id = Number.parseInt((await params).id, 10); // Wrong: 4.
  if (Number.isNaN(id)) return Response.json({ error: 'Invalid ID format' }, { status: 400 });
  try {
    const response = await fetch(`${backend}/${id}`, { method: 'DELETE', headers }); // Wrong: 5, 8.
    if (!response.ok) throw new Error(`Backend responded with status ${response.status}`);
    return Response.json({ success: true });
  } catch {
    return Response.json({ error: 'Failed to delete work item' }, { status: 500 });
  }
}
