// Typical handwritten routes, which the gateway replaces. `Wrong: 4.` means row 4 of the table in /README.md.

const backend = `${process.env.BACKEND_URL ?? 'http://localhost:5104'}/api/WorkItem`;
const headers = { 'Content-Type': 'application/json' };

export async function GET() {
  try {
    const response = await fetch(backend, { headers, cache: 'no-store' });
    if (!response.ok) throw new Error(`Backend responded with status ${response.status}`);
    return Response.json(await response.json()); // Wrong: 1, 2, 7.
  } catch {
    return Response.json({ error: 'Failed to fetch work items' }, { status: 500 });
  }
}

export async function POST(request: Request) {
  try {
    const body = JSON.stringify(await request.json()); // Wrong: 1, 3, 6.
    const response = await fetch(backend, { method: 'POST', headers, body }); // Wrong: 5.
    if (!response.ok) throw new Error(`Backend responded with status ${response.status}`);
    return Response.json(await response.json(), { status: 201 });
  } catch {
    return Response.json({ error: 'Failed to create work item' }, { status: 500 });
  }
}
