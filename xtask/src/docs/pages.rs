//! The pages of the book, gathered from the repository: those of docs/src, and files that stand elsewhere, as they are read there.
//! Links between files become links between pages, and equations become MathML.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use pulldown_cmark::{Event, Options, Parser, Tag};

use super::equations;

/// Where the book's own pages stand.
const PAGES: &str = "docs/src";

/// Files that are pages of the book too, and which.
const ELSEWHERE: [(&str, &str); 5] = [
    ("configs/README.md", "reference/configs.md"),
    ("benches/README.md", "reference/benchmarks.md"),
    ("datasets/README.md", "reference/datasets.md"),
    ("ARCHITECTURE.md", "build/architecture.md"),
    ("CHANGELOG.md", "reference/changelog.md"),
];

/// The pages that are made: of the commands' help, and of the comments of configs.
const MADE: [&str; 2] = ["reference/every-command.md", "reference/keys.md"];

/// Where files lie in the book that its pages link to and that are no pages.
const FILES: &str = "files";

/// Gathers the pages in a folder.
///
/// # Errors
/// A link that leads nowhere or an equation that cannot be read, with its file; a file that cannot be read or written.
pub fn gather(root: &Path, place: &Path, made: [&str; 2]) -> Result<()> {
    let mut linked = BTreeSet::new();
    let own = own(root)?.into_iter().map(|page| (Path::new(PAGES).join(&page), page));
    let elsewhere = ELSEWHERE.map(|(file, page)| (PathBuf::from(file), PathBuf::from(page)));
    for (file, page) in own.chain(elsewhere) {
        if !is_page(&file) {
            linked.insert(file);
            continue;
        }
        let text = read(&root.join(&file))?;
        let text = relinked(&text, |link| book_link(root, &file, &page, link, &mut linked))
            .and_then(|text| equations::typeset(&text))
            .with_context(|| file.display().to_string())?;
        write(&place.join(&page), text.as_bytes())?;
    }
    for (page, text) in MADE.iter().zip(made) {
        write(&place.join(page), text.as_bytes())?;
    }
    for file in linked {
        let bytes = fs::read(root.join(&file)).with_context(|| format!("cannot read {}", file.display()))?;
        let to = page_of(&file).unwrap_or_else(|| Path::new(FILES).join(&file));
        write(&place.join(to), &bytes)?;
    }
    Ok(())
}

/// Whether a file is a page, and no picture.
fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}

/// The book's own pages and their pictures, relative to their folder.
fn own(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut pages, mut folders) = (Vec::new(), vec![root.join(PAGES)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => pages.push(path.strip_prefix(root.join(PAGES))?.to_owned()),
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// The place in the book of a page or a picture; none if the file is neither.
fn page_of(file: &Path) -> Option<PathBuf> {
    if file == Path::new("README.md") {
        return Some("introduction.md".into());
    }
    let elsewhere = ELSEWHERE.iter().find(|(name, _)| Path::new(name) == file).map(|(_, page)| page.into());
    elsewhere.or_else(|| file.strip_prefix(PAGES).ok().map(Path::to_owned))
}

/// What a file's link is on its page. Files that are no pages are noted in `linked`.
fn book_link(
    root: &Path,
    file: &Path,
    page: &Path,
    link: &str,
    linked: &mut BTreeSet<PathBuf>,
) -> Result<String> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    if is_elsewhere(link) || path.is_empty() {
        return Ok(link.to_owned());
    }
    let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
    // The summary names the pages that are made.
    if file.ends_with("SUMMARY.md") && MADE.contains(&path) {
        return Ok(link.to_owned());
    }
    let named = plain(&file.parent().unwrap_or(Path::new("")).join(path));
    let there = root.join(&named);
    let named = if there.is_dir() { named.join(index(&there)) } else { named };
    if !root.join(&named).is_file() {
        bail!("the link `{link}` leads to {}, which is not there", named.display());
    }
    let to = page_of(&named).unwrap_or_else(|| {
        linked.insert(named.clone());
        Path::new(FILES).join(&named)
    });
    let up = "../".repeat(page.components().count() - 1);
    Ok(format!("{up}{}{anchor}", to.to_string_lossy().replace('\\', "/")))
}

/// The file that stands for a folder.
fn index(folder: &Path) -> &'static str {
    let files = ["README.md", "src/lib.rs", "src/main.rs", "Cargo.toml"];
    files.into_iter().find(|file| folder.join(file).is_file()).unwrap_or("README.md")
}

/// Whether a link leaves the repository.
fn is_elsewhere(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::Normal(part) => plain.push(part),
            _ => {}
        }
    }
    plain
}

/// Where a text's links are, and what they are.
fn links(text: &str) -> Vec<(Range<usize>, String)> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    let links = events.filter_map(|(event, range)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            // The address stands at the link's end.
            let at = range.start + text[range.clone()].rfind(&*dest_url)?;
            Some((at..at + dest_url.len(), dest_url.into_string()))
        }
        _ => None,
    });
    links.collect()
}

/// A text with other links.
fn relinked(text: &str, mut link: impl FnMut(&str) -> Result<String>) -> Result<String> {
    let mut links = links(text);
    // A picture that is a link's text stands inside of it, and before its address.
    links.sort_by_key(|(range, _)| range.start);
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for (range, old) in links {
        out += &text[done..range.start];
        out += &link(&old)?;
        done = range.end;
    }
    Ok(out + &text[done..])
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step;

    /// The anchors of a text's headings, as GitHub and mdBook name them.
    fn anchors(text: &str) -> BTreeSet<String> {
        let (mut anchors, mut heading) = (BTreeSet::new(), None::<String>);
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(pulldown_cmark::TagEnd::Heading(_)) => {
                    let name = heading.take().unwrap_or_default().to_lowercase();
                    let kept = name.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
                    anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        *heading += &text;
                    }
                }
                _ => {}
            }
        }
        anchors
    }

    #[test]
    fn every_link_leads_somewhere() {
        let root = step::root();
        let place = tempfile::tempdir().unwrap();
        gather(&root, place.path(), ["# Every command\n", "# Every key\n"]).unwrap();
        let mut files: Vec<PathBuf> =
            own(&root).unwrap().into_iter().map(|page| Path::new(PAGES).join(page)).collect();
        files.extend(ELSEWHERE.map(|(file, _)| PathBuf::from(file)));
        files.push("README.md".into());
        for file in files.into_iter().filter(|file| is_page(file)) {
            let text = read(&root.join(&file)).unwrap();
            for (_, link) in links(&text) {
                let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
                if is_elsewhere(&link) || MADE.contains(&path) {
                    continue;
                }
                let named =
                    if path.is_empty() { file.clone() } else { plain(&file.parent().unwrap().join(path)) };
                assert!(root.join(&named).exists(), "{}: `{link}` is not there", file.display());
                if !anchor.is_empty() {
                    let there = anchors(&read(&root.join(&named)).unwrap());
                    assert!(there.contains(anchor), "{}: `{link}` has no such heading", file.display());
                }
            }
        }
    }

    #[test]
    fn the_summary_has_every_page() {
        let root = step::root();
        let summary = read(&root.join(PAGES).join("SUMMARY.md")).unwrap();
        let named: BTreeSet<PathBuf> = links(&summary).into_iter().map(|(_, link)| link.into()).collect();
        let pages = own(&root).unwrap().into_iter().filter(|page| is_page(page));
        for page in pages.filter(|page| page != Path::new("SUMMARY.md")) {
            assert!(named.contains(&page), "SUMMARY.md has no {}", page.display());
        }
    }

    #[test]
    fn pictures_stand_beside_their_pages() {
        let (root, place) = (step::root(), tempfile::tempdir().unwrap());
        gather(&root, place.path(), ["# Every command\n", "# Every key\n"]).unwrap();
        let pictures: Vec<PathBuf> = own(&root).unwrap().into_iter().filter(|file| !is_page(file)).collect();
        assert!(!pictures.is_empty());
        for picture in pictures {
            let [original, copy] = [root.join(PAGES), place.path().to_owned()]
                .map(|folder| fs::read(folder.join(&picture)).unwrap());
            assert_eq!(original, copy, "{}", picture.display());
        }
    }

    #[test]
    fn links_are_rewritten_where_they_stand() {
        let text = "[a `b`](x.md#y) `[c](d.md)` [![p](q.svg)](q.svg)\n\n```text\n[e](f.md)\n```\n";
        let found = relinked(text, |link| Ok(format!("../{link}"))).unwrap();
        let expected =
            "[a `b`](../x.md#y) `[c](d.md)` [![p](../q.svg)](../q.svg)\n\n```text\n[e](f.md)\n```\n";
        assert_eq!(found, expected);
    }
}
