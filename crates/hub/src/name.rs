use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use crate::{HubError, Result};

/// A model on the hub: `bert-base-uncased` or `google/electra-small-discriminator`, optionally with `@` and
/// a branch, tag or commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    /// `owner/name`, or the name alone.
    pub repo: String,
    /// The branch, tag or commit; `main` if none is given.
    pub revision: String,
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.revision {
            "main" => f.write_str(&self.repo),
            revision => write!(f, "{}@{revision}", self.repo),
        }
    }
}

impl FromStr for ModelName {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |reason| Err(HubError::Name { text: text.into(), reason });
        let (repo, revision) = text.split_once('@').unwrap_or((text, "main"));
        let parts: Vec<&str> = repo.split('/').collect();
        if parts.len() > 2 {
            return wrong("expected NAME or OWNER/NAME");
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        for part in parts {
            if part.is_empty() || !part.chars().all(plain) {
                return wrong("expected letters, digits, `-`, `_` and `.`, and one `/` at most");
            }
            if part.starts_with(['-', '.']) || part.ends_with(['-', '.']) {
                return wrong("no part of it begins or ends with `-` or `.`");
            }
        }
        // The cache writes `--` for the slash.
        if repo.contains("--") || repo.contains("..") || repo.len() > 96 {
            return wrong("it has no `--`, no `..`, and 96 characters at most");
        }
        let revision_char = |c: char| plain(c) || c == '/' || c == '+';
        if !revision.chars().all(revision_char) || !is_plain_path(revision) {
            return wrong("expected a branch, tag or commit after `@`");
        }
        Ok(Self { repo: repo.into(), revision: revision.into() })
    }
}

/// Whether a path from the server is relative, of plain names only.
pub(crate) fn is_plain_path(path: &str) -> bool {
    let down = |part: &str| {
        let mut parts = Path::new(part).components();
        matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
    };
    path.split('/').all(down) && !path.contains(['\\', ':', '\0'])
}

/// A model given by the user: a folder or a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder.
    Folder(PathBuf),
    /// A model on the hub.
    Name(ModelName),
}

impl Source {
    /// Interprets `text`: a folder if it exists or can only be a path (`./x`, `/x`, `~`, `runs/x/model`),
    /// else a name.
    ///
    /// # Errors
    /// [`HubError::Name`] for text that can be neither.
    pub fn of(text: &str) -> Result<Self> {
        let path = Path::new(text);
        let is_path = text.starts_with(['.', '/', '~'])
            || text.contains('\\')
            || path.is_absolute()
            || text
                .split('@')
                .next()
                .is_some_and(|repo| repo.matches('/').count() > 1 || repo.ends_with('/'));
        if is_path || path.exists() { Ok(Self::Folder(path.into())) } else { text.parse().map(Self::Name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shown() {
        for (text, repo, revision) in [
            ("bert-base-uncased", "bert-base-uncased", "main"),
            ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "main"),
            ("a/b_c.d@v1.0", "a/b_c.d", "v1.0"),
            ("a/b@refs/pr/1", "a/b", "refs/pr/1"),
        ] {
            let name: ModelName = text.parse().unwrap();
            assert_eq!((&*name.repo, &*name.revision), (repo, revision));
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "..",
            "a/..",
            "../a",
            "a b",
            "a--b",
            "-a",
            "a.",
            "é",
            "a/b@",
            "a@../x",
            "a@/x",
            "a@x/",
            "a@x//y",
            "a@.",
            "a@x y",
            "a?b",
            "a@b?c",
            &"a".repeat(97),
        ] {
            assert!(text.parse::<ModelName>().is_err(), "{text:?}");
        }
        let error = "a/b/c".parse::<ModelName>().unwrap_err().to_string();
        assert_eq!(error, r#""a/b/c" is not a model's name: expected NAME or OWNER/NAME"#);
    }

    #[test]
    fn a_folder_that_is_there_wins() {
        let name = |text: &str| matches!(Source::of(text).unwrap(), Source::Name(_));
        assert!(name("src-no-such") && name("a/b") && name("a/b@refs/pr/1"));
        // Tests run in the crate's folder.
        assert!(!name("src"));
        for path in ["./a", "../a", "/a/b", "~/a", "a/b/c", "a/"] {
            assert_eq!(Source::of(path).unwrap(), Source::Folder(path.into()), "{path}");
        }
        assert!(Source::of("no such thing").is_err());
    }
}
