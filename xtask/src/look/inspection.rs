//! An inspection's page clicked through: its numbers are those of the JSON beside it, it is fast, and its address is its state.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::browser::{Browser, View};
use super::used::numbers;
use crate::bench::kept;

/// The longest wait for the first picture, and for an answer to the pointer or a choice, in milliseconds.
const FIRST: f64 = 1_000.0;
const ANSWER: f64 = 50.0;

/// What is wrong with the page that is open; its times only if they are judged.
pub fn click_through(
    browser: &mut Browser,
    page: &Path,
    view: &View,
    judges_times: bool,
) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    ready(browser)?;
    let slow = times(browser, page, view)?;
    problems.extend(slow.into_iter().filter(|_| judges_times));
    let json = page.with_extension("json");
    if json.exists() {
        let seen: Value = serde_json::from_slice(
            &fs::read(&json).with_context(|| format!("cannot read {}", json.display()))?,
        )?;
        // The map that the page begins with.
        let all = seen["attention"].as_array().context("the JSON has no attention")?;
        let find = |name: &'static str| all.iter().find(|maps| maps["kind"] == name).map(|maps| (name, maps));
        let (of, maps) = find("cross").or_else(|| find("align")).unwrap_or(("source", &all[0]));
        let last = maps["layers"].as_array().map_or(0, Vec::len).saturating_sub(1);
        let several = maps["layers"][0]["heads"].as_array().is_some_and(|heads| heads.len() > 3);
        let cases = [(last.min(1), "2", false), (0, "1.3", false), (last, "0", true)];
        for (layer, heads, words) in
            cases.map(|(layer, heads, words)| (layer, if several { heads } else { "0" }, words))
        {
            let words = if words { "&words" } else { "" };
            for kind in ["matrix", "lines"] {
                open(
                    browser,
                    page,
                    &format!("#view={kind}&of={of}&layer={layer}&heads={heads}{words}"),
                    view,
                )?;
                compare(browser, &seen, kind, &mut problems)?;
            }
        }
        neurons(browser, page, &seen, view, &mut problems)?;
    }
    state(browser, page, view, &mut problems)?;
    saved(browser, &mut problems)?;
    Ok(problems)
}

fn open(browser: &mut Browser, page: &Path, fragment: &str, view: &View) -> Result<()> {
    browser.show_at(page, fragment, view)?;
    ready(browser)
}

/// Waits until everything is unpacked, and brings the picture into the window.
fn ready(browser: &mut Browser) -> Result<()> {
    let begin = Instant::now();
    while browser.evaluate("'ready' in document.documentElement.dataset")? != true {
        if begin.elapsed() > Duration::from_secs(20) {
            bail!(
                "the page is not ready after 20 s: {}",
                browser.evaluate("document.getElementById('broken').textContent")?
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    browser.evaluate("document.getElementById('stage').scrollIntoView({ block: 'center' }); 0").map(drop)
}

/// What is slow. All times are printed.
fn times(browser: &mut Browser, page: &Path, view: &View) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    // The least of three rounds: other work on the machine is not the page's.
    let mut first = f64::INFINITY;
    for _ in 0..3 {
        let [time] = numbers(browser, "[performance.getEntriesByName('first picture')[0].startTime]")?;
        first = first.min(time);
        if first <= FIRST {
            break;
        }
        open(browser, page, "", view)?;
    }
    if first > FIRST {
        problems.push(format!("the first picture comes after {first:.0} ms, expected {FIRST:.0}"));
    }
    let mut least: BTreeMap<String, f64> = BTreeMap::new();
    for _ in 0..3 {
        let measured = browser.evaluate(include_str!("times.js"))?;
        for (what, value) in measured.as_object().context("the times are no object")? {
            let value = value.as_f64().unwrap_or(f64::INFINITY);
            least.entry(what.clone()).and_modify(|least| *least = least.min(value)).or_insert(value);
        }
        if least.values().all(|value| *value <= ANSWER) {
            break;
        }
    }
    let mut said = vec![format!("first picture {first:.0} ms")];
    for (what, value) in least {
        if value > ANSWER {
            problems.push(format!("{what} takes {value:.0} ms in the median, expected {ANSWER:.0}"));
        }
        said.push(format!("{what} {value:.0} ms"));
    }
    eprintln!("    {}", said.join(", "));
    Ok(problems)
}

/// What the page says about its state.
fn said(browser: &mut Browser) -> Result<Value> {
    browser.evaluate(
        "(() => { const r = document.getElementById('readout'); const at = new URLSearchParams(location.hash.slice(1)); \
         return { row: r.dataset.row ?? '', column: r.dataset.column ?? '', share: r.dataset.share ?? '', shown: r.querySelector('strong')?.textContent ?? '', \
         of: at.get('of'), layer: at.get('layer'), heads: at.get('heads'), words: at.has('words') }; })()",
    )
}

/// The number under the pointer, at many places, is the one of the JSON up to half a step of 8 bits.
fn compare(browser: &mut Browser, seen: &Value, kind: &str, problems: &mut Vec<String>) -> Result<()> {
    let area = "(() => { const b = document.getElementById('canvas').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()";
    let [left, top, width, height] = numbers(browser, area)?;
    // Of lines, one token is kept, and the pointer goes down the other column.
    if kind == "lines" {
        browser.click(left + width * 0.1, top + 30.0 + 23.0 * 2.5)?;
    }
    let mut compared = 0;
    for step in 0..30 {
        let (x, y) = match kind {
            "lines" => (0.72, (f64::from(step) + 0.5) / 30.0),
            _ => (0.2 + 0.75 * f64::from(step % 10) / 10.0, 0.15 + 0.8 * f64::from(step / 10) / 3.0),
        };
        browser.point(left + width * x, top + height * y)?;
        let said = said(browser)?;
        let number = |key: &str| said[key].as_str().and_then(|text| text.trim().parse::<f64>().ok());
        let (Some(row), Some(column), Some(share), Some(shown)) =
            (number("row"), number("column"), number("share"), number("shown"))
        else {
            continue;
        };
        let (expected, half) = expected(seen, &said, row as usize, column as usize)
            .with_context(|| format!("the JSON has no such share: {said}"))?;
        compared += 1;
        if (share - expected).abs() > half + 1e-6 || (shown - share).abs() > 5.1e-4 {
            problems.push(format!("{kind} shows {shown} ({share}) at row {row}, column {column} of {said}; the JSON has {expected} ± {half}"));
        }
    }
    if compared < 5 {
        problems.push(format!("{kind}: only {compared} numbers were found under the pointer"));
    }
    Ok(())
}

/// The share in the JSON, and half of what a byte is worth.
fn expected(seen: &Value, said: &Value, row: usize, column: usize) -> Option<(f64, f64)> {
    let (rows, columns) = match said["of"].as_str()? {
        "source" => ("source", "source"),
        "target" => ("target", "target"),
        _ => ("target", "source"),
    };
    let kind = |maps: &Value| match said["of"].as_str() {
        Some("cross") => maps["kind"] == "cross",
        Some("align") => maps["kind"] == "align",
        side => maps["kind"]["own"].as_str() == side,
    };
    let maps = seen["attention"].as_array()?.iter().find(|maps| kind(maps))?;
    let layer: u64 = said["layer"].as_str()?.parse().ok()?;
    let layer = maps["layers"].as_array()?.iter().find(|of| of["layer"] == layer)?;
    let unit = |side: &str, number: usize| units(&seen[side], said["words"] == true).into_iter().nth(number);
    let (queries, keys) = (unit(rows, row)?, unit(columns, column)?);
    let width = seen[columns].as_array()?.len();
    let heads: Vec<usize> = said["heads"].as_str()?.split('.').filter_map(|head| head.parse().ok()).collect();
    let (mut sum, mut half) = (0.0, 0.0);
    for head in &heads {
        let shares: Vec<f64> =
            layer["heads"][head]["shares"].as_array()?.iter().filter_map(Value::as_f64).collect();
        let largest = shares.iter().copied().fold(0.0, f64::max);
        half += keys.len() as f64 * largest.sqrt() / 510.0;
        let of = |query: usize| keys.clone().map(|key| shares[query * width + key]).sum::<f64>();
        sum += queries.clone().map(of).sum::<f64>() / queries.len() as f64;
    }
    Some((sum / heads.len() as f64, half / heads.len() as f64))
}

/// Tokens, or words, as ranges of tokens.
fn units(tokens: &Value, words: bool) -> Vec<std::ops::Range<usize>> {
    let mut units: Vec<std::ops::Range<usize>> = Vec::new();
    let all = tokens.as_array().map_or(&[][..], Vec::as_slice);
    let word = |at: usize| (!all[at]["word"].is_null()).then(|| (&all[at]["word"], &all[at]["part"]));
    for at in 0..all.len() {
        match units.last_mut() {
            Some(last) if words && word(at).is_some() && word(last.start) == word(at) => last.end = at + 1,
            _ => units.push(at..at + 1),
        }
    }
    units
}

/// What is chosen by pointer, keys and finger is in the address, and the address brings it back.
fn state(browser: &mut Browser, page: &Path, view: &View, problems: &mut Vec<String>) -> Result<()> {
    open(browser, page, "", view)?;
    let press = |browser: &mut Browser, what: &str| {
        browser.evaluate(&format!("document.querySelector({what:?}).click(); 0")).map(drop)
    };
    press(browser, "[data-view=matrix]")?;
    press(browser, "#plain")?;
    press(browser, "#chips button:last-child, [data-view=matrix]")?;
    let middle = "(() => { const b = document.getElementById('canvas').getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; })()";
    let [x, y] = numbers(browser, middle)?;
    if view.width < 500 {
        browser.tap(x, y)?
    } else {
        browser.click(x, y)?
    }
    browser.evaluate("document.getElementById('canvas').focus({ preventScroll: true }); 0")?;
    let picture = "new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(() => then(document.getElementById('canvas').toDataURL() + document.getElementById('readout').textContent))))";
    let before = browser.evaluate(picture)?;
    browser.key("ArrowDown")?;
    if browser.evaluate(picture)? == before {
        problems.push("an arrow key moves nothing".into());
    }
    browser.key("Enter")?;
    browser.point(1.0, 1.0)?;
    browser
        .evaluate("document.getElementById('canvas').dispatchEvent(new PointerEvent('pointerleave')); 0")?;
    let before = browser.evaluate(picture)?;
    let fragment = browser.evaluate("location.hash")?;
    let fragment = fragment.as_str().unwrap_or_default();
    for part in ["view=matrix", "plain", "from=", "to="] {
        if !fragment.contains(part) {
            problems.push(format!("the address lacks {part}: {fragment}"));
        }
    }
    open(browser, page, fragment, view)?;
    let again = browser.evaluate("location.hash")?;
    if again != fragment {
        problems.push(format!("the address {fragment} becomes {again}"));
    }
    if browser.evaluate(picture)? != before {
        problems.push(format!("the address {fragment} does not bring the same picture back"));
    }
    Ok(())
}

/// A picture saved as SVG is one.
fn saved(browser: &mut Browser, problems: &mut Vec<String>) -> Result<()> {
    for kind in ["lines", "matrix", "overview"] {
        browser.evaluate(&format!("document.querySelector('[data-view={kind}]').click(); 0"))?;
        match save(browser, kind)? {
            Some(svg) if texts(&svg, |_| true)?.is_empty() => {
                problems.push(format!("{kind} is saved without its texts"))
            }
            Some(_) => {}
            None => problems.push(format!("{kind} is not saved")),
        }
    }
    Ok(())
}

/// Saves the picture that is shown.
fn save(browser: &mut Browser, kind: &str) -> Result<Option<String>> {
    let folder = kept::target().join(format!("look-saved-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    browser.save_to(&folder)?;
    browser.evaluate("document.getElementById('save').click(); 0")?;
    let begin = Instant::now();
    let mut found = None;
    while found.is_none() && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
        let mut files = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
        found = files.find(|path| path.to_string_lossy().ends_with(&format!("{kind}.svg")));
    }
    let text = found.map(|file| fs::read_to_string(&file)).transpose()?;
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(text)
}

/// The texts of a picture.
fn texts(svg: &str, which: impl Fn(&roxmltree::Node<'_, '_>) -> bool) -> Result<Vec<String>> {
    let document = roxmltree::Document::parse(svg).context("a picture is saved as what is no SVG")?;
    let all = document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")) && which(node));
    Ok(all.filter_map(|node| node.text().map(String::from)).collect())
}

/// The scores of the neuron view are those of the JSON's queries and keys, up to their rounding.
fn neurons(
    browser: &mut Browser,
    page: &Path,
    seen: &Value,
    view: &View,
    problems: &mut Vec<String>,
) -> Result<()> {
    let (layer, head, query) = (1, 2, 3);
    let of = &seen["attention"][0]["layers"][layer]["heads"][head]["neurons"];
    if of.is_null() {
        return Ok(());
    }
    open(browser, page, &format!("#view=neurons&of=source&layer={layer}&heads={head}&from={query}"), view)?;
    let svg = save(browser, "neurons")?.context("the neuron view is not saved")?;
    let numbers = texts(&svg, |node| {
        node.attribute("font-size") == Some("12") && node.attribute("text-anchor") == Some("end")
    })?;
    let numbers: Vec<f64> = numbers.iter().filter_map(|text| text.parse().ok()).collect();
    let list = |key: &str| -> Vec<f64> {
        of[key].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    };
    let (queries, keys, positions) = (list("queries"), list("keys"), list("positions"));
    let (width, scale) = (of["width"].as_u64().unwrap_or(1) as usize, of["scale"].as_f64().unwrap_or(1.0));
    let half = |all: &[f64]| all.iter().map(|value| value.abs()).fold(0.0, f64::max) / 254.0;
    let (half_query, half_key) = (half(&queries), half(&keys));
    let columns = if positions.is_empty() { 2 } else { 3 };
    let count = keys.len() / width;
    if numbers.len() != columns * count {
        problems.push(format!(
            "the neuron view shows {} numbers, expected {}",
            numbers.len(),
            columns * count
        ));
        return Ok(());
    }
    for (key, row) in numbers.chunks(columns).enumerate() {
        let pairs = || queries[query * width..][..width].iter().zip(&keys[key * width..][..width]);
        let score = pairs().map(|(q, k)| q * k).sum::<f64>() / scale;
        let bound = pairs()
            .map(|(q, k)| q.abs() * half_key + k.abs() * half_query + half_query * half_key)
            .sum::<f64>()
            / scale
            + 0.0051;
        if (row[0] - score).abs() > bound {
            problems.push(format!(
                "the neuron view shows a score of {} for key {key}; the JSON's is {score} ± {bound}",
                row[0]
            ));
        }
        if columns == 3 && (row[1] - positions[query * count + key]).abs() > 0.05 {
            problems.push(format!(
                "the neuron view shows {} for the position of key {key}, the JSON {}",
                row[1],
                positions[query * count + key]
            ));
        }
    }
    Ok(())
}
