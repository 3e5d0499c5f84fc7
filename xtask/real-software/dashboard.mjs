// The dashboard in a browser: every state, wide and narrow, light and dark.

import { readFile, writeFile } from 'node:fs/promises';
import http from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';

import puppeteer from 'puppeteer-core';

import { ask, freePort, same, until } from './lib.mjs';

const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

const CHROMIUM = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/// Widths in pixels. The last one is the narrowest without sideways scrolling.
const WIDTHS = [1400, 390, 320];

/// Browser whose pages report every error and every violation of the content policy.
export class Browser {
  static async start(stage) {
    const browser = await puppeteer.launch({
      executablePath: '/usr/bin/chromium', headless: true, args: CHROMIUM, userDataDir: await stage.folder(),
    });
    stage.later(() => browser.close());
    return Object.assign(new Browser(), { browser });
  }

  async open(url) {
    const page = await this.browser.newPage();
    const troubles = [];
    page.on('console', (line) => {
      if (line.type() === 'error' || line.type() === 'warn') troubles.push(line.text());
    });
    page.on('pageerror', (error) => troubles.push(error.message));
    await page.exposeFunction('reportViolation', (text) => troubles.push(text));
    await page.evaluateOnNewDocument(() => {
      document.addEventListener('securitypolicyviolation', (event) => {
        window.reportViolation(`policy: ${event.violatedDirective} ${event.blockedURI}`);
      });
    });
    await page.setViewport({ width: WIDTHS[0], height: 1000 });
    await page.goto(url);
    return { page, troubles };
  }
}

/// Text of the state line.
const line = (page) => page.$eval('#state', (state) => `${state.dataset.state}: ${state.textContent.replace(/\s+/g, ' ').trim()}`);

async function reaches(page, program, expected) {
  let shown = '';
  await until(`the page shows ${expected}`, program, async () => {
    shown = await line(page);
    return expected.test(shown);
  }).catch((error) => {
    throw new Error(`the page shows "${shown}"; ${error.message}`);
  });
}

/// Checks a state at each width and in both colour schemes; with `SCREENSHOTS`, keeps pictures.
export async function check(name, { page, troubles }, allowed = /^$/) {
  // A page in the background paints no frames.
  await page.bringToFront();
  for (const scheme of ['light', 'dark']) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    for (const width of WIDTHS) {
      await page.setViewport({ width, height: 1000 });
      // Two frames: the charts take their new width after the first one.
      await page.evaluate(() => new Promise((resolve) => {
        requestAnimationFrame(() => requestAnimationFrame(resolve));
      }));
      const what = `${name} at ${width} px, ${scheme}`;
      same(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), 0, `${what}: sideways scrolling`);
      if (process.env.SCREENSHOTS) {
        // One more second: the charts have the new width.
        await new Promise((resolve) => setTimeout(resolve, 1_200));
        const file = path.join(process.env.SCREENSHOTS, `${name}-${width}-${scheme}.png`);
        await writeFile(file, await page.screenshot({ fullPage: true }));
      }
    }
    await page.evaluate(await readFile(AXE, 'utf8'));
    const violations = await page.evaluate(async () => {
      // Old numbers are faded on purpose, while the state line says that they are old.
      const rules = { 'color-contrast': { enabled: !document.body.classList.contains('silent') } };
      const { violations } = await window.axe.run(document, { rules });
      return violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 5).map((node) => node.target).join(' ')}`);
    });
    same(violations, [], `${name}, ${scheme}: accessibility`);
  }
  same(troubles.filter((text) => !allowed.test(text)), [], `${name}: errors in the console`);
}

/// Sends requests with different outcomes.
async function visit(cache) {
  for (const target of ['/a', '/a', '/b', '/b', '/b', '/private', '/missing']) await ask(cache + target);
  await ask(`${cache}/a`, {}, 'POST');
}

/// Passes requests on to the admin listener, with one state word replaced in the events.
async function replacing(stage, admin, word, by) {
  const target = new URL(admin);
  return stage.listen((request, response) => {
    const headers = { ...request.headers, host: target.host };
    const passed = http.request(new URL(request.url, admin), { method: request.method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.on('data', (data) => {
        const isEvents = request.url.startsWith('/events');
        response.write(isEvents ? data.toString().replace(`"state":"${word}",`, `"state":"${by}",`) : data);
      });
      answer.on('end', () => response.end());
      answer.on('error', () => response.destroy());
    });
    passed.on('error', () => response.destroy());
    response.on('close', () => passed.destroy());
    request.pipe(passed);
  });
}

export async function dashboard(stage) {
  const browser = await Browser.start(stage);
  const origin = await stage.listen((request, response) => {
    const policy = request.url === '/private' ? 'private' : 'max-age=60';
    response.writeHead(request.url === '/missing' ? 404 : 200, { 'Cache-Control': policy });
    response.end('hello');
  });

  const calm = await stage.serve(origin);
  const view = await browser.open(calm.admin);
  await reaches(view.page, calm.program, /^serving: .*no traffic yet/);
  same(await view.page.$eval('#curl', (code) => code.innerText), `curl -i ${calm.cache}/`, 'the suggested command');
  await check('no-traffic', view);
  await visit(calm.cache);
  await reaches(view.page, calm.program, /^serving: ●\s+serving$/);
  const requests = () => view.page.$eval('.card .value', (value) => value.innerText);
  await until('the card shows 8 requests', calm.program, async () => (await requests()) === '8');
  await listed(view.page, calm);
  await check('serving', view);
  await purges(view.page, calm.program);

  const starting = await browser.open(await replacing(stage, calm.admin, 'ready', 'starting'));
  await reaches(starting.page, calm.program, /^starting: ◆\s+not ready/);
  await check('not-ready', starting);

  calm.program.child.kill('SIGSTOP');
  try {
    await reaches(view.page, { output: '' }, /^silent: ○\s+no news for \d+ s/);
    await check('no-news', view);
  } finally {
    calm.program.child.kill('SIGCONT');
  }
  await reaches(view.page, calm.program, /^serving: /);

  const redis = await freePort();
  const degraded = await stage.serve(origin, '', `[redis]\nurl = "redis://127.0.0.1:${redis}"\n`);
  await visit(degraded.cache);
  const shown = await browser.open(degraded.admin);
  await reaches(shown.page, degraded.program, /^degraded: ▲\s+degraded: redis is bypassed since \d\d:\d\d/);
  const tiers = () => shown.page.$eval('#tiers', (rows) => rows.innerText);
  await until('the table agrees with the state line', degraded.program, async () => /redis\s+bypassed/.test(await tiers()));
  await check('degraded', shown);

  const ending = await stage.serve(origin, '', 'shutdown_delay = "60s"\n');
  await visit(ending.cache);
  const last = await browser.open(ending.admin);
  await reaches(last.page, ending.program, /^serving: /);
  ending.program.child.kill('SIGTERM');
  await reaches(last.page, ending.program, /^stopping: ■\s+stopping/);
  await check('stopping', last);
  ending.program.child.kill('SIGTERM');

  const file = path.join(await stage.folder(), 'token');
  await writeFile(file, 'secret\n');
  const closed = await stage.serve(origin, '', `admin_token_file = "${file}"\n`);
  const asked = await browser.open(closed.admin);
  await reaches(asked.page, closed.program, /^token: ▲\s+token needed/);
  await check('token', asked, /401/);
  await asked.page.type('#token-value', 'wrong');
  await asked.page.keyboard.press('Enter');
  const error = () => asked.page.$eval('#token-error', (text) => text.innerText);
  await until('the page rejects the token', closed.program, async () => /rejects/.test(await error()));
  await asked.page.type('#token-value', 'secret');
  await asked.page.keyboard.press('Enter');
  await reaches(asked.page, closed.program, /^serving: /);
}

/// Waits until the lists of the busiest URLs have loads, and requests that came while they are shown.
async function listed(page, { cache, program }) {
  await page.bringToFront();
  await page.$eval('#top', (panel) => panel.scrollIntoView());
  const lists = () => page.$eval('#top-lists', (element) => element.innerText);
  await until('the lists have loads', program, async () => /Not storable[^]*private 127/.test(await lists()));
  await until('the lists have requests', program, async () => {
    await ask(`${cache}/a`);
    return /Most requests[^]*127[^]*\/a/.test(await lists());
  });
  await page.evaluate(() => scrollTo(0, 0));
}

/// Purges by the form: a site only after its name was typed.
async function purges(page, program) {
  const result = () => page.$eval('#purge-result', (text) => text.innerText);
  const shows = (expected) => until(`the form shows ${expected}`, program, async () => expected.test(await result()));
  await page.type('#purge input[name=value]', 'http://127.0.0.1/a');
  await page.click('#purge button');
  await shows(/^(Purge \d+ reached 1 instance|The purge failed)/);
  const notice = () => page.$eval('#notices', (list) => list.innerText);
  const lists = (expected) => until(`the list shows ${expected}`, program, async () => expected.test(await notice()));
  await page.select('#purge select[name=kind]', 'path_regex');
  await page.$eval('#purge input[name=value]', (input) => { input.value = '^/a$'; });
  await page.click('#purge button');
  await lists(/kind=path_regex value=\^\/a\$ reach=soft/);
  await page.select('#purge select[name=kind]', 'site');
  await page.click('#purge button');
  await shows(/^Nothing was purged: type real to confirm/);
  await page.type('#purge input[name=confirm]', 'real');
  await page.click('#purge button');
  await shows(/^Purge \d+ reached 1 instance/);
  await lists(/purge carried out kind=site value=real reach=soft/);
}

/// Seconds of a day, of an hour, and of a part after which the page asks for the notices.
const DAY = 86_400;
const HOUR = 3_600;
const PART = 600;

/// Most that the heap of a page may grow from its first hour to the end of the day, in bytes.
const GROWTH_MAX = 512 << 10;

/// A page that is open for a day: its events come as fast as it takes them. Its heap stays as it is.
export async function dashboardDay(stage) {
  const browser = await Browser.start(stage);
  const origin = await stage.listen((request, response) => response.end('hello'));
  const { admin, cache, program } = await stage.serve(origin);
  await visit(cache);
  const feed = { taken: 0, loads: 0, asked: () => {} };
  const view = await browser.open(await stage.listen((request, response) => {
    if (request.url.startsWith('/events')) return day(admin, response, feed);
    if (request.url.startsWith('/history')) return load(admin, request, response, feed);
    if (request.url === '/notices') feed.asked();
    return pass(admin, request, response);
  }));
  const client = await view.page.createCDPSession();
  await client.send('Performance.enable');
  const taken = async (seconds) => {
    while (feed.taken < seconds) {
      same(program.child.exitCode, null, 'forebay runs');
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return usage(client);
  };
  const hour = await taken(HOUR);
  // Drawing takes most of the time: between the first and the last hour the page only takes events.
  await view.page.click('#pause');
  await taken(DAY - HOUR);
  await view.page.click('#pause');
  const end = await taken(DAY);
  console.log(`  heap after 1 h ${hour.heap} bytes, after 24 h ${end.heap} bytes; ${end.nodes} nodes, ${end.listeners} listeners`);
  same(end.heap - hour.heap < GROWTH_MAX, true, `heap after 1 h ${hour.heap} bytes, after 24 h ${end.heap} bytes`);
  same(feed.loads, 1, 'loads of the history');
  same([end.nodes, end.listeners], [hour.nodes, hour.listeners], 'elements and listeners');
  same(view.troubles, [], 'errors in the console');
}

/// Answers with the history, and notes its end.
async function load(admin, request, response, feed) {
  const history = await (await fetch(new URL(request.url, admin))).json();
  feed.loads += 1;
  feed.history = history;
  response.writeHead(200, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify(history));
}

/// Passes a request on to the admin listener.
function pass(admin, request, response) {
  const headers = { ...request.headers, host: new URL(admin).host };
  const passed = http.request(new URL(request.url, admin), { method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  passed.on('error', () => response.destroy());
  response.on('close', () => passed.destroy());
  request.pipe(passed);
}

/// Sends the events of a day, made from the first event of the listener. After each part it waits until
/// the page has taken it: until the page asks for the notices, whose number has changed.
async function day(admin, response, feed) {
  const first = await firstEvent(`${admin}/events`);
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  const some = (most) => Math.floor(Math.random() * most);
  const other = (values, most) => values.map((value) => (value === null ? null : some(most)));
  const { end, sites } = feed.history;
  let notices = first.notices;
  for (let sent = 0; sent < DAY && !response.closed; sent += PART) {
    // The page asks with its first event, too.
    for (let second = sent === 0 ? 0 : 1; second <= PART; second += 1) {
      const asked = new Promise((resolve) => { feed.asked = resolve; });
      const { counts, latencies_us: latencies, global } = first.values;
      const values = { counts: other(counts, 200), latencies_us: other(latencies, 90_000), global: other(global, 1_000) };
      if (second === PART) notices += 1;
      const event = { ...first, t: end + 1 + sent + second, sites: sites.length, values, notices };
      response.write(`id: ${event.t}\ndata: ${JSON.stringify(event)}\n\n`);
      if (second === 0 || second === PART) await asked;
    }
    feed.taken = sent + PART;
  }
}

/// First event of a stream.
async function firstEvent(url) {
  const ending = new AbortController();
  let text = '';
  for await (const piece of (await fetch(url, { signal: ending.signal })).body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    if (text.includes('\n\n')) break;
  }
  ending.abort();
  return JSON.parse(text.split('\n').find((row) => row.startsWith('data: ')).slice(6));
}

/// Heap, elements and listeners of a page after its garbage was collected.
async function usage(client) {
  await client.send('HeapProfiler.collectGarbage');
  await client.send('HeapProfiler.collectGarbage');
  const { metrics } = await client.send('Performance.getMetrics');
  const of = (name) => metrics.find((metric) => metric.name === name).value;
  return { heap: of('JSHeapUsedSize'), nodes: of('Nodes'), listeners: of('JSEventListeners') };
}
