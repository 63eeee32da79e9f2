// SPDX-License-Identifier: Apache-2.0
// view.js - draws the JSON of kvtool view: the block, the pool, the numbers
//
// Every text from the dump becomes a text node, never markup.  A mark is a cell of a picture
// that says something: under the pointer, or by the arrow keys, its words stand below the
// picture, and a click copies the command that shows the same.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes, ...children) {
	const svg = ["svg", "g", "rect", "path", "text", "line", "title"].includes(name);
	const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
	for (const [key, value] of Object.entries(attributes || {}))
		if (value !== null && value !== undefined)
			node.setAttribute(key, value);
	node.append(...children.filter(c => c !== null));
	return node;
}

const size = n => {
	const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
	let i = 0;
	for (; n >= 1024 && i < units.length - 1; i++)
		n /= 1024;
	return (i && n < 10 ? n.toFixed(2) : i && n < 100 ? n.toFixed(1) : Math.round(n)) +
		" " + units[i];
};
const grouped = n => n.toLocaleString("en-US");
const short = x => x === null ? "none" : x === 0 ? "0" :
	Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3 ? x.toExponential(2) :
	String(+x.toPrecision(3));
const percent = x => x === null ? "none" : x === 0 ? "0 %" : x < 1e-4 ? "< 0.01 %" :
	+(100 * x).toPrecision(3) + " %";

// ---- pictures ---------------------------------------------------------------

// A picture of marks [x, y, width, height, how, words, command]; 'label' is for readers.
// 'shared' is where its words stand, if several pictures have one place for them.
function picture(width, height, label, marks, extra, shared) {
	const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
				  "aria-label": label, tabindex: 0, class: "pic" });
	const says = shared || make("p", { class: "says", "aria-live": "polite" }, " ");
	let current = -1, copied = false;
	const nodes = marks.map(mark => {
		const node = make("rect", { x: mark.x, y: mark.y, width: mark.w, height: mark.h,
					    class: mark.class, style: mark.style, rx: mark.rx || 0 });
		svg.append(node);
		return node;
	});
	for (const node of extra || [])
		svg.append(node);
	const show = i => {
		if (current >= 0)
			nodes[current].classList.remove("at");
		current = i;
		copied = false;
		if (i >= 0)
			nodes[i].classList.add("at");
		says.textContent = i >= 0 ? marks[i].words : " ";
		if (i >= 0 && marks[i].enter)
			marks[i].enter();
	};
	svg.addEventListener("pointermove", event => {
		const i = nodes.indexOf(event.target);
		if (i >= 0 && (i !== current || copied))
			show(i);
	});
	svg.addEventListener("keydown", event => {
		const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
		const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		if (!step && !down && event.key !== "Enter")
			return;
		event.preventDefault();
		if (event.key === "Enter")
			return copy(current);
		if (current < 0)
			return show(0);
		if (step)
			return show(Math.min(Math.max(current + step, 0), marks.length - 1));
		const from = marks[current];	// the nearest of the next row
		let best = -1, far = Infinity;
		marks.forEach((m, i) => {
			const dy = (m.y - from.y) * down, dx = Math.abs(m.x - from.x);
			if (dy > 0.5 && dy * 1e4 + dx < far)
				[best, far] = [i, dy * 1e4 + dx];
		});
		if (best >= 0)
			show(best);
	});
	const copy = i => {
		if (i >= 0 && marks[i].act)
			return marks[i].act();
		if (i < 0 || !marks[i].command)
			return;
		copied = true;
		const said = () => { says.textContent = "copied: " + marks[i].command; };
		if (navigator.clipboard)
			navigator.clipboard.writeText(marks[i].command).then(said, () => {
				says.textContent = marks[i].command;
			});
		else
			says.textContent = marks[i].command;
	};
	svg.addEventListener("click", () => copy(current));
	return { node: shared ? svg : make("figure", {}, svg, says), nodes, show };
}

// An element as where takes it: group, head and kv only where there are several.
function placeOf(dump, group, layer, block, head, k, slot, dim) {
	return (dump.groups.length > 1 ? `group=${group.id},` : "") + `layer=${layer},block=${block},slot=${slot || 0}` +
		(group.shape.H > 1 ? `,head=${head}` : "") + (group.shape.K === 2 ? `,kv=${"kv"[k]}` : "") + `,dim=${dim || 0}`;
}

const text = (x, y, words, anchor, kind) =>
	make("text", { x, y, "text-anchor": anchor || "start", class: kind }, words);
const shade = depth => `fill:color-mix(in oklab,var(--deep) ${Math.round(depth * 100)}%,var(--pale))`;

// One of several: buttons that say which is on.
function choose(names, on, change) {
	const bar = make("div", { class: "choose", role: "group" });
	names.forEach((name, i) => {
		const button = make("button", { type: "button", "aria-pressed": i === on }, name);
		button.addEventListener("click", () => {
			bar.querySelectorAll("button").forEach((b, j) =>
				b.setAttribute("aria-pressed", i === j));
			change(i);
		});
		bar.append(button);
	});
	return bar;
}

const leaf = path => path.split("/").pop();
const shell = word => /^[\w@%+=:,.\/-]+$/.test(word) ? word : "'" + word.replace(/'/g, "'\\''") + "'";
const quoted = path => shell((path[0] === "-" ? "./" : "") + path);
// A command that opens the same files; none if what was told of them cannot be said again.
const command = (name, ...words) => data.options ? ["kvtool", name, ...data.options, ...words].join(" ") : "";
const where = (dump, place) => command("where", quoted(dump.file), place);

// ---- one block --------------------------------------------------------------

const MOST_UNITS = 640, WRAP = 16, MOST_LAYERS = 3;
// What a unit is of: [address, token, head, component, first element, layer, bytes].
const TOKEN = 1, HEAD = 2, COMPONENT = 3, ELEMENT = 4, LAYER = 5, BYTES = 6;
const COLOURS = [["token", TOKEN], ["head", HEAD], ["keys, values", COMPONENT], ["layer", LAYER]];

// The elements of D that stay together in a view.
function together(view, shape) {
	let run = 1;
	for (const [axis, div, n, stride] of view.factors)
		if (axis === "D" && div === 1 && stride === shape.elem)
			run = n;
	return run;
}

// Units of a block in the order of memory; more than are drawn, but not without end.
function units(layout, shape, layers, block) {
	const out = [];
	for (const view of layout.views) {
		const run = together(view, shape);
		for (let l = 0; l < layers; l++)
			for (let k = 0; k < shape.K; k++) {
				if (view.kv !== null && view.kv !== k)
					continue;
				for (let s = 0; s < shape.S; s++)
					for (let h = 0; h < shape.H; h++)
						for (let d = 0; d < shape.D && out.length < 1 << 17; d += run) {
							const at = { L: l, B: block, S: s, H: h, D: d, K: view.kv === null ? k : 0 };
							let address = view.offset;
							for (const [axis, div, n, stride] of view.factors)
								address += Math.floor(at[axis] / div) % n * stride;
							out.push([address, s, h, k, d, l, run * shape.elem]);
						}
			}
	}
	return out.sort((a, b) => a[0] - b[0]);
}

// How many runs of neighbouring bytes some units are.
function runs(all, some) {
	let count = 0, end = -1;
	for (const unit of all)
		if (some(unit)) {
			count += unit[0] !== end;
			end = unit[0] + unit[BYTES];
		}
	return count;
}

// "LBSHKD", "L B H D/8 S D%8": strides as if there were no padding; null: it is no layout.
function parse(text, shape) {
	const letters = text.trim().toUpperCase().replace(/C/g, "KD");
	const parts = letters.match(/[LBSHKD](?:[\/%][0-9]+)?/g) || [], extent = {}, factors = [];
	if (parts.join("") !== letters.replace(/\s+/g, ""))
		return null;
	for (const part of parts) {
		const axis = part[0], split = +part.slice(2), n = shape[axis];
		if (part.length > 1 && (!split || n % split))
			return null;
		const mine = part.length === 1 ? [1, n] : part[1] === "/" ? [split, n / split] : [1, split];
		extent[axis] = (extent[axis] || 1) * mine[1];
		factors.push([axis, ...mine, 0]);
	}
	for (const axis of "LBSHKD")
		if ((extent[axis] || 1) !== shape[axis])
			return null;
	let stride = shape.elem;
	for (let i = factors.length - 1; i >= 0; stride *= factors[i][2], i--)
		factors[i][3] = stride;
	return { name: text.trim(), axes: "", views: [{ offset: 0, kv: null, factors: factors.filter(f => f[2] > 1) }] };
}

// The named parts that these elements are of: "kv_c_normed, k_pe".
const partsAt = (group, first, n) => group.parts.filter(p => p.start < first + n && first < p.start + p.length)
	.map(p => p.name).join(", ");

// What the bytes of a row are: codes, their scales, parts with a name; in the measure of their bytes.
function row(dump, group) {
	const elem = group.shape.elem, bytes = f => Math.ceil(f.count * f.bits / 8);
	const planes = group.rows > 1 && group.fields.every(f => f.stride === bytes(f));
	const some = group.fields.length ? group.fields.map(f => [f.at, bytes(f) * (planes ? group.rows : 1),
		`${f.name}: ${plural(f.count * (planes ? group.rows : 1), "number")} of ${f.type} (${f.bits} bits)`, f.name]) :
		group.parts.map(p => [p.start * elem, p.length * elem, `${p.name}: ${plural(p.length, "element")} of ${group.type}`, p.name]);
	if (!some.length)
		return "";
	const end = Math.max(...some.map(f => f[0] + f[1])), marks = [], extra = [], scale = 700 / end;
	some.forEach(([at, n, words, name], i) => {
		marks.push({ x: at * scale, y: 0, w: Math.max(n * scale - 2, 2), h: 24, rx: 3, class: `c${i % 10}`,
			words: `bytes ${grouped(at)} to ${grouped(at + n - 1)}: ${words}`,
			command: where(dump, placeOf(dump, group, group.layer, group.block, group.head, 0, 0, at / elem)) });
		if (n * scale > 6 * name.length)
			extra.push(text(at * scale + n * scale / 2, 16, name, "middle", "in"));
	});
	return make("div", {}, make("h3", {}, planes ? "a page" : "a row"), make("p", { class: "dim" },
		some.map(f => `${f[3]} ${size(f[1])}`).join(", ")), picture(701, 26, "what the bytes of a row are", marks, extra).node);
}

const plural = (n, what) => `${grouped(n)} ${what}${n === 1 ? "" : "s"}`;

function drawBlock(dump, group, layout, state, linked) {
	const shape = group.shape;
	const layers = state.layers ? Math.min(shape.L, MOST_LAYERS) : 1;
	const all = units(layout, shape, layers, group.block_index), shown = all.slice(0, MOST_UNITS), by = COLOURS[state.colour][1];
	const w = 34, h = 20, marks = [], extra = [];
	let x = 0, y = 0, end = shown.length ? shown[0][0] : 0;
	const of = (unit, what) => runs(all, u => u[what] === unit[what]);
	shown.forEach((unit, i) => {
		if (unit[0] !== end) {
			y += x ? h + 4 : 2;
			x = 0;
			extra.push(text(0, y + 11, `${size(Math.abs(unit[0] - end))} of other blocks, or padding`, "start", "gap"));
			y += 16;
		} else if (x === WRAP) {
			x = 0;
			y += h + 2;
		}
		end = unit[0] + unit[BYTES];
		const run = unit[BYTES] / shape.elem;
		const what = [`${group.slot} ${unit[TOKEN]}`, shape.H > 1 ? `head ${group.head + unit[HEAD]}` : "", group.components[unit[COMPONENT]],
			layers > 1 ? `layer ${group.layer + unit[LAYER]}` : "", partsAt(group, unit[ELEMENT], run), run < shape.D ? `elements ${unit[ELEMENT]} to ${unit[ELEMENT] + run - 1}` : ""];
		marks.push({ x: x * (w + 2), y, w, h, rx: 3, unit, class: `c${unit[by] % 10}` + (unit[COMPONENT] ? " second" : ""),
			words: `byte ${grouped(unit[0])} of memory: ${what.filter(t => t).join(", ")}; of its token there ${of(unit, TOKEN) === 1 ? "is" : "are"} ` +
				`${plural(of(unit, TOKEN), "run")}, of its head ${plural(of(unit, HEAD), "run")}`,
			command: where(dump, placeOf(dump, group, group.layer + unit[LAYER], group.block, group.head + unit[HEAD],
				unit[COMPONENT], unit[TOKEN], unit[ELEMENT])),
			enter: () => linked.forEach(other => other(unit)) });
		extra.push(text(x * (w + 2) + w / 2, y + 14, unit[TOKEN], "middle", "in"));
		x++;
	});
	const drawn = picture(WRAP * (w + 2), y + h + 4, `a block in layout ${layout.name}`, marks, extra);
	linked.push(unit => drawn.nodes.forEach((node, i) => node.classList.toggle("lit", shown[i][by] === unit[by])));
	return make("div", {}, make("h3", {}, layout.name ? `${layout.name} ` : "", make("span", { class: "dim" }, layout.axes)),
		make("p", { class: "dim" }, `${plural(runs(all, () => true), "run")} of bytes; of a token ` +
			`${plural(runs(all, u => !u[TOKEN]), "run")}, of a head ${plural(runs(all, u => !u[HEAD]), "run")}` +
			(shown.length < all.length ? `; drawn are the first ${grouped(shown.length)} of ${grouped(all.length)} parts` : "")),
		drawn.node);
}

function block(dump, group) {
	const layouts = group.layouts, shape = group.shape;
	if (!layouts.length || !shape.B || !shape.L)
		return null;
	const other = layouts.findIndex((l, i) => i && l.axes !== layouts[0].axes);
	const state = { colour: shape.H > 1 ? 1 : 0, layers: 0, beside: other > 0 ? layouts[other] : null };
	const place = make("div", { class: "two" });
	const draw = () => {
		const linked = [];
		place.replaceChildren(drawBlock(dump, group, layouts[0], state, linked),
			state.beside ? drawBlock(dump, group, state.beside, state, linked) : "");
	};
	const select = make("select", { "aria-label": "another layout" });
	layouts.forEach((layout, i) => i && select.append(make("option", { value: i }, layout.name)));
	select.value = other;
	select.addEventListener("change", () => {
		state.beside = layouts[+select.value];
		draw();
	});
	const axes = make("input", { size: 12, placeholder: "or axes: LBHSC", "aria-label": "axes of a layout" });
	axes.addEventListener("change", () => {
		const parsed = parse(axes.value, shape);
		axes.setAttribute("aria-invalid", !parsed);
		if (parsed) {
			state.beside = parsed;
			draw();
		}
	});
	const turn = key => i => {
		state[key] = i;
		draw();
	};
	draw();
	return make("section", { class: "card" }, make("h2", {}, `Block ${group.block}, byte after byte`),
		make("p", { class: "dim" }, "each box is what one token has of one head, as it lies in memory; the number in it is " +
			"the token; values are paler than keys; point at one to light up what belongs to it"),
		make("div", { class: "bar" }, make("span", { class: "dim" }, "colour"),
			choose(COLOURS.slice(0, shape.L > 1 ? 4 : 3).map(c => c[0]), state.colour, turn("colour")),
			shape.L > 1 ? choose(["one layer", shape.L > MOST_LAYERS ? `${MOST_LAYERS} layers` : "all layers"], 0, turn("layers")) : null,
			make("label", {}, "beside ", layouts.length > 1 ? select : "", " ", axes)), place, row(dump, group));
}

// ---- the pool ---------------------------------------------------------------

const USES = { free: "unused, holds nothing live", null: "the null block", shared: "of several requests, first",
	       passed: "passed by the window of", owned: "of", other: "of another group, of" };
const PER_ROW = 48, MOST_BLOCKS = 2304, BOX = 20;

const nameOf = (dump, request) => request < 0 ? "" : dump.requests[request] ? dump.requests[request].id : `request ${request}`;
const signOf = run => run[2] === "free" ? "r" : run[2] === "null" ? "null" : `c${run[3] % 10}` +
	(run[2] === "shared" ? " shared" : run[2] === "passed" || run[2] === "other" ? " passed" : "");

// What stands in a box beside its colour: a letter, a stroke, a cross.
function signs(dump, run, x, y) {
	const out = [];
	if (run[3] >= 0 && run[2] !== "free" && run[2] !== "null")
		out.push(text(x + BOX / 2, y + 14, nameOf(dump, run[3]).slice(0, 1), "middle", "in"));
	if (run[2] === "shared")
		out.push(make("path", { d: `M${x} ${y + BOX}L${x + BOX} ${y}`, class: "stroke" }));
	if (run[2] === "other")
		out.push(make("rect", { x: x + 3, y: y + BOX - 5, width: BOX - 6, height: 2, class: "gap" }));
	if (run[2] === "null")
		out.push(make("path", { d: `M${x} ${y}L${x + BOX} ${y + BOX}M${x} ${y + BOX}L${x + BOX} ${y}`, class: "cross" }));
	return out;
}

// Ids of tokens, if the page has them.
function idsOf(q, from, to) {
	const ids = q && q.token_ids ? q.token_ids.slice(from - q.first_token, to - q.first_token) : [];
	return ids.length ? ` (${ids.length === 1 ? "id" : "ids"} ${ids.join(" ")})` : "";
}

// Who has a block, and which of its tokens: as kvtool where says it.
function tenants(dump, group, block) {
	const each = group.block_size ? group.shape.S * group.tokens_per_slot : 0, out = [];
	group.pool.tables.forEach((table, r) => table.forEach(([id, count, token]) => {
		if (block < id || block >= id + count)
			return;
		const q = dump.requests[r], first = token + (block - id) * each;
		const from = q ? Math.max(first, q.first_token) : first, to = q ? Math.min(first + each, q.first_token + q.tokens) : first + each;
		if (!each)
			out.push(`a state of ${nameOf(dump, r)}`);
		else if (from < to)
			out.push(`${to - from === 1 ? `token ${from}` : `tokens ${from} to ${to - 1}`} of ${nameOf(dump, r)}` + idsOf(q, from, to));
	}));
	return out;
}

// Where its first byte is in its file.
function offsetOf(group, i) {
	const at = group.pool.offsets[i];
	return at && at.length ? `; begins at byte ${grouped(at[1])} of the file${at[0] ? " " + at[0] : ""}` : "";
}

// Runs of the blocks [first, end), cut where they cross.
function part(runs, first, end) {
	const out = [];
	let at = 0;
	for (const [id, count, use, request, index] of runs) {
		const from = Math.max(first - at, 0), to = Math.min(end - at, count);
		if (from < to)
			out.push([id + from, to - from, use, request, index + from]);
		at += count;
	}
	return out;
}

// Boxes of 'step' blocks; a box of several opens what is in it.
function boxes(dump, group, runs, open, tell) {
	const total = runs.reduce((n, r) => n + r[1], 0), step = Math.ceil(total / MOST_BLOCKS) || 1, marks = [], extra = [];
	const each = step === 1 ? runs.flatMap(r => Array.from({ length: r[1] }, (_, b) => [[r[0] + b, 1, r[2], r[3], r[4] + b]])) :
		Array.from({ length: Math.ceil(total / step) }, (_, i) => part(runs, i * step, (i + 1) * step));
	each.forEach((some, i) => {
		const x = i % PER_ROW * (BOX + 2), y = Math.floor(i / PER_ROW) * (BOX + 2), blocks = some.reduce((n, r) => n + r[1], 0);
		const most = some.reduce((a, b) => b[1] > a[1] ? b : a), words = some.slice(0, 6).map(r =>
			`${r[1] === 1 ? `block ${r[0]}` : `blocks ${r[0]} to ${r[0] + r[1] - 1}`}: ${group.pool.known ?
				`${USES[r[2]]} ${nameOf(dump, r[3])}`.trim() : "whose is not known"}`);
		marks.push({ x, y, w: BOX, h: BOX, rx: 3, class: group.pool.known ? signOf(most) : "r", words: words.join("; ") +
			(some.length > 6 ? `; and ${some.length - 6} more runs` : "") + (blocks > 1 ? " (a click opens them)" :
			offsetOf(group, some[0][4])), act: () => blocks > 1 ? open(some) : tell(some[0]) });
		if (group.pool.known && blocks === 1)
			extra.push(...signs(dump, most, x, y));
	});
	return picture(PER_ROW * (BOX + 2), Math.max(Math.ceil(marks.length / PER_ROW), 1) * (BOX + 2), "the pool", marks, extra).node;
}

// A pool of more runs than a page has room for: how much of each range is in use.
function ranges(p) {
	const names = ["unused", "null", "of one request", "of several", "passed by a window", "of another group"];
	const marks = p.ranges.map(([id, blocks, ...counts], i) => {
		const used = counts.slice(2).reduce((a, b) => a + b, 0);
		return { x: i % PER_ROW * (BOX + 2), y: Math.floor(i / PER_ROW) * (BOX + 2), w: BOX, h: BOX, class: "heat",
			style: shade(used / blocks), words: `${grouped(blocks)} blocks from ${id} on: ` +
				counts.map((n, u) => n ? `${grouped(n)} ${names[u]}` : "").filter(t => t).join(", ") };
	});
	return make("div", {}, make("p", { class: "dim" }, "more runs than can be drawn: the darker, the more blocks of a range are in use"),
		picture(PER_ROW * (BOX + 2), Math.ceil(marks.length / PER_ROW) * (BOX + 2), "the pool by ranges", marks).node);
}

function pool(dump, group) {
	const p = group.pool, uses = new Set(p.runs.map(r => r[2])), inside = make("div", {}), told = make("p", { "aria-live": "polite" }), legend = make("p", { class: "dim" });
	dump.requests.slice(0, 12).forEach((q, i) => legend.append(
		make("i", { class: `k b${i % 10}` }), make("span", {}, `${q.id}, ${plural(q.tokens, "token")}`)));
	if (dump.nrequests > 12)
		legend.append(`and ${grouped(dump.nrequests - 12)} more requests `);
	if (p.known)
		legend.append(make("i", { class: "k br" }), make("span", {}, "unused"));
	const say = make("p", { class: "dim" }, p.known ? `${grouped(p.used)} of ${grouped(group.shape.B)} blocks in use, ` +
		`${grouped(p.shared)} of them by several requests (a stroke); a cross is the null block; ` +
		(uses.has("passed") ? "pale: passed by a window; " : "") + (uses.has("other") ? "with a bar: another group's; " : "") +
		"the letter is that of the request; a click tells its tokens" :
		"the dump does not say which request has which block");
	if (!p.runs.length && !p.ranges && group.shape.B)
		say.append("; too many runs to be drawn");
	let at = 0;
	p.runs.forEach(r => {
		r[4] = at;
		at += r[1];
	});
	const tell = r => {
		const who = tenants(dump, group, r[0]);
		told.replaceChildren(make("b", {}, `Block ${r[0]}: `), who.length ? who.slice(0, 20).join("; ") +
			(who.length > 20 ? `; and ${who.length - 20} more` : "") : p.known && p.tables_whole ? "no request has it in this group" :
			"whose tokens it has is not said here", offsetOf(group, r[4]) + ". ",
			make("code", {}, where(dump, placeOf(dump, group, group.layer, r[0], group.head, 0))));
	};
	const open = some => inside.replaceChildren(make("h3", {}, `blocks ${some[0][0]} and on`), boxes(dump, group, some, open, tell));
	return make("section", { class: "card" }, make("h2", {}, "The pool"), say, legend, p.ranges ? ranges(p) :
		boxes(dump, group, p.runs, open, tell), inside, told);
}

// What stands under the first and the last column, on two lines where there is no room; the size of it all.
function captions(texts, left, width, y, first, last) {
	const room = 6 * (first.length + last.length) + 12 <= width, under = last && !room ? y + 13 : y;
	texts.push(text(left, y, first));
	if (last)
		texts.push(room ? text(left + width, under, last, "end") : text(left, under, "to " + last));
	return [left + Math.max(width, 6.5 * Math.max(first.length, last.length + 3)) + 1, under + 4];
}

// ---- numbers ----------------------------------------------------------------

const MEASURES = [["root mean square", "rms", short], ["largest", "largest", short],
		  ["zeros", "zero", percent], ["NaN and infinite", "nonfinite", n => n === null ? "none" : grouped(n)], ["mean", "mean", short],
		  ["step to the next token", "step", short]];

// Least and largest of a list that a scale may have.
const span = (list, log) => {
	const some = list.filter(x => x !== null && (!log || x > 0));
	return some.length ? [Math.min(...some), Math.max(...some)] : [0, 0];
};

// One legend for all maps beside each other: what the lightest and the darkest shade are.
function legend(scale, say) {
	const steps = Array.from({ length: 12 }, (_, i) => make("rect", { x: i * 14, y: 0, width: 14, height: 12, style: shade(i / 11) }));
	return make("p", { class: "legend dim" }, say(scale[0]) + " ", make("svg", { viewBox: "0 0 168 12", width: 168, height: 12,
		role: "img", "aria-label": "from the least to the largest" }, ...steps), " " + say(scale[1]));
}

function map(dump, group, numbers, key, columns, measure, k, log, scale) {
	const [, name, say] = MEASURES[measure], rows = numbers.layers;
	const list = numbers[key][name], each = rows.length * columns.length;
	const [low, high] = scale || span(list, log);
	const depth = x => x === null || (log && x <= 0) ? 0 : high === low ? (x ? 1 : 0) :
		log ? (Math.log(x) - Math.log(low)) / (Math.log(high) - Math.log(low)) : (x - low) / (high - low);
	const width = Math.max(Math.min(56, 460 / columns.length), 3), height = Math.max(Math.min(24, 440 / rows.length), 3);
	const left = 60, top = 8, marks = [], inside = [], tokens = numbers.position_tokens;
	const name_of = c => tokens.length ? `token ${tokens[c][1]} of ${nameOf(dump, tokens[c][0])} (block ${columns[c]})` :
		`block ${columns[c]}`;
	rows.forEach((layer, r) => columns.forEach((column, c) => {
		const x = list[k * each + r * columns.length + c], deep = depth(x);
		const what = key === "by_head" ? `head ${column}` : name_of(c);
		marks.push({ x: left + c * width, y: top + r * height, w: width - (width > 6 ? 1 : 0), h: height - (height > 6 ? 1 : 0),
			style: x === null ? null : shade(deep), class: x === null ? "none" : "heat",
			words: `layer ${layer}, ${what}, ${group.components[k]}: ${MEASURES[measure][0]} ${say(x)}`,
			command: where(dump, key === "by_head" ? placeOf(dump, group, layer, group.block, column, k) :
				placeOf(dump, group, layer, column, group.head, k)) });
		if (width >= 6.3 * say(x).length + 4 && height >= 16)
			inside.push(text(left + c * width + width / 2 - 0.5, top + r * height + height / 2 + 4, say(x), "middle",
				deep > 0.5 ? "on dark" : "on"));
	}));
	const every = Math.ceil(14 / height);
	rows.forEach((layer, r) => r % every || inside.push(text(left - 6, top + r * height + height / 2 + 4,
		r ? layer : `layer ${layer}`, "end")));
	const last = columns.length - 1;
	const [across, bottom] = captions(inside, left, columns.length * width, top + rows.length * height + 14,
		key === "by_head" ? `head ${columns[0]}` : name_of(0), last ? key === "by_head" ? `head ${columns[last]}` : name_of(last) : "");
	return picture(across, bottom, `${MEASURES[measure][0]} of ${group.components[k]}`,
		marks, inside).node;
}

// Largest of a type, and the least that is not rounded to zero, as powers of two.
const TYPES = [["fp16", -25, 16], ["e4m3", -10, 9], ["e5m2", -17, 16]];

function exponents(group, numbers) {
	const says = make("p", { class: "says", "aria-live": "polite" }, " ");
	const { low, bins, counts } = numbers.exponents, rows = numbers.layers, list = make("div", { class: "small" });
	group.components.forEach((name, k) => rows.forEach((layer, r) => {
		const mine = counts.slice((k * rows.length + r) * bins, (k * rows.length + r + 1) * bins);
		const all = mine.reduce((a, b) => a + b, 0), most = Math.max(...mine, 1), w = 4, h = 48;
		if (rows.length > 24 && r % Math.ceil(rows.length / 24))
			return;
		const marks = mine.map((n, i) => ({ x: i * w, y: h - n / most * h, w: w - 1, h: n / most * h, class: "p",
			words: `layer ${layer}, ${name}: ${percent(all ? n / all : null)} of the numbers have magnitudes ` +
				`from 2^${low + i} to 2^${low + i + 1}` }));
		const lines = TYPES.flatMap(([type, least, most_of]) => [least, most_of].map(e =>
			make("line", { x1: (e - low) * w, x2: (e - low) * w, y1: 0, y2: h, class: `edge ${type}` })));
		const out = ([, least, most_of]) => mine.reduce((a, n, i) => a + (low + i < least || low + i >= most_of ? n : 0), 0);
		lines.push(text(0, h + 13, `layer ${layer}, ${name}`, "start", "on"));
		if (all)
			TYPES.forEach((t, i) => lines.push(text(0, h + 26 + 12 * i, `${t[0]}: ${percent(out(t) / all)} outside`)));
		else
			lines.push(text(0, h + 26, "no finite number but zero"));
		list.append(picture(bins * w, h + 54, `magnitudes of ${name} of layer ${layer}`, marks, lines, says).node);
	}));
	return make("div", { class: "figures" }, make("h3", {}, "magnitudes, as powers of two"), make("p", { class: "dim" },
		"between the dashed lines e4m3, between the dotted ones e5m2, between the long dashes fp16 tell numbers apart; " +
		"outside: what share of the numbers, without a scale, would be rounded to zero or be too large" +
		(rows.length > 24 ? `; of ${rows.length} rows of layers some are drawn` : "")), list, says);
}

function numbers(dump, group) {
	const n = group.numbers;
	if (!n)
		return group.why ? make("section", { class: "card" }, make("h2", {}, "The numbers"),
			make("p", {}, group.why)) : null;
	const state = { measure: 0, log: false }, place = make("div", {});
	const draw = () => {
		const [, key, say] = MEASURES[state.measure];
		const scale = span([...(n.heads.length > 1 ? n.by_head[key] : []), ...n.by_position[key]], state.log);
		place.replaceChildren(legend(scale, say), ...group.components.flatMap((name, k) => [make("h3", {}, name),
			make("div", { class: "two" }, n.heads.length > 1 ? map(dump, group, n, "by_head", n.heads, state.measure, k, state.log, scale) : "",
				n.positions.length ? map(dump, group, n, "by_position", n.positions, state.measure, k, state.log, scale) : "")]));
	};
	draw();
	return make("section", { class: "card" }, make("h2", {}, "The numbers"), make("p", { class: "dim" },
		"one scale for all maps: the darker, the larger" + (n.read_bytes < n.bytes ?
		`; a sample: ${size(n.read_bytes)} of ${size(n.bytes)} were read` : "")),
		make("div", { class: "bar" }, choose(MEASURES.map(m => m[0]), 0, i => {
			state.measure = i;
			draw();
		}), choose(["linear", "log"], 0, i => {
			state.log = i === 1;
			draw();
		})), place, exponents(group, n));
}

// ---- what is stored -----------------------------------------------------------

// Of each layer a bar: what it takes in the file, of what it is.
function stored(dump, group) {
	const s = group.stored;
	if (!s || !s.layers.length)
		return null;
	const share = s.layers.map((_, r) => s.stored_bytes[r] / s.plain_bytes[r]), most = Math.max(...share, 1);
	const height = s.layers.length > 40 ? 8 : 18, left = 60, width = 520, marks = [], extra = [];
	const sum = list => list.reduce((a, b) => a + b, 0), all = sum(s.plain_bytes) / sum(s.stored_bytes);
	const every = Math.ceil(14 / height), seen = sum(s.seen), tiles = sum(s.tiles);
	s.layers.forEach((layer, r) => {
		const bytes = n => size(n / s.seen[r] * s.tiles[r]);
		extra.push(make("rect", { x: left, y: r * height, width: width / most, height: height - 2, class: "r" }));
		marks.push({ x: left, y: r * height, w: Math.max(share[r] / most * width, 1), h: height - 2, class: "p",
			words: `layer ${layer}: ${s.seen[r] < s.tiles[r] ? "about " : ""}${bytes(s.stored_bytes[r])} in the file of ` +
				`${bytes(s.plain_bytes[r])}, ratio ${(1 / share[r]).toFixed(2)}; ${plural(s.tiles[r], "tile")}, ` +
				(s.least[r] === s.most[r] ? `each of ${size(s.most[r])}` : `of ${size(s.least[r])} to ${size(s.most[r])}`) });
		if (r % every === 0)
			extra.push(text(left - 6, r * height + Math.min(height, 14) - 1, r ? layer : `layer ${layer}`, "end"));
		if (height > 8)
			extra.push(text(left + width + 8, r * height + 13, (1 / share[r]).toFixed(2), "start", "on"));
	});
	const tile = [..."LBSHKD"].filter(a => s.tile[a] > 1).map(a => `${a} ${s.tile[a]}`).join(" x ") || "one element";
	const how = ["shuffle", "zstd", "fletcher32"].filter(f => s[f]).join(", ") || "as it is";
	const drawn = picture(left + width + 50, s.layers.length * height + 2, "bytes in the file by layer", marks, []);
	// grounds and words stand behind the bars, which answer the pointer
	drawn.node.querySelector("svg").prepend(...extra);
	return make("section", { class: "card" }, make("h2", {}, "What is stored"), make("p", { class: "dim" },
		`tiles of ${tile} elements, ${size(s.tile_bytes)}: ${how}; ratio ${all.toFixed(2)} over all layers; the number beside a bar is ` +
		"that of its layer: the longer the bar, the less could be compressed" +
		(seen < tiles ? `; a sample: ${grouped(seen)} of ${plural(tiles, "tile")} were looked up` : "")), drawn.node);
}

// ---- what fsck finds ----------------------------------------------------------

const SEVERITIES = ["error", "warning", "note"];

function findings(dump) {
	const f = dump.fsck, of = { error: f.errors, warning: f.warnings, note: f.notes };
	if (!f.findings.length)
		return null;
	const total = SEVERITIES.reduce((n, s) => n + of[s], 0), list = make("ul", { class: "found" });
	const sorted = [...f.findings].sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
	for (const one of sorted)
		list.append(make("li", {}, make("b", {}, one.severity), ` ${one.name}: ${one.at ? one.at + ": " : ""}${one.problem}`));
	if (total > sorted.length)
		list.append(make("li", {}, `and ${grouped(total - sorted.length)} more`));
	return make("section", { class: "card" }, make("h2", {}, "What fsck finds"), list, make("p", { class: "dim" },
		f.looked_at && f.looked_at.data ? "of all data" : "of what describes the dump, not of its data; this does both: ",
		f.looked_at && f.looked_at.data ? "" : make("code", {}, command("fsck", quoted(dump.file)))));
}

// ---- several dumps -----------------------------------------------------------

// All of them beside each other, in one scale: ranks, or whatever they are.
function multiples(dumps) {
	const state = { measure: 0, log: false };
	const ids = [...new Set(dumps.flatMap(d => d.groups.filter(g => g.numbers && g.numbers.layers.length).map(g => g.id)))];
	const place = make("div", {});
	const draw = () => place.replaceChildren(...ids.flatMap(id => {
		const some = dumps.map(d => [d, d.groups.find(g => g.id === id)]).filter(([, g]) => g && g.numbers);
		const scale = span(some.flatMap(([, g]) => g.numbers.by_head[MEASURES[state.measure][1]]), state.log);
		return [legend(scale, MEASURES[state.measure][2])].concat(some[0][1].components.flatMap((name, k) => [make("h3", {}, ids.length > 1 ? `${id}: ${name}` : name),
			make("div", { class: "small" }, ...some.map(([d, g]) => make("div", {}, make("p", { class: "dim" }, leaf(d.file)),
				map(d, g, g.numbers, "by_head", g.numbers.heads, state.measure, k, state.log, scale))))]));
	}));
	draw();
	return make("section", { class: "card" }, make("h2", {}, "Beside each other"), make("p", { class: "dim" },
		"by layer and head, one scale for all: the darker, the larger"), make("div", { class: "bar" },
		choose(MEASURES.map(m => m[0]), 0, i => {
			state.measure = i;
			draw();
		}), choose(["linear", "log"], 0, i => {
			state.log = i === 1;
			draw();
		})), place);
}

// ---- two dumps --------------------------------------------------------------

const DIFFERENCES = [["share that differs", c => c[3] / c[2], percent], ["largest difference", c => c[4], short],
		     ["relative error (L2)", c => c[5], short], ["1 - cosine", c => c[6] === null ? null : 1 - c[6], short]];

const placeName = (p, end) => p.request === null ? `block ${end ? p.end_block : p.block}` :
	`token ${end ? p.end_token : p.token} of ${end ? p.end_request : p.request}`;

// The first element of a cell that differs: where it is, both numbers, and their bytes.
const inPair = ([block, slot, head, kv, dim]) => `block ${block} slot ${slot}` + (head >= 0 ? `, head ${head}` : "") +
	(kv >= 0 ? `, ${["key", "value"][kv]}` : "") + `, element ${dim}`;
const elementOf = cell => `${inPair(cell.slice(7))}: ${short(cell[12])} and ${short(cell[14])}` +
	(cell[13] >= 0 && cell[15] >= 0 ? `, at bytes ${grouped(cell[13])} and ${grouped(cell[15])}` : "");

// The first difference: both numbers, and where they are.
const firstOf = f => `layer ${f.layer}, ` + (f.request !== null ? `token ${f.token} of ${f.request}, ` : "") +
	`block ${f.block} slot ${f.slot}` + (f.head >= 0 ? `, head ${f.head}` : "") + (f.kv >= 0 ? `, ${["key", "value"][f.kv]}` : "") +
	`, element ${f.dim}: ${short(f.a)} and ${short(f.b)}` + (f.offset_a >= 0 ? `, at bytes ${f.offset_a} and ${f.offset_b}` : "");

function diffMap(group, key, names, measure, dump) {
	const [title, of, say] = DIFFERENCES[measure], rows = group.layers, left = 60, top = 8;
	const width = Math.max(Math.min(56, 460 / names.length), 3), height = Math.max(Math.min(24, 440 / rows.length), 3);
	const cells = new Map(group[key].map(c => [c[0] * names.length + c[1], c]));
	const values = group[key].map(of).filter(x => x !== null && x > 0);
	// a shade is at least a hundredth of the deepest: what is nearly equal looks so
	const high = Math.log(Math.max(...values)), low = Math.min(Math.log(Math.min(...values)), high - Math.log(100));
	const depth = x => x > 0 ? (high > low ? 0.25 + 0.75 * (Math.log(x) - low) / (high - low) : 1) : 0;
	const marks = [], extra = [];
	let first = null;	// the cell of the first element that differs
	const of_first = group.first || {};
	rows.forEach((layer, r) => names.forEach((name, c) => {
		const cell = cells.get(r * names.length + c), x = cell ? of(cell) : 0;
		const mark = { x: left + c * width, y: top + r * height, w: width - (width > 6 ? 1 : 0), h: height - (height > 6 ? 1 : 0),
			class: "heat", style: cell ? shade(depth(x)) : shade(0), words: `layer ${layer}, ${name}: ` + (cell ?
			`${grouped(cell[3])} of ${grouped(cell[2])} differ, at most by ${short(cell[4])}, relative error ${short(cell[5])}; ` +
			`first ${elementOf(cell)}` : "equal") };
		marks.push(mark);
		const of_a = dump.groups.find(g => g.id === group.id || group.id.startsWith(g.id + " and ")), p = key === "by_head" ? null : group.positions[c];
		if (of_a && cell)
			mark.command = where(dump, placeOf(dump, of_a, layer, cell[7], cell[9], cell[10], cell[8], cell[11]));
		else if (of_a)
			mark.command = where(dump, placeOf(dump, of_a, layer, p ? p.block : group.first ? group.first.block : of_a.block,
				p ? of_a.head : group.heads[c], 0));
		if (!first && cell && layer === of_first.layer && ["block", "slot", "head", "kv", "dim"].every((name, i) => cell[7 + i] === of_first[name]))
			first = mark;
		if (cell && width >= 36 && height >= 16)
			extra.push(text(mark.x + width / 2, mark.y + height / 2 + 4, say(x), "middle", depth(x) > 0.5 ? "on dark" : "on"));
	}));
	if (first)
		extra.push(make("rect", { x: first.x - 1, y: first.y - 1, width: first.w + 2, height: first.h + 2, class: "first" }));
	const every = Math.ceil(14 / height);
	rows.forEach((layer, r) => r % every || extra.push(text(left - 6, top + r * height + height / 2 + 4, r ? layer : `layer ${layer}`, "end")));
	const [across, bottom] = captions(extra, left, names.length * width, top + rows.length * height + 14, names[0],
		names.length > 1 ? names[names.length - 1] : "");
	return picture(across + 1, bottom, `${title} by layer and ${key === "by_head" ? "head" : "place"}`,
		marks, extra).node;
}

function difference(diff, dump) {
	const out = [];
	for (const group of diff.groups) {
		if (group.result === "equal" || !group.layers)
			continue;
		const place = make("div", { class: "two" });
		const draw = measure => place.replaceChildren(
			group.heads.length > 1 ? diffMap(group, "by_head", group.heads.map(h => `head ${h}`), measure, dump) : "",
			diffMap(group, "by_position", group.positions.map((p, i) => placeName(p, i && i === group.positions.length - 1)), measure, dump));
		draw(0);
		const f = group.first;
		out.push(make("section", { class: "card" }, make("h2", {}, diff.groups.length > 1 ? `Where ${group.id} differs` :
			"Where they differ"), make("p", { class: "dim" }, `${grouped(group.different)} of ${grouped(group.elements)} ` +
			`elements, at most by ${short(group.max_abs)}; relative error ${short(group.rel_l2)}, cosine ` +
			`${group.cosine === null ? "not defined" : group.cosine.toFixed(6)}; the darker, the more (log); ` +
			"the first cell is framed"), f ? make("p", {}, "first: " + firstOf(f)) : null, make("div", { class: "bar" },
			choose(DIFFERENCES.map(d => d[0]), 0, draw)), place));
	}
	return out;
}

// The one thing to know, in a sentence.
function verdict(diff, names) {
	const [a, b] = names.map(quoted), box = make("div", { class: "verdict " + diff.result });
	const bad = diff.groups.filter(g => g.result === "differs");
	const said = bad.map(g => g.diagnosis).find(f => f);
	const sentence = diff.result === "equal" ? "Both hold the same." : diff.result === "within" ?
		"Both hold the same within the tolerance." : said ? said + "." : "They differ, and no known fault explains it.";
	box.append(make("b", {}, sentence), " ");
	bad.forEach(g => box.append(g.first ? `First in layer ${g.first.layer}` + (g.first.request !== null ?
		`, token ${g.first.token} of ${g.first.request}. ` : `, block ${g.first.block}. `) : ""));
	diff.paired.forEach(p => box.append(`Request ${p.a} of A is ${p.b} of B, by ${p.by}. `));
	diff.only_one_side.forEach(t => box.append(t + ". "));
	box.append(make("code", {}, command("diff", ...(diff.exact ? ["--exact"] : []),
		...(diff.tolerance ? ["--tolerance=" + shell(diff.tolerance)] : []), a, b)));
	return box;
}

// ---- the page ---------------------------------------------------------------

function figures(dump) {
	const list = make("ul", { class: "facts" }), first = dump.groups[0];
	const fact = (value, label) => list.append(make("li", {}, make("b", {}, value), label));
	fact(size(dump.data_bytes), "of data");
	if (dump.requests.length)
		fact(grouped(dump.requests.reduce((n, q) => n + q.tokens, 0)), "tokens");
	if (dump.groups.some(g => g.token_bytes))
		fact(size(dump.groups.reduce((n, g) => n + g.token_bytes, 0)), "a token");
	if (first.pool.known)
		fact(`${grouped(first.pool.used)} of ${grouped(first.shape.B)}`, "blocks in use");
	const odd = dump.groups.filter(g => g.numbers).reduce((n, g) =>
		n + g.numbers.by_head.nonfinite.reduce((a, b) => a + (b || 0), 0), 0);
	if (dump.groups.some(g => g.numbers))
		fact(odd ? grouped(odd) : "none", "NaN or infinite");
	const worst = SEVERITIES.find(s => dump.fsck[s + "s"]);
	fact(worst ? plural(dump.fsck[worst + "s"], worst) : "none", "found by fsck");
	return list;
}

const main = document.querySelector("main");
for (const group of data.dumps.flatMap(dump => dump.groups)) {
	group.slot = group.block_size ? "token" : "slot";
}
if (data.diff)
	main.append(make("h1", {}, leaf(data.dumps[0].file), make("span", { class: "dim" }, " beside "), leaf(data.dumps[1].file)),
		verdict(data.diff, data.dumps.map(d => d.file)), ...difference(data.diff, data.dumps[0]));
else if (data.dumps.length > 1)
	main.append(make("h1", {}, `${data.dumps.length} dumps`), multiples(data.dumps));
for (const dump of data.dumps) {
	const whole = data.dumps.length > 1 ? make("details", { class: "dump" }, make("summary", {}, make("b", {}, leaf(dump.file)),
		" ", make("span", { class: "dim" }, dump.sentence))) : main;
	if (whole === main)
		main.append(make("h1", {}, leaf(dump.file)), make("p", { class: "lead" }, dump.sentence));
	else
		main.append(whole);
	whole.append(figures(dump), findings(dump) || "");
	for (const group of dump.groups) {
		if (dump.groups.length > 1)
			whole.append(make("h2", { class: "group" }, `${group.id}: ${group.kind}, ${group.type}, ${group.layout}`));
		for (const part of [block(dump, group), pool(dump, group), numbers(dump, group), stored(dump, group)])
			if (part)
				whole.append(part);
	}
}
})();
