// Writes the API reference as HTML, from the OpenAPI document. page/page.js makes its calls. The classes have the names
// that Swagger UI gives them.

import { resolveReferences, type DescribedOperation, type Part } from '../../core/hosts/openapi/described.ts';
import type { Json } from '../../core/hosts/openapi/document.ts';
import { sharedNames } from '../../core/hosts/openapi/openapi.ts';

const escape = (text: string): string => text.replace(/[&<>"]/g, (each) => `&#${each.charCodeAt(0)};`);

/** Converts a line of Markdown in which only `code` is special. */
const line = (text: string): string => escape(text).replace(/`([^`]*)`/g, '<code>$1</code>');

/** Converts Markdown that has paragraphs, tables and headings of the second level. */
function blocks(text: string): string {
  const rowOf = (row: string, tag: string): string => {
    const cells = row.slice(2, -2).split(' | ');
    return `<tr>${cells.map((cell) => `<${tag}>${line(cell)}</${tag}>`).join('')}</tr>`;
  };
  const converted = text.split('\n\n').map((block) => {
    if (block.startsWith('## ')) return `<h2>${line(block.slice(3))}</h2>`;
    if (!block.startsWith('| ')) return `<p>${line(block)}</p>`;
    const [head = '', , ...rows] = block.trim().split('\n');
    const body = rows.map((row) => rowOf(row, 'td')).join('');
    return `<table><thead>${rowOf(head, 'th')}</thead><tbody>${body}</tbody></table>`;
  });
  return converted.join('\n');
}

/** Writes the reference of the document `text`. */
export function createReference(text: string): string {
  const { info, tags, paths, components } = resolveReferences(JSON.parse(text) as Json);
  // The first paragraph is above the operations, the rest below.
  const [first = '', ...others] = info.description.split('\n\n');
  const token = components.securitySchemes?.bearer;
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
  const groups = tags.map(({ name, description }) => {
    const sections = operations
      .filter(({ operation }) => operation.tags.includes(name))
      .map(({ path, method, operation }) => sectionOf(path, method, operation));
    return `<h2>${name} <small>${line(description)}</small></h2>\n${sections.join('\n')}`;
  });
  return `<header>
<h1>${info.title} <small>${info.version}</small></h1>
<p>${line(first)}</p>
<p><a href="openapi.json">openapi.json</a> <a id="dashboard" hidden>Dashboard</a></p>
</header>
<main>
${token === undefined ? '' : fieldOf('token', 'Token', token.description, 'type="password"')}
${groups.join('\n')}
<section class="info" aria-label="Errors and limits">
${blocks(others.join('\n\n'))}
</section>
</main>`;
}

function sectionOf(path: string, verb: string, operation: DescribedOperation): string {
  const { operationId: id, summary, description, parameters, requestBody, responses } = operation;
  const method = verb.toUpperCase();
  const fieldsIn = (place: string): string =>
    parameters
      .filter((each) => each.in === place)
      .map(({ name, required = false, description: meaning, example = '' }) => {
        const label = `<code>${name}</code>${required ? ' (required)' : ''}`;
        const attributes = `name="${name}" placeholder="${name}" value="${example}" data-in="${place}"`;
        return fieldOf(`${id}-${name}`, label, meaning, required ? `${attributes} required` : attributes);
      })
      .join('\n');
  const replies = Object.entries(responses);
  const rows = replies.map(([status, reply]) => (isShared(status) ? '' : rowOf(status, reply)));
  const shared = replies.map(([status]) => status).filter(isShared);
  return `<section class="opblock opblock-${verb}" id="operation-${id}">
<h3><button type="button" aria-expanded="false" aria-controls="${id}">
<span class="opblock-summary-method">${method}</span>
<code class="opblock-summary-path">${path}</code>
<span class="opblock-summary-description">${line(summary)}</span>
</button></h3>
<div class="opblock-body" id="${id}" hidden>
<p>${line(description)}</p>
<form data-method="${method}" data-path="${path}" novalidate>
${fieldsIn('path')}
${requestBody === undefined ? '' : editorOf(requestBody)}
<details><summary>Request headers</summary>
${fieldsIn('header')}
</details>
<p><button class="execute">Execute</button> <span class="validation-errors" role="alert"></span></p>
</form>
<div class="responses-wrapper"></div>
<h4>Replies</h4>
<table class="responses-table"><tbody>
${rows.join('')}
</tbody></table>
<p class="shared-replies">${shared.join(', ')}: see “Every operation” below.</p>
</div>
</section>`;
}

const isShared = (status: string): boolean => sharedNames.has(Number(status));

function fieldOf(id: string, label: string, description: string, attributes: string): string {
  return `<div class="parameter">
<label for="${id}">${label}</label>
<input id="${id}" ${attributes} aria-describedby="${id}-means" autocomplete="off" spellcheck="false" />
<small id="${id}-means">${line(description)}</small>
</div>`;
}

function editorOf({ description, content }: Part): string {
  return `<h4>Request body</h4>
<p>${line(description)}</p>
<textarea name="body" aria-label="Request body" rows="6" spellcheck="false">${write(content?.['application/json'].example)}</textarea>`;
}

function rowOf(status: string, { description, headers, content }: Part): string {
  const examples = Object.values(content?.['application/json'].examples ?? {});
  const bodies = examples.map(({ value }) => `<pre class="reply-body">${write(value)}</pre>`);
  const fields = Object.entries(headers).map(
    ([name, header]) => `<dt><code>${name}</code></dt><dd>${line(header.description)}</dd>`,
  );
  return `<tr class="response">
<td class="response-col_status">${status}</td>
<td><p>${line(description)}</p>${bodies.join('')}
<details><summary>Headers</summary><dl>${fields.join('')}</dl></details></td>
</tr>`;
}

/** Writes a JSON value in one line if the line is short. */
function write(value: unknown): string {
  const short = JSON.stringify(value);
  return escape(short.length < 50 ? short : JSON.stringify(value, null, 2));
}
