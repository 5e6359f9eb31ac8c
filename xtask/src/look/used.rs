//! A page in use: opened without a network, under a moving pointer.

use std::path::Path;

use anyhow::Result;

use super::browser::{Browser, View};
use super::inspection;

/// The views in which pages are used.
pub const VIEWS: [&str; 2] = ["wide-light", "narrow-dark"];

/// What goes wrong while a page is used; being slow only if times are judged.
pub fn use_page(browser: &mut Browser, page: &Path, view: &View, judges_times: bool) -> Result<Vec<String>> {
    browser.errors();
    browser.show(page, view)?;
    let mut problems = Vec::new();
    // A map's or an inspection's canvas, or the page itself.
    let over = "(() => { const e = document.querySelector('canvas') ?? document.querySelector('main'); e?.scrollIntoView({ block: 'center' }); \
                const b = (e ?? document.body).getBoundingClientRect(); return [b.left, Math.max(b.top, 0), b.width, Math.min(b.bottom, innerHeight) - Math.max(b.top, 0)]; })()";
    let [left, top, width, height] = numbers(browser, over)?;
    for step in 0..10 {
        let part = f64::from(step) / 10.0;
        browser.point(left + width * part, top + height * part)?;
    }
    browser.click(left + width / 2.0, top + height / 2.0)?;
    if browser
        .evaluate("document.getElementById('map') !== null && document.getElementById('tip') !== null")?
        == true
    {
        problems.extend(map(browser, [left, top, width, height])?);
    }
    if browser.evaluate("document.getElementById('stage') !== null")? == true {
        problems.extend(inspection::click_through(browser, page, view, judges_times)?);
    }
    problems.extend(browser.errors().into_iter().map(|error| format!("an error in the console: {error}")));
    Ok(problems)
}

/// A map shows a text under the pointer.
fn map(browser: &mut Browser, [left, top, width, height]: [f64; 4]) -> Result<Vec<String>> {
    for row in 0..24 {
        for column in 0..24 {
            browser.point(
                left + width * (f64::from(column) + 0.5) / 24.0,
                top + height * (f64::from(row) + 0.5) / 24.0,
            )?;
            let said = browser.evaluate(
                "document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent",
            )?;
            if said.as_str().is_some_and(|said| !said.trim().is_empty()) {
                return Ok(Vec::new());
            }
        }
    }
    Ok(vec!["no text is shown anywhere under the pointer".into()])
}

/// Numbers that the page computes.
pub fn numbers<const N: usize>(browser: &mut Browser, expression: &str) -> Result<[f64; N]> {
    let value = browser.evaluate(expression)?;
    Ok(std::array::from_fn(|at| value[at].as_f64().unwrap_or(f64::NAN)))
}
