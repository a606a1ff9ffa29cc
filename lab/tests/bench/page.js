// Measures a page in a frame: what sticks out, what is too small, what is too faint. Writes a JSON object.
const frame = document.querySelector('iframe'), report = document.querySelector('pre');
const channel = (value) => { value /= 255; return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const contrast = (a, b) => {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
};
const isClear = (color) => color.length < 3 || color[3] === 0;

function measure() {
  const page = frame.contentDocument, view = frame.contentWindow, style = (element) => view.getComputedStyle(element);
  for (const details of page.querySelectorAll('details')) details.open = true;
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(style(at).backgroundColor);
      if (!isClear(color)) return color;
    }
    return [255, 255, 255];
  };
  const isVisible = (element) => element.getClientRects().length > 0;
  const label = (element) => `${element.tagName}.${element.getAttribute('class') || ''} ${element.textContent.trim().slice(0, 40)}`;
  const found = { wide: page.documentElement.scrollWidth - view.innerWidth, isDark: view.matchMedia('(prefers-color-scheme: dark)').matches,
    texts: 0, pictures: 0, faint: [], small: [], outside: [], covered: [] };
  for (const element of page.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!isVisible(element) || !own || ['title', 'desc', 'STYLE'].includes(element.tagName)) continue;
    const svg = element.closest('svg');
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    const size = parseFloat(style(element).fontSize) * scale;
    const ratio = contrast(parse(svg ? style(element).fill : style(element).color), behind(svg ? svg.parentElement : element));
    found.texts += 1;
    if (size < 11.9) found.small.push(`${label(element)}: ${size.toFixed(1)} px`);
    if (ratio < 4.5) found.faint.push(`${label(element)}: ${ratio.toFixed(2)}`);
    if (svg) {
      const [box, room] = [element.getBoundingClientRect(), svg.getBoundingClientRect()];
      if (box.left < room.left - 1 || box.right > room.right + 1 || box.bottom > room.bottom + 1) found.outside.push(label(element));
    }
  }
  const graphics = [...page.querySelectorAll('polyline')].map((line) => [line, style(line).stroke, line.closest('section')])
    .concat([...page.querySelectorAll('.track span, .stages span, li i')].map((bar) => [bar, style(bar).backgroundColor, bar.parentElement]));
  for (const [element, color, parent] of graphics.filter(([element]) => isVisible(element))) {
    const ratio = contrast(parse(color), behind(parent));
    found.pictures += 1;
    if (ratio < 3) found.faint.push(`${label(element)}: ${ratio.toFixed(2)}`);
  }
  for (const svg of [...page.querySelectorAll('svg')].filter(isVisible)) {
    const boxes = [...svg.querySelectorAll('text')].map((text) => [label(text), text.getBoundingClientRect()]);
    for (const [at, [name, a]] of boxes.entries())
      for (const [other, b] of boxes.slice(at + 1))
        if (a.left < b.right && b.left < a.right && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > a.height / 3)
          found.covered.push(`${name} and ${other}`);
  }
  report.textContent = JSON.stringify(found);
}
frame.addEventListener('load', measure);
