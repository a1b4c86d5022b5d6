/** Draws points on a canvas, and finds the point at a place. Places are in CSS pixels. */

const COLOURS = 10;
const EDGE = 22;
const REACH = 14;
const PIN = 9;

/** Return a drawing of the response of `/map`. */
export function plot(canvas, data) {
  const paper = document.createElement("canvas"); // all but the ring, so that a move costs only one copy
  const radius = data.x.length > 4000 ? 2 : data.x.length > 800 ? 3 : 4.5;
  let places = [];
  let colours = {};

  /** Draw everything: `pins` maps points to ranks, points of the cluster `picked` are highlighted. */
  function draw({ pins, picked }) {
    const { width, height } = fit(canvas, paper);
    const scale = scaleOf(data, width, height);
    places = data.x.map((x, index) => [scale.x(x), scale.y(data.y[index])]);
    colours = coloursOf(canvas);
    const pen = penOf(paper, width, height);
    for (const [cluster, indexes] of groups(data.cluster)) {
      pen.globalAlpha = picked === null ? 0.8 : picked === cluster ? 0.95 : 0.15;
      pen.fillStyle = cluster < 0 ? colours.none : colours.clusters[cluster % COLOURS];
      pen.beginPath();
      for (const index of indexes) dot(pen, places[index], radius, cluster >= COLOURS);
      pen.fill();
    }
    pen.globalAlpha = 1;
    const taken = [...pins.keys()].map((index) => box(places[index], 2 * PIN + 2, 2 * PIN + 2));
    for (const topic of data.clusters) {
      if (picked === null || picked === topic.cluster) label(pen, topic.label, [scale.x(topic.x), scale.y(topic.y)], taken, colours, width, height);
    }
    for (const [index, rank] of [...pins].reverse()) pin(pen, places[index], rank, colours);
  }

  /** Show the drawing, with a ring around one point. */
  function show(index) {
    const pen = canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(paper, 0, 0);
    if (index === null) return;
    pen.scale(devicePixelRatio, devicePixelRatio);
    for (const [size, style] of [[5, colours.surface], [2.5, colours.text]]) {
      pen.lineWidth = size;
      pen.strokeStyle = style;
      pen.beginPath();
      pen.arc(...places[index], PIN + 3, 0, 2 * Math.PI);
      pen.stroke();
    }
  }

  /** Return the point at a place, or null if none is near. */
  function at(x, y) {
    const index = least(places, ([px, py]) => Math.hypot(px - x, py - y));
    return index !== null && Math.hypot(places[index][0] - x, places[index][1] - y) <= REACH ? index : null;
  }

  /** Return the nearest point in a direction, among those that `among` accepts; the same one if there is none. */
  function neighbour(from, [dx, dy], among) {
    const [x, y] = places[from];
    const cost = ([px, py], index) => {
      const along = (px - x) * dx + (py - y) * dy;
      const across = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
      return index !== from && along > 0 && across <= along && among(index) ? along + across : Infinity;
    };
    return least(places, cost) ?? from;
  }

  return { draw, show, at, neighbour };
}

function fit(canvas, paper) {
  const { width, height } = canvas.getBoundingClientRect();
  for (const one of [canvas, paper]) {
    one.width = Math.max(1, Math.round(width * devicePixelRatio));
    one.height = Math.max(1, Math.round(height * devicePixelRatio));
  }
  return { width, height };
}

function penOf(paper, width, height) {
  const pen = paper.getContext("2d");
  pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** Scale each axis to the full size: closeness on the map has a meaning, lengths along an axis do not. */
function scaleOf(data, width, height) {
  const axis = (values, size) => {
    const low = values.reduce((a, b) => Math.min(a, b), Infinity);
    const range = values.reduce((a, b) => Math.max(a, b), -Infinity) - low;
    return (value) => (range ? EDGE + ((value - low) / range) * (size - 2 * EDGE) : size / 2);
  };
  const up = axis(data.y, height);
  return { x: axis(data.x, width), y: (value) => height - up(value) };
}

function coloursOf(canvas) {
  const style = getComputedStyle(canvas);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    clusters: Array.from({ length: COLOURS }, (_, index) => colour(`cluster-${index}`)),
    none: colour("edge"),
    text: colour("text"),
    surface: colour("surface"),
    pin: colour("text"),
    onPin: colour("surface"),
    font: style.fontFamily,
  };
}

function groups(clusters) {
  const found = new Map();
  clusters.forEach((cluster, index) => found.has(cluster) ? found.get(cluster).push(index) : found.set(cluster, [index]));
  return [...found].sort(([a], [b]) => a - b);
}

function dot(pen, [x, y], radius, square) {
  if (square) {
    pen.rect(x - radius, y - radius, 2 * radius, 2 * radius);
    return;
  }
  pen.moveTo(x + radius, y);
  pen.arc(x, y, radius, 0, 2 * Math.PI);
}

const box = ([x, y], width, height) => ({ left: x - width / 2, right: x + width / 2, top: y - height / 2, bottom: y + height / 2 });
const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

/** Write a label at the nearest free place; none if there is no free place, since the list has it, too. */
function label(pen, text, [x, y], taken, colours, width, height) {
  pen.font = `600 12px ${colours.font}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const most = Math.min(220, width * 0.45);
  let shown = text;
  while (shown.length > 3 && pen.measureText(shown).width > most) shown = `${shown.replace(/…$/, "").slice(0, -1).trimEnd()}…`;
  const wide = pen.measureText(shown).width + 10;
  const middle = Math.min(Math.max(x, wide / 2 + 2), width - wide / 2 - 2);
  for (const shift of [0, -18, 18, -36, 36, -54, 54, -72, 72]) {
    const area = box([middle, y + shift], wide, 18);
    if (area.top < 2 || area.bottom > height - 2 || taken.some((one) => overlap(one, area))) continue;
    taken.push(area);
    pen.globalAlpha = 0.85;
    pen.fillStyle = colours.surface;
    pen.fillRect(area.left, area.top, wide, 18);
    pen.globalAlpha = 1;
    pen.fillStyle = colours.text;
    pen.fillText(shown, middle, y + shift);
    return;
  }
}

function pin(pen, place, rank, colours) {
  pen.beginPath();
  pen.arc(...place, PIN, 0, 2 * Math.PI);
  pen.fillStyle = colours.pin;
  pen.fill();
  pen.lineWidth = 1.5;
  pen.strokeStyle = colours.surface;
  pen.stroke();
  pen.font = `700 ${rank > 99 ? 8 : 10}px ${colours.font}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillStyle = colours.onPin;
  pen.fillText(`${rank}`, place[0], place[1] + 0.5);
}

/** Return the index of the item with the lowest cost, null if all costs are infinite. */
function least(items, cost) {
  let [best, lowest] = [null, Infinity];
  items.forEach((item, index) => {
    const price = cost(item, index);
    if (price < lowest) [best, lowest] = [index, price];
  });
  return best;
}
