// Builds DOM nodes, and patches a page so that it equals a new one.
//
// Data only ever becomes text nodes and attribute values, never HTML: names of stores and keys are hostile.
// Event handlers are properties (`onclick`), so that `patch` can carry them over to the node that stays.

const HANDLERS = ['onclick', 'onchange', 'oninput', 'onsubmit', 'onkeydown', 'onfocus', 'onblur',
  'onpointermove', 'onpointerleave', 'onpointerenter', 'onpointerover'];

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node[name] = value;
    else if (name === 'style') for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/// An HTML element. Children are nodes or text; null and false are left out.
export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/// An SVG element.
export const s = (tag, attributes, ...children) =>
  build(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

/// Makes the children of `old` equal to those of `next`, and keeps the nodes that stay: with focus, scroll
/// position, and input that is not saved yet. Children with `data-key` are matched by it, others by position.
export function patchChildren(old, next) {
  const keyed = new Map();
  const wanted = new Set([...next.childNodes].map((child) => child.dataset?.key));
  for (const child of [...old.childNodes]) {
    const key = child.dataset?.key;
    if (!key) continue;
    // Removed first: so those that stay need not move, which would take the focus from them.
    if (wanted.has(key)) keyed.set(key, child);
    else child.remove();
  }
  let cursor = old.firstChild;
  for (const child of [...next.childNodes]) {
    const key = child.dataset?.key;
    const match = key ? keyed.get(key) : cursor && !cursor.dataset?.key ? cursor : null;
    if (match?.nodeName === child.nodeName) {
      if (match === cursor) cursor = cursor.nextSibling;
      else old.insertBefore(match, cursor);
      patch(match, child);
    } else {
      old.insertBefore(child, cursor);
    }
  }
  while (cursor) {
    const following = cursor.nextSibling;
    cursor.remove();
    cursor = following;
  }
}

function patch(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== 'open' && !next.hasAttribute(name)) old.removeAttribute(name); // `open` is the reader's choice
  }
  for (const { name, value } of next.attributes) {
    if (name === 'style') {
      // The security policy forbids the attribute, not the property.
      if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
    } else if (name !== 'open' && old.getAttribute(name) !== value) {
      old.setAttribute(name, value);
    }
  }
  for (const handler of HANDLERS) if (old[handler] !== next[handler]) old[handler] = next[handler];
  patchChildren(old, next);
}
