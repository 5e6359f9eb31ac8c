//! The page of a service: its policy, and that it loads nothing.

#![allow(missing_docs)]

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cloze_evaluation::report::ServicePage;
use sha2::{Digest, Sha256};

#[test]
fn the_only_script_is_the_one_of_the_policy() {
    let ServicePage { html, policy } = ServicePage::new();
    let (_, rest) = html.split_once("<script>").unwrap();
    let (script, after) = rest.split_once("</script>").unwrap();
    assert!(!after.contains("<script") && html.matches("<script").count() == 1);
    let hash = BASE64_STANDARD.encode(Sha256::digest(script));
    let of_page = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'"
    );
    assert!(html.contains(&format!("content=\"{of_page}\"")), "{policy}");
    assert_eq!(policy, format!("{of_page}; frame-ancestors 'none'"));
}

#[test]
fn nothing_is_loaded_stored_or_made_markup() {
    let ServicePage { html, .. } = ServicePage::new();
    // The name of SVG is no address.
    let html = html.replace("\"http://www.w3.org/2000/svg\"", "");
    for absent in [
        "http:",
        "https:",
        "//cdn",
        "src=",
        "@import",
        "url(",
        "innerHTML",
        "insertAdjacent",
        "eval(",
        "Storage",
        "cookie",
    ] {
        assert!(!html.contains(absent), "{absent}");
    }
    // As large as a picture.
    assert!(html.len() < 60_000, "{}", html.len());
}
