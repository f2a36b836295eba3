// Jacobians and Hessians as pictures: a cell an entry, blue where positive, orange where negative.

export function drawBlocks(place, blocks) {
  place.replaceChildren(...blocks.map(draw));
}

function draw(block) {
  const { rows, columns, title, descriptor, nonzero } = block;
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const share = rows * columns ? Math.round((100 * nonzero) / (rows * columns)) : 0;
  caption.innerHTML = "<b></b><span></span><output></output>";
  caption.children[0].textContent = `${title}: ${rows} × ${columns}`;
  caption.children[1].textContent = `${nonzero} of ${rows * columns} entries nonzero (${share} %). ${descriptor}`;
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", caption.children[0].textContent + ", " + caption.children[1].textContent);
  const cell = Math.max(1, Math.min(18, Math.floor(640 / Math.max(rows, columns))));
  const gap = cell > 4 ? 1 : 0;
  canvas.width = columns * cell + gap;
  canvas.height = rows * cell + gap;
  const context = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  context.fillStyle = colour("--line");
  context.fillRect(0, 0, canvas.width, canvas.height);
  const values = Int8Array.from(atob(block.cells), (letter) => letter.charCodeAt(0));
  values.forEach((value, position) => {
    const [row, column] = [Math.floor(position / columns), position % columns];
    const [x, y, size] = [column * cell + gap, row * cell + gap, cell - gap];
    context.globalAlpha = 1;
    context.fillStyle = colour("--card");
    context.fillRect(x, y, size, size);
    if (!value) return;
    context.globalAlpha = 0.4 + (0.6 * Math.abs(value)) / 127;
    context.fillStyle = colour(value > 0 ? "--positive" : "--negative");
    context.fillRect(x, y, size, size);
  });
  canvas.onmousemove = (event) => {
    const column = Math.floor((event.offsetX / canvas.clientWidth) * columns);
    const row = Math.floor((event.offsetY / canvas.clientHeight) * rows);
    const at = (position, shape) => `[${indices(position, shape).join(", ")}]`;
    caption.children[2].textContent = `J${at(row, block.over)}${at(column, block.under)}`;
  };
  figure.append(caption, canvas);
  return figure;
}

function indices(position, shape) {
  return shape.reduceRight(([rest, ...found], size) => [Math.floor(rest / size), rest % size, ...found], [position]).slice(1);
}
