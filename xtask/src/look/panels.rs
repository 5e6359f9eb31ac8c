//! The panels of the served page in use: they show what the service answers, and nothing else.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::browser::{Browser, View};

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until an expression is true.
fn wait(browser: &mut Browser, expression: &str) -> Result<()> {
    let begin = Instant::now();
    while browser.evaluate(expression)? != true {
        if begin.elapsed() > PATIENCE {
            let said = browser.evaluate("document.querySelector('main').innerText")?;
            bail!("`{expression}` is not true after {} s: {said}", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits until the page knows the models.
pub fn ready(browser: &mut Browser) -> Result<()> {
    wait(browser, "'ready' in document.documentElement.dataset")
}

/// The panels that the page has.
pub fn names(browser: &mut Browser, address: &str, view: &View) -> Result<Vec<String>> {
    browser.show_url(address, view)?;
    ready(browser)?;
    let names = browser
        .evaluate("[...document.querySelectorAll('#panels button')].map((one) => one.dataset.panel)")?;
    let names: Vec<String> =
        names.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(String::from)).collect();
    match names.is_empty() {
        true => bail!("the page has no panel"),
        false => Ok(names),
    }
}

/// Opens a panel by its address and asks its example.
pub fn ask(browser: &mut Browser, address: &str, name: &str, view: &View) -> Result<Vec<String>> {
    browser.show_url(&format!("{address}/#panel={name}"), view)?;
    ready(browser)?;
    let mut problems = Vec::new();
    let open = browser.evaluate("document.querySelector('#open > section')?.id ?? ''")?;
    if open != name {
        problems.push(format!("the address opens the panel {open}"));
    }
    if browser.evaluate("document.querySelector('#open > section').dataset.state === undefined")? == true {
        first_field(browser)?;
        browser.control_enter()?;
    }
    problems.extend(answered(browser)?);
    Ok(problems)
}

fn first_field(browser: &mut Browser) -> Result<()> {
    browser.evaluate("(document.querySelector('#open textarea, #open input')).focus(); 0").map(drop)
}

/// Waits for an answer; a refusal is a problem.
fn answered(browser: &mut Browser) -> Result<Vec<String>> {
    const STATE: &str = "document.querySelector('#open > section').dataset.state";
    wait(browser, &format!("!['asked', undefined].includes({STATE})"))?;
    let state = browser.evaluate(STATE)?;
    if state == "answered" {
        return Ok(Vec::new());
    }
    let said = browser.evaluate("document.querySelector('#open .status').textContent")?;
    Ok(vec![format!("the example is {state}: {said}")])
}

/// What the page shows must be what the service answers when it is asked directly: an expression for the texts that are shown,
/// and one for the texts of the service's `answer`.
struct Shows {
    panel: &'static str,
    /// What is typed in the first field.
    text: &'static str,
    shown: &'static str,
    answer: &'static str,
}

/// Texts with characters outside of the first plane, and with markup.
const SHOWS: [Shows; 10] = [
    Shows {
        panel: "fill",
        text: "😀 the [MASK] people <b>of</b>",
        shown: "texts('.choices td:first-child')",
        answer: "answer.map((one) => one.token_str.trim() || one.token_str)",
    },
    Shows {
        panel: "classify",
        text: "😀 not <b>bad</b> at all",
        shown: "texts('.choices td:first-child')",
        answer: "answer.map((one) => one.label)",
    },
    Shows {
        panel: "tag",
        text: "😀 Ada Lovelace <b>met</b> 😀 Charles Babbage in London .",
        shown: "[...found.querySelectorAll('mark')].map((one) => one.firstChild.data + '|' + one.lastChild.textContent)",
        answer: "answer.map((one) => one.word + '|' + one.entity_group)",
    },
    Shows {
        panel: "answer",
        text: "where do glaciers begin ?",
        shown: "texts('mark')",
        answer: "[answer.answer].filter(Boolean)",
    },
    Shows {
        panel: "compare",
        text: "a storm 😀\n<b>bread</b>\nthe sea",
        shown: "texts('td:not(:first-child), tbody td').filter((text) => text)",
        answer: "answer.flatMap((a) => answer.map((b) => a.reduce((sum, value, at) => sum + value * b[at], 0).toFixed(2)))",
    },
    Shows {
        panel: "rerank",
        text: "snow 😀",
        shown: "[...found.querySelectorAll('.score')].map((one) => one.lastChild.data)",
        answer: "answer.map((one) => one.score.toFixed(3))",
    },
    Shows {
        panel: "search",
        text: "cold <b>food</b>",
        shown: "texts('.ranks .text')",
        answer: "answer.found.map((one) => one.text)",
    },
    Shows {
        panel: "translate",
        text: "Good morning.\n<b>Thank you.</b>",
        // The pairs are compared as lines that end at the words' middles.
        shown: "[texts('.row:last-child'), [...found.querySelectorAll('.aligned')].map((one) => one.querySelectorAll('line[x1]').length)]",
        answer: "[answer.map((one) => one.translation_text), answer.map((one) => one.alignment.length)]",
    },
    Shows {
        panel: "choose",
        text: "the <b>sailor</b> 😀",
        shown: "texts('.figure')",
        answer: "answer.scores.map((score) => score.toFixed(3))",
    },
    Shows {
        panel: "tokenize",
        text: "a <b>storm</b> 😀",
        shown: "texts('.pieces small')",
        answer: "answer[0].map((one) => String(one.id))",
    },
];

/// What goes wrong while a panel is used.
pub fn use_panel(browser: &mut Browser, address: &str, name: &str, view: &View) -> Result<Vec<String>> {
    let mut problems = ask(browser, address, name, view)?;
    let before = browser.evaluate("location.hash")?;
    if let Some(shows) = SHOWS.iter().find(|shows| shows.panel == name) {
        problems.extend(typed(browser, shows)?);
    }
    match name {
        "fill" => problems.extend(overtaken(browser)?),
        "write" => problems.extend(written(browser)?),
        _ => {}
    }
    // A click on a button opens its panel, which is then in the address.
    let click = format!("document.querySelector('#panels [data-panel={name}]').click(); location.hash");
    let after = browser.evaluate(&click)?;
    if !after.as_str().unwrap_or_default().starts_with(&format!("#panel={name}&model=")) {
        problems.push(format!("the address was {before} and is {after} after a click"));
    }
    Ok(problems)
}

/// Types another text letter by letter, and compares what is shown at last with the service's answer.
fn typed(browser: &mut Browser, shows: &Shows) -> Result<Vec<String>> {
    first_field(browser)?;
    browser.evaluate("document.activeElement.select(); 0")?;
    for letter in shows.text.split_inclusive(' ') {
        browser.write(letter)?;
    }
    let live = browser.evaluate("document.querySelector('#open .main').textContent === 'Ask again'")?;
    if live == true {
        // Nothing but the pause after the last letter.
        thread::sleep(Duration::from_millis(400));
    } else {
        browser.control_enter()?;
    }
    let mut problems = answered(browser)?;
    let compared = format!(
        "(async () => {{ const found = document.querySelector('#open .found');
        const texts = (query) => [...found.querySelectorAll(query)].map((one) => one.textContent);
        const [, route, body] = document.querySelector('#open pre').textContent.match(/^curl \\S*(\\/[a-z-]+) .* -d '([^]*)'$/);
        const text = body.replaceAll(\"'\\\\''\", \"'\");
        const response = await fetch(route, {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, body: text }});
        const answer = await response.json();
        if (!response.ok) throw new Error(text + ': ' + answer.error);
        return {{ asked: text, shown: {}, answer: {}, elements: found.querySelectorAll('b, img, script').length }}; }})()",
        shows.shown, shows.answer
    );
    let compared = browser.evaluate(&compared)?;
    if compared["shown"] != compared["answer"] {
        problems.push(format!("shows {}, and the service answers {}", compared["shown"], compared["answer"]));
    }
    let asked: Value = serde_json::from_str(compared["asked"].as_str().unwrap_or_default())
        .context("the request is no JSON")?;
    let last = shows.text.rsplit(['\n', ' ']).next().unwrap_or_default();
    if !asked.to_string().contains(last) {
        problems.push(format!("asked {asked}, which is not the text that was typed last"));
    }
    if compared["elements"] != 0 {
        problems.push("a text became markup".into());
    }
    Ok(problems)
}

/// An answer that comes late, after that of a later text, is not shown.
fn overtaken(browser: &mut Browser) -> Result<Vec<String>> {
    // The first answer takes its time, and ending its request does not help.
    browser.evaluate(
        "window.fetch = ((real) => { let count = 0; return async (route, { signal, ...rest }) => { \
         const response = real(route, rest); if (count++ === 0) { await new Promise((then) => setTimeout(then, 1500)); window.isLate = true; } \
         return response; }; })(window.fetch); 0",
    )?;
    let mut shown = Vec::new();
    for text in ["an early [MASK]", "a late [MASK]"] {
        first_field(browser)?;
        browser.evaluate("document.activeElement.select(); 0")?;
        browser.write(text)?;
        browser.control_enter()?;
    }
    for ready in ["document.querySelector('#open > section').dataset.state === 'answered'", "window.isLate"] {
        wait(browser, ready)?;
        // What the page makes of the late answer.
        thread::sleep(Duration::from_millis(200));
        shown.push(browser.evaluate("document.querySelector('#open .found').innerText")?);
    }
    let is_late = |shown: &Value| shown.as_str().is_some_and(|shown| shown.starts_with("a late "));
    Ok(match shown.iter().all(is_late) && shown[0] == shown[1] {
        true => Vec::new(),
        false => vec![format!("an older answer replaced a newer one: {shown:?}")],
    })
}

/// A text grows while it is written, and stays as it is when it is stopped.
fn written(browser: &mut Browser) -> Result<Vec<String>> {
    const STATE: &str = "document.querySelector('#open > section').dataset.state";
    const LENGTH: &str =
        "(document.querySelector('#open .written span:last-child')?.textContent.length ?? 0)";
    // Counts the steps in which the text grows, and presses Stop in the third if it is told to.
    browser.evaluate(
        "window.watched = { steps: 0, stops: false }; new MutationObserver(() => { watched.steps += 1; \
         if (watched.stops && watched.steps === 3) [...document.querySelectorAll('#open button')].find((one) => one.textContent === 'Stop').click(); \
         }).observe(document.querySelector('#open .found'), { childList: true, subtree: true }); 0",
    )?;
    let mut problems = Vec::new();
    for stops in [false, true] {
        browser.evaluate(&format!("watched.steps = 0; watched.stops = {stops}; 0"))?;
        first_field(browser)?;
        browser.control_enter()?;
        wait(browser, &format!("{STATE} !== 'asked'"))?;
        let steps = browser.evaluate("watched.steps")?.as_u64().unwrap_or(0);
        let (state, length) = (browser.evaluate(STATE)?, browser.evaluate(LENGTH)?);
        if !stops && steps < 4 {
            problems.push(format!("the text was shown in {steps} steps"));
        }
        // A fast model may have ended before.
        if !(state == "stopped" && stops || state == "answered") {
            problems.push(format!("the text is {state}, and Stop was pressed: {stops}"));
        }
        thread::sleep(Duration::from_millis(200));
        if browser.evaluate(LENGTH)? != length || length == 0 {
            problems.push(format!("the text had {length} letters when it was {state}, and has others now"));
        }
    }
    Ok(problems)
}

/// A page whose service has ended says so.
pub fn left_alone(browser: &mut Browser) -> Result<Vec<String>> {
    first_field(browser)?;
    browser.control_enter()?;
    wait(browser, "document.querySelector('#open > section').dataset.state === 'failed'")?;
    let said = browser.evaluate("document.querySelector('#open .status').textContent")?;
    Ok(match said.as_str().is_some_and(|said| said.starts_with("The service does not answer")) {
        true => Vec::new(),
        false => vec![format!("without a service it says {said}")],
    })
}

/// A page that asks for a key refuses another one, and opens with the right one.
pub fn unlock(browser: &mut Browser, key: &str) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for (given, opens) in [("another", false), (key, true)] {
        wait(browser, "!document.getElementById('key').hidden")?;
        browser.evaluate(
            "delete document.documentElement.dataset.ready; document.querySelector('#key input').select(); 0",
        )?;
        browser.write(given)?;
        browser.evaluate("document.getElementById('key').requestSubmit(); 0")?;
        ready(browser)?;
        let is_open = browser.evaluate(
            "document.querySelectorAll('#panels button').length > 0 && document.getElementById('key').hidden",
        )?;
        if is_open != opens {
            problems.push(format!("the page is open: {is_open}, with a key that should say {opens}"));
        }
    }
    problems.extend(answered(browser)?);
    if browser.evaluate("JSON.stringify([localStorage.length, sessionStorage.length, document.cookie])")?
        != "[0,0,\"\"]"
    {
        problems.push("the page stores something".into());
    }
    Ok(problems)
}
