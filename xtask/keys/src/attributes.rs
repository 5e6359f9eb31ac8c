//! What attributes say: doc comments and serde's.

use anyhow::{Result, bail};
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// serde's attributes of a type, a variant or a field, as far as they change what is read.
#[derive(Debug, Default)]
pub struct Serde {
    pub rename: Option<String>,
    pub rename_all: Option<String>,
    pub alias: Vec<String>,
    pub tag: Option<String>,
    pub from: Option<String>,
    /// `default`, or the path of its function.
    pub default: Option<Option<String>>,
    pub untagged: bool,
    pub transparent: bool,
    pub flatten: bool,
    pub skip: bool,
}

impl Serde {
    /// Reads the attributes.
    ///
    /// # Errors
    /// One that this reference does not know, since it may change the keys.
    pub fn read(attributes: &[Attribute]) -> Result<Self> {
        let mut read = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
            let mut unknown = None;
            attribute.parse_nested_meta(|meta| {
                let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                let value = match meta.input.peek(syn::Token![=]) {
                    true => Some(meta.value()?.parse::<syn::LitStr>()?.value()),
                    false => None,
                };
                match (name.as_str(), value) {
                    ("rename", Some(value)) => read.rename = Some(value),
                    ("rename_all", Some(value)) => read.rename_all = Some(value),
                    ("alias", Some(value)) => read.alias.push(value),
                    ("tag", Some(value)) => read.tag = Some(value),
                    ("from" | "try_from", Some(value)) => read.from = Some(value),
                    ("default", value) => read.default = Some(value),
                    ("untagged", None) => read.untagged = true,
                    ("transparent", None) => read.transparent = true,
                    ("flatten", None) => read.flatten = true,
                    ("skip" | "skip_deserializing", None) => read.skip = true,
                    (
                        "deny_unknown_fields"
                        | "skip_serializing"
                        | "skip_serializing_if"
                        | "serialize_with"
                        | "into"
                        | "expecting"
                        | "bound",
                        _,
                    ) => {}
                    (other, _) => unknown = Some(other.to_owned()),
                }
                Ok(())
            })?;
            if let Some(name) = unknown {
                bail!("the reference cannot tell what `#[serde({name})]` means for the keys");
            }
        }
        Ok(read)
    }

    /// The name of a variant in a config.
    ///
    /// # Errors
    /// Another style of names than those known.
    pub fn variant(&self, ident: &str, rename_all: Option<&str>) -> Result<String> {
        if let Some(name) = &self.rename {
            return Ok(name.clone());
        }
        let words = || {
            let mut words = String::new();
            for (at, letter) in ident.char_indices() {
                if at > 0 && letter.is_uppercase() {
                    words.push('_');
                }
                words.extend(letter.to_lowercase());
            }
            words
        };
        Ok(match rename_all {
            None => ident.to_owned(),
            Some("lowercase") => ident.to_lowercase(),
            Some("snake_case") => words(),
            Some("kebab-case") => words().replace('_', "-"),
            Some(other) => bail!("the reference does not know `rename_all = \"{other}\"`"),
        })
    }

    /// The name of a field in a config.
    ///
    /// # Errors
    /// Another style of names than those known.
    pub fn field(&self, ident: &str, rename_all: Option<&str>) -> Result<String> {
        let ident = ident.trim_start_matches("r#");
        Ok(match (&self.rename, rename_all) {
            (Some(name), _) => name.clone(),
            (None, None | Some("lowercase" | "snake_case")) => ident.to_owned(),
            (None, Some("kebab-case")) => ident.replace('_', "-"),
            (None, Some(other)) => bail!("the reference does not know `rename_all = \"{other}\"`"),
        })
    }
}

/// The lines of a doc comment.
pub fn doc(attributes: &[Attribute]) -> Vec<String> {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    // A block comment has several lines.
    let lines = lines.flat_map(|text| text.split('\n').map(str::to_owned).collect::<Vec<_>>());
    lines.map(|line| line.strip_prefix(' ').map_or(line.clone(), str::to_owned)).collect()
}

/// Whether a type derives `Default`.
pub fn derives_default(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("derive")).any(|attribute| {
        let mut derives = false;
        let read = attribute.parse_nested_meta(|meta| {
            derives |= meta.path.is_ident("Default");
            Ok(())
        });
        read.is_ok() && derives
    })
}

/// Whether an enum's variant has the attribute `#[default]`.
pub fn is_default(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("default"))
}
