//! The Rust sources: the types that serde reads, and what a name means in a file.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use syn::{Expr, Item, Stmt, UseTree};

/// The crates that configs are made of.
const CRATES: [&str; 3] = ["data", "model", "trainer"];

/// A file that derives or implements `Deserialize`; no others are read.
pub struct File {
    /// Relative to the repository.
    pub path: PathBuf,
    /// The crate's name, then the modules down to this one.
    module: Vec<String>,
    /// The full path of each imported name.
    uses: HashMap<String, Vec<String>>,
    /// Functions without arguments, and those in inline modules as `defaults::seed`: what they return.
    functions: HashMap<String, Expr>,
    /// Types with their own `impl Default`: what it returns.
    defaults: HashMap<String, Expr>,
    constants: HashMap<String, Expr>,
    /// Types with their own `impl Deserialize`.
    by_hand: Vec<String>,
}

/// A struct, an enum or an alias of a type.
pub struct Definition {
    pub name: String,
    /// Index in [`Sources::files`].
    pub file: usize,
    pub item: Item,
}

/// All files, and their types.
#[derive(Default)]
pub struct Sources {
    pub files: Vec<File>,
    pub definitions: Vec<Definition>,
    by_name: BTreeMap<String, Vec<usize>>,
}

impl Sources {
    /// Reads the crates of the repository at `root`.
    ///
    /// # Errors
    /// A folder or file that cannot be read; a file that is not Rust.
    pub fn read(root: &Path) -> Result<Self> {
        let mut sources = Self::default();
        for name in CRATES {
            let folder = root.join("crates").join(name).join("src");
            for path in rust_files(&folder)? {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let within = path.strip_prefix(&folder)?;
                sources.add(path.strip_prefix(root)?, module(&format!("cloze_{name}"), within), &text)?;
            }
        }
        Ok(sources)
    }

    /// Adds a file's text, if serde reads any type of it.
    ///
    /// # Errors
    /// Text that is not Rust.
    pub fn add(&mut self, path: &Path, module: Vec<String>, text: &str) -> Result<()> {
        if !text.contains("Deserialize") {
            return Ok(());
        }
        let syntax = syn::parse_file(text).with_context(|| path.display().to_string())?;
        let mut file = File {
            path: path.to_owned(),
            module,
            uses: HashMap::new(),
            functions: HashMap::new(),
            defaults: HashMap::new(),
            constants: HashMap::new(),
            by_hand: Vec::new(),
        };
        for item in syntax.items {
            self.add_item(&mut file, "", item);
        }
        self.files.push(file);
        Ok(())
    }

    fn add_item(&mut self, file: &mut File, within: &str, item: Item) {
        match item {
            Item::Use(item) => file.import(&mut Vec::new(), &item.tree),
            Item::Fn(item) if item.sig.inputs.is_empty() => {
                if let Some(value) = value_of(&item.block.stmts) {
                    file.functions.insert(format!("{within}{}", item.sig.ident), value);
                }
            }
            Item::Const(item) => _ = file.constants.insert(item.ident.to_string(), *item.expr),
            Item::Mod(item) if item.ident != "tests" => {
                let within = format!("{within}{}::", item.ident);
                for inner in item.content.map(|(_, items)| items).unwrap_or_default() {
                    self.add_item(file, &within, inner);
                }
            }
            Item::Impl(item) => file.implement(&item),
            Item::Struct(_) | Item::Enum(_) | Item::Type(_) if within.is_empty() => {
                let name = match &item {
                    Item::Struct(item) => item.ident.to_string(),
                    Item::Enum(item) => item.ident.to_string(),
                    Item::Type(item) => item.ident.to_string(),
                    _ => return,
                };
                self.by_name.entry(name.clone()).or_default().push(self.definitions.len());
                self.definitions.push(Definition { name, file: self.files.len(), item });
            }
            _ => {}
        }
    }

    /// The definition that a path means in a file; `None` for a type from elsewhere, such as `Vec`.
    ///
    /// # Errors
    /// A name that may mean several definitions.
    pub fn resolve(&self, file: usize, path: &[String]) -> Result<Option<usize>> {
        let Some(name) = path.last() else { return Ok(None) };
        let Some(candidates) = self.by_name.get(name) else { return self.resolve_renamed(file, path) };
        let here = &self.files[file];
        if let ([_], Some(local)) =
            (path, candidates.iter().find(|index| self.definitions[**index].file == file))
        {
            return Ok(Some(*local));
        }
        let Some((full, reach)) = here.absolute(path) else { return Ok(None) };
        let scope = &full[..full.len() - 1];
        let of = |index: usize| &self.files[self.definitions[index].file].module;
        let within = |least: usize| {
            let fits = |index: &usize| of(*index).starts_with(&scope[..least]);
            candidates.iter().copied().filter(fits).collect::<Vec<_>>()
        };
        // A module may re-export what is defined below it, or elsewhere in its crate.
        let elsewhere = if reach == Reach::Crate { within(1) } else { Vec::new() };
        for candidates in [within(scope.len()), elsewhere] {
            match candidates[..] {
                [] => {}
                [one] => return Ok(Some(one)),
                _ => bail!(
                    "{}: `{}` may mean several types of that name",
                    here.path.display(),
                    path.join("::")
                ),
            }
        }
        Ok(None)
    }

    /// As [`resolve`](Self::resolve), for a name that an import or an alias changes.
    fn resolve_renamed(&self, file: usize, path: &[String]) -> Result<Option<usize>> {
        match path {
            [name] => match self.files[file].uses.get(name).and_then(|full| full.last()) {
                Some(original) if original != name => {
                    let full = &self.files[file].uses[name];
                    self.resolve(file, full)
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The definition of a name that only one has.
    ///
    /// # Errors
    /// None, or several.
    pub fn named(&self, name: &str) -> Result<usize> {
        match self.by_name.get(name).map(Vec::as_slice) {
            Some([one]) => Ok(*one),
            Some(_) => bail!("several types are called `{name}`"),
            None => bail!("no type is called `{name}`"),
        }
    }

    /// What `impl Default` of a definition returns.
    pub fn default_of(&self, definition: usize) -> Option<&Expr> {
        let Definition { name, file, .. } = &self.definitions[definition];
        self.files[*file].defaults.get(name)
    }

    /// What a function without arguments returns.
    pub fn function(&self, file: usize, name: &str) -> Option<&Expr> {
        self.files[file].functions.get(name)
    }

    /// A constant of a file.
    pub fn constant(&self, file: usize, name: &str) -> Option<&Expr> {
        self.files[file].constants.get(name)
    }

    /// Whether a definition has its own `impl Deserialize`.
    pub fn is_by_hand(&self, definition: usize) -> bool {
        let Definition { name, file, .. } = &self.definitions[definition];
        self.files[*file].by_hand.contains(name)
    }

    /// A definition's file and name, for messages.
    pub fn place(&self, definition: usize) -> String {
        let Definition { name, file, .. } = &self.definitions[definition];
        format!("{}: `{name}`", self.files[*file].path.display())
    }
}

impl File {
    fn import(&mut self, prefix: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Name(name) => {
                let full = prefix.iter().cloned().chain([name.ident.to_string()]).collect();
                self.uses.insert(name.ident.to_string(), full);
            }
            UseTree::Rename(name) => {
                let full = prefix.iter().cloned().chain([name.ident.to_string()]).collect();
                self.uses.insert(name.rename.to_string(), full);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(prefix, tree)),
            _ => {}
        }
    }

    fn implement(&mut self, item: &syn::ItemImpl) {
        let (Some((path, _)), syn::Type::Path(of)) = (&item.trait_, &*item.self_ty) else { return };
        let (Some(name), Some(of)) = (path.segments.last(), of.path.segments.last()) else { return };
        if name.ident == "Deserialize" {
            self.by_hand.push(of.ident.to_string());
        }
        if name.ident != "Default" {
            return;
        }
        for inner in &item.items {
            if let syn::ImplItem::Fn(function) = inner
                && let Some(value) = value_of(&function.block.stmts)
            {
                self.defaults.insert(of.ident.to_string(), value);
            }
        }
    }

    /// A path from its crate on, through the imports.
    fn absolute(&self, path: &[String]) -> Option<(Vec<String>, Reach)> {
        let (first, rest) = path.split_first()?;
        let mut full = match self.uses.get(first) {
            Some(full) => full.clone(),
            None if rest.is_empty() => return None,
            None => vec![first.clone()],
        };
        full.extend_from_slice(rest);
        let mut module = self.module.clone();
        let mut reach = Reach::Crate;
        match full[0].as_str() {
            "crate" => module.truncate(1),
            "super" => {
                let ups = full.iter().take_while(|part| *part == "super").count();
                module.truncate(module.len().saturating_sub(ups).max(1));
                full.drain(..ups - 1);
            }
            "self" => {}
            name if name.starts_with("cloze_") => return Some((full, reach)),
            // A module below this one, or another crate, which defines nothing here.
            _ => {
                full.insert(0, "self".to_owned());
                reach = Reach::Module;
            }
        }
        module.extend_from_slice(&full[1..]);
        Some((module, reach))
    }
}

/// Where the item of a path may be defined.
#[derive(Clone, Copy, PartialEq)]
enum Reach {
    /// In or below the path's module.
    Module,
    /// Anywhere in the crate, from where the path's module re-exports it.
    Crate,
}

/// What a function's body returns.
fn value_of(body: &[Stmt]) -> Option<Expr> {
    match body.last()? {
        Stmt::Expr(value, None) => Some(value.clone()),
        _ => None,
    }
}

/// A crate's name, and the modules of a file of its `src` folder.
fn module(name: &str, file: &Path) -> Vec<String> {
    let parts = file.with_extension("");
    let parts = parts.iter().map(|part| part.to_string_lossy().into_owned());
    let parts = parts.filter(|part| !matches!(part.as_str(), "mod" | "lib"));
    [name.to_owned()].into_iter().chain(parts).collect()
}

/// The Rust files of a folder, sorted.
fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
