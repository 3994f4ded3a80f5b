// Making elements. Text only ever becomes a text node: nothing here takes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function el(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

// name shows text from a caller. bdi keeps right-to-left letters from reordering
// what stands beside them.
export function name(text, props) {
  return el("bdi", { class: "name", ...props }, text);
}

// setText touches the page only where something changed.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttr(node, attr, value) {
  if (node.getAttribute(attr) !== value) node.setAttribute(attr, value);
}

// painter returns a function that asks for one call of paint in an animation
// frame, at most every gap milliseconds, however often it is asked.
export function painter(paint, gap) {
  let due = false;
  let last = -Infinity;
  return () => {
    if (due) return;
    due = true;
    const wait = Math.max(0, last + gap - performance.now());
    setTimeout(() => requestAnimationFrame(() => {
      due = false;
      last = performance.now();
      paint();
    }), wait);
  };
}
