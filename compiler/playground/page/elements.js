// Elements of the page.

export const find = (selector, inside = document) => inside.querySelector(selector);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties))
    if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function html(tag, className, content) {
  const element = make(tag, { className });
  element.innerHTML = content;  // MathML and highlighted code, made by the server, which escapes names
  return element;
}

export function copyButton(label, content, title) {
  const button = make("button", { type: "button", className: "copy", title }, label);
  button.setAttribute("aria-label", title);
  button.onclick = async () => {
    await navigator.clipboard.writeText(content);
    button.classList.add("copied");
    find("#status").textContent = `Copied: ${title.toLowerCase()}`;
    setTimeout(() => button.classList.remove("copied"), 1200);
  };
  return button;
}
