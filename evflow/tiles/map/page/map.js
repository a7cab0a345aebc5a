// The live map: frames of the gateway (see scene.py) become dots, areas and flashes on one canvas over Leaflet.
"use strict";
const HEAD = 12, BOX = 1, POLYGON = 2, GONE = 3, FLASH = 900, SILENT = 4000, TWEEN = 500;
const byId = id => document.getElementById(id), text = (id, value) => { byId(id).textContent = value; };

// --- the ground

const start = location.hash.slice(1).split(",").map(Number);
const isPlace = start.length === 3 && start.every(Number.isFinite);
const map = L.map("map", {
  preferCanvas: true, zoomAnimation: false, fadeAnimation: false, boxZoom: false, minZoom: 2, maxZoom: 18, zoomSnap: .5,
  maxBounds: [[-85, -180], [85, 180]], maxBoundsViscosity: 1, zoomControl: false,
}).setView(isPlace ? start.slice(0, 2) : [25, 0], isPlace ? start[2] : 2);
L.control.zoom({ position: "bottomright" }).addTo(map);
L.control.scale({ position: "bottomleft", imperial: false }).addTo(map);
map.attributionControl.setPosition("bottomleft").setPrefix("Leaflet").addAttribution("Natural Earth");

const ground = { interactive: false, smoothFactor: .5 };
fetch("land.json").then(answer => answer.json()).then(({ land, borders }) => {
  L.polygon(land, { ...ground, color: "#31505f", weight: 1, fillColor: "#172a35", fillOpacity: 1 }).addTo(map);
  L.polyline(borders, { ...ground, color: "#2d4a59", weight: 1, dashArray: "3 4" }).addTo(map);
});

// --- what the gateway tells

const things = new Map(), areas = new Map();
let matches = [], watched = null, stamp = -1, socket = null, heard = 0, wait = 500, isDirty = true;

function take(buffer) {
  const f = new Float64Array(buffer), b = new BigInt64Array(buffer), now = performance.now();
  const [nThings, nAreas, nPairs, matched, lost, newStamp, answers, ...box] = f.subarray(0, HEAD - 1);
  const corners = HEAD + 3 * nThings + 6 * nAreas + 2 * nPairs;
  if (newStamp !== stamp) {
    // What was not there since the stamp before is gone.
    for (const [id, thing] of things) if (thing.stamp < stamp) things.delete(id);
    stamp = newStamp;
  }
  let at = HEAD;
  for (let i = 0; i < nThings; i++, at += 3) move(b[at], f[at + 1], f[at + 2], now);
  for (let i = 0; i < nAreas; i++, at += 6) {
    const kind = f[at + 1], zone = f.slice(at + 2, at + 6);
    if (kind === GONE) { areas.delete(b[at]); continue; }
    const outline = kind === POLYGON ? f.slice(corners + 2 * zone[0], corners + 2 * zone[1]) : null;
    areas.set(b[at], { kind, zone, outline, flash: areas.get(b[at])?.flash ?? -1e9 });
  }
  for (let i = 0; i < nPairs; i++, at += 2) {
    const thing = things.get(b[at]), area = areas.get(b[at + 1]);
    if (thing) thing.flash = now;
    if (area) area.flash = now;
  }
  if (matched) matches.push([now, matched]);
  watched = box[2] > box[0] ? box : null;
  if (lost) note(`${lost.toLocaleString("en")} positions were left out: too many things at once. Zoom in.`);
  state(answers ? "live" : "lost", answers ? "live" : "the system does not answer");
  isDirty = true;
}

function move(id, lat, lng, now) {
  const old = things.get(id);
  if (!old) { things.set(id, { lat, lng, fromLat: lat, fromLng: lng, since: now, span: 1, stamp, flash: -1e9 }); return; }
  const [shownLat, shownLng] = shown(old, now);
  // A thing glides to where it is now, unless it came around the world or was not seen for long.
  const glides = Math.abs(lng - shownLng) < 90 && now - old.since < 4 * TWEEN;
  old.fromLat = glides ? shownLat : lat; old.fromLng = glides ? shownLng : lng;
  old.span = Math.min(TWEEN, Math.max(1, now - old.since));
  old.lat = lat; old.lng = lng; old.since = now; old.stamp = stamp;
}

function shown(thing, now) {
  const part = Math.min(1, (now - thing.since) / thing.span);
  return [thing.fromLat + (thing.lat - thing.fromLat) * part, thing.fromLng + (thing.lng - thing.fromLng) * part];
}

// --- the connection

function state(kind, words) { byId("state").className = kind; text("state", words); }

function connect() {
  const mine = socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live`);
  mine.binaryType = "arraybuffer";
  heard = performance.now();
  mine.onopen = () => { things.clear(); areas.clear(); matches = []; stamp = -1; wait = 500; look(); };
  mine.onmessage = ({ data }) => {
    heard = performance.now();
    if (typeof data === "string") note(data); else take(data);
  };
  mine.onclose = ({ reason }) => {
    if (mine !== socket) return;
    state("lost", "connection lost, trying again");
    if (reason) note(reason);
    setTimeout(connect, wait);
    wait = Math.min(2 * wait, 5000);
  };
}
setInterval(() => {
  if (socket?.readyState === WebSocket.OPEN && performance.now() - heard > SILENT) {
    // A connection that is dead takes long to close.
    const dead = socket;
    socket = null; dead.close(); state("lost", "connection lost, trying again"); connect();
  }
}, 1000);

let noteEnds = 0;
function note(words) { text("note", words); clearTimeout(noteEnds); noteEnds = setTimeout(() => text("note", ""), 8000); }
function send(message) { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message)); }

function view() {
  const b = map.getBounds(), most = (value, end) => Math.max(-end, Math.min(end, value));
  return [most(b.getSouth(), 85), most(b.getWest(), 180), most(b.getNorth(), 85), most(b.getEast(), 180)];
}
function look() {
  send({ type: "look", box: view() });
  const { lat, lng } = map.getCenter();
  history.replaceState(null, "", `#${lat.toFixed(4)},${lng.toFixed(4)},${map.getZoom()}`);
}
let looks = 0;
map.on("moveend", () => { clearTimeout(looks); looks = setTimeout(look, 150); });
map.on("contextmenu", ({ latlng, containerPoint }) => {
  const at = projection(), found = [...areas].filter(([, area]) => covers(area, containerPoint, at));
  if (found.length) send({ type: "drop", id: String(found.at(-1)[0]) });
  else {
    const radius = Math.min(1e7, latlng.distanceTo(map.containerPointToLatLng(containerPoint.add([70, 0]))));
    send({ type: "add", latitude: latlng.lat, longitude: latlng.lng, radius });
  }
});

// --- the canvas

const canvas = byId("live"), pen = canvas.getContext("2d");
function size() {
  const { x, y } = map.getSize(), ratio = devicePixelRatio || 1;
  canvas.width = x * ratio; canvas.height = y * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  isDirty = true;
}
map.on("resize", size).on("move zoom", () => { isDirty = true; });

function projection() {
  const scale = 256 * 2 ** map.getZoom(), { x, y } = map.getPixelBounds().min;
  const ofLng = lng => (lng + 180) / 360 * scale - x;
  const ofLat = lat => {
    const sine = Math.sin(Math.max(-85.06, Math.min(85.06, lat)) * Math.PI / 180);
    return (.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI)) * scale - y;
  };
  return { ofLng, ofLat, pixels: (metres, lat) => metres * scale / (40030228.9 * Math.max(.01, Math.cos(lat * Math.PI / 180))) };
}

function shape({ kind, zone: [a, b, c, d], outline }, at) {
  const path = new Path2D();
  if (kind === BOX) path.rect(at.ofLng(b), at.ofLat(c), at.ofLng(d) - at.ofLng(b), at.ofLat(a) - at.ofLat(c));
  else if (kind === POLYGON) trace(path, outline, at);
  else path.arc(at.ofLng(b), at.ofLat(a), Math.max(1.5, at.pixels(c, a)), 0, 7);
  return path;
}
function trace(path, corners, at) {
  for (let i = 0, isFirst = true; i < corners.length; i += 2) {
    const lat = corners[i], lng = corners[i + 1];
    if (Number.isNaN(lat)) { path.closePath(); isFirst = true; continue; }
    // Edges are straight in degrees, which they are on this map only where they are short.
    const steps = isFirst ? 1 : Math.max(1, Math.ceil(Math.abs(lat - corners[i - 2])));
    for (let n = steps - 1; n >= 0; n--) {
      const back = n / steps, ofOne = (now, before) => back ? now + (before - now) * back : now;
      path[isFirst ? "moveTo" : "lineTo"](at.ofLng(ofOne(lng, corners[i - 1])), at.ofLat(ofOne(lat, corners[i - 2])));
    }
    isFirst = false;
  }
}
function covers(area, { x, y }, at) {
  const ratio = devicePixelRatio || 1;
  return pen.isPointInPath(shape(area, at), x * ratio, y * ratio, "evenodd");
}

function graticule(at, width, height) {
  const pixels = at.ofLng(1) - at.ofLng(0), step = [30, 10, 5, 2, 1, .5, .2, .1, .05, .02, .01, .005, .001].findLast(one => one * pixels > 110) ?? 30;
  const [south, west, north, east] = view(), digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  pen.strokeStyle = "rgba(160, 195, 210, .09)"; pen.fillStyle = "#5f7a88"; pen.lineWidth = 1; pen.font = "11px system-ui, sans-serif";
  pen.beginPath();
  for (let n = Math.ceil(west / step); n * step <= east; n++) {
    const x = Math.round(at.ofLng(n * step)) + .5;
    pen.moveTo(x, 0); pen.lineTo(x, height); pen.fillText(`${(n * step).toFixed(digits)}°`, x + 4, height - 6);
  }
  for (let n = Math.ceil(south / step); n * step <= north; n++) {
    const y = Math.round(at.ofLat(n * step)) + .5;
    pen.moveTo(0, y); pen.lineTo(width, y); pen.fillText(`${(n * step).toFixed(digits)}°`, width - 44, y - 4);
  }
  pen.stroke();
}

function draw(now) {
  requestAnimationFrame(draw);
  if (!isDirty) return;
  isDirty = false;
  const { x: width, y: height } = map.getSize(), at = projection();
  pen.clearRect(0, 0, width, height);
  graticule(at, width, height);
  for (const area of areas.values()) {
    const path = shape(area, at), glow = Math.max(0, 1 - (now - area.flash) / FLASH);
    if (glow) isDirty = true;
    pen.fillStyle = `rgba(233, 179, 91, ${.07 + .22 * glow})`;
    pen.strokeStyle = `rgba(233, 179, 91, ${.55 + .45 * glow})`;
    pen.lineWidth = 1 + glow;
    pen.fill(path, "evenodd"); pen.stroke(path);
  }
  const dot = Math.max(1.8, Math.min(4, map.getZoom() / 2 - Math.max(0, Math.log2(things.size / 400)) * .45));
  let count = 0;
  pen.fillStyle = "#6fd3c1";
  pen.beginPath();
  const flashing = [];
  for (const thing of things.values()) {
    const [lat, lng] = shown(thing, now), x = at.ofLng(lng), y = at.ofLat(lat);
    if (now - thing.since < thing.span) isDirty = true;
    if (!watched || (lat >= watched[0] && lat <= watched[2] && lng >= watched[1] && lng <= watched[3])) count++;
    if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
    pen.moveTo(x + dot, y); pen.arc(x, y, dot, 0, 7);
    if (now - thing.flash < FLASH) flashing.push([x, y, (now - thing.flash) / FLASH]);
  }
  pen.fill();
  for (const [x, y, age] of flashing) {
    pen.beginPath(); pen.arc(x, y, dot + 1 + 13 * age, 0, 7);
    pen.strokeStyle = `rgba(255, 241, 207, ${.9 * (1 - age)})`; pen.lineWidth = 1.6; pen.stroke();
  }
  if (flashing.length) isDirty = true;
  const [south, west, north, east] = view();
  const isPart = watched && (watched[2] - watched[0] < .9 * (north - south)) && watched[0] > south;
  if (isPart) {
    pen.setLineDash([6, 6]); pen.strokeStyle = "#5d7886"; pen.lineWidth = 1;
    pen.stroke(shape({ kind: BOX, zone: watched }, at)); pen.setLineDash([]);
  }
  tell(now, count, isPart);
}

function tell(now, count, isPart) {
  matches = matches.filter(([when]) => now - when < 3000);
  text("things", count.toLocaleString("en"));
  text("areas", areas.size.toLocaleString("en"));
  text("rate", Math.round(matches.reduce((sum, [, n]) => sum + n, 0) / 3).toLocaleString("en"));
  if (isPart && !byId("note").textContent) note("Things are shown in the dashed box. Zoom in to see all.");
}
setInterval(() => { isDirty = true; }, 1000);

map.on("mousemove", ({ containerPoint: { x, y } }) => {
  const at = projection(), now = performance.now(), tip = byId("tip");
  let best = 10, found = null;
  for (const [id, thing] of things) {
    const [lat, lng] = shown(thing, now), far = Math.hypot(at.ofLng(lng) - x, at.ofLat(lat) - y);
    if (far < best) { best = far; found = `${id}\n${lat.toFixed(4)}, ${lng.toFixed(4)}`; }
  }
  tip.style.display = found ? "block" : "none";
  if (found) { tip.textContent = found; tip.style.left = `${x + 14}px`; tip.style.top = `${y + 14}px`; }
});

size();
connect();
requestAnimationFrame(draw);
