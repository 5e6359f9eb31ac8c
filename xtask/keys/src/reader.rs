//! Reads what a config may hold from the types that serde reads.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use syn::{Attribute, Fields, Item, Type};

use crate::attributes::{self, Serde};
use crate::default::{Evaluator, Value, literal};
use crate::prose::{self, Told};
use crate::shape::{Choice, Choices, Content, DefaultValue, Key, Kind, KindKeys, Shape, Table};
use crate::source::Sources;

/// All tables that were read, and what is wrong with their comments.
pub struct Shapes<'a> {
    sources: &'a Sources,
    pub tables: Vec<Table>,
    known: BTreeMap<usize, Shape>,
    /// Definitions whose comments are not shown: those of whole configs, for readers of the library.
    roots: Vec<usize>,
    pub faults: Vec<String>,
}

/// Where a type stands: the file, and the types that its parameters are.
struct Scope {
    definition: usize,
    file: usize,
    parameters: BTreeMap<String, Type>,
}

impl<'a> Shapes<'a> {
    pub fn new(sources: &'a Sources, roots: Vec<usize>) -> Self {
        Self { sources, tables: Vec::new(), known: BTreeMap::new(), roots, faults: Vec::new() }
    }

    /// The shape of a definition.
    ///
    /// # Errors
    /// Something in it whose keys cannot be told.
    pub fn of_definition(&mut self, definition: usize) -> Result<Shape> {
        if let Some(shape) = self.known.get(&definition) {
            return Ok(shape.clone());
        }
        let shape = self.read(definition).with_context(|| self.sources.place(definition))?;
        self.known.insert(definition, shape.clone());
        Ok(shape)
    }

    fn read(&mut self, definition: usize) -> Result<Shape> {
        let sources = self.sources;
        let found = &sources.definitions[definition];
        let mut scope = Scope { definition, file: found.file, parameters: BTreeMap::new() };
        if sources.is_by_hand(definition) {
            // Such types are names, which the comment of their key lists.
            return Ok(Shape::Text);
        }
        match &found.item {
            Item::Type(alias) => self.of_type(&scope, &alias.ty),
            Item::Struct(item) => {
                let serde = Serde::read(&item.attrs)?;
                for parameter in item.generics.type_params() {
                    if let Some((_, default)) = &parameter.default {
                        scope.parameters.insert(parameter.ident.to_string(), default.clone());
                    }
                }
                if let Some(from) = &serde.from {
                    return self.of_type(&scope, &syn::parse_str(from)?);
                }
                match &item.fields {
                    Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                        self.of_type(&scope, &fields.unnamed[0].ty)
                    }
                    Fields::Named(fields) if serde.transparent => self.of_type(&scope, &fields.named[0].ty),
                    Fields::Named(_) => {
                        let keys = self.keys(&scope, &serde, &found.name, &item.fields, &[])?;
                        Ok(self.table(&scope, &item.attrs, Content::Keys(keys)))
                    }
                    _ => bail!("it has no names for its fields"),
                }
            }
            Item::Enum(item) => {
                let serde = Serde::read(&item.attrs)?;
                // Read as another type, but described here.
                let Some(from) = &serde.from else { return self.of_enum(&scope, item, None) };
                let read: Type = syn::parse_str(from)?;
                let other = self.definition_of(&scope, &read)?.context("the type that it is read as")?;
                match &sources.definitions[other].item {
                    Item::Enum(other) => self.of_enum(&scope, other, Some(item)),
                    _ => self.of_definition(other),
                }
            }
            _ => bail!("it is neither a struct nor an enum"),
        }
    }

    /// The shape of an enum. `described` has the comments, if it is another one.
    fn of_enum(
        &mut self,
        scope: &Scope,
        item: &syn::ItemEnum,
        described: Option<&syn::ItemEnum>,
    ) -> Result<Shape> {
        let serde = Serde::read(&item.attrs)?;
        let mut kinds = Vec::new();
        for variant in &item.variants {
            let own = Serde::read(&variant.attrs)?;
            if own.skip {
                continue;
            }
            let twin = described.and_then(|item| item.variants.iter().find(|of| of.ident == variant.ident));
            if serde.untagged {
                let Fields::Unnamed(fields) = &variant.fields else { bail!("an untagged variant") };
                kinds.push((
                    Vec::new(),
                    String::new(),
                    KindKeys::Own(Vec::new()),
                    self.of_type(scope, &fields.unnamed[0].ty)?,
                ));
                continue;
            }
            let name = own.variant(&variant.ident.to_string(), serde.rename_all.as_deref())?;
            let place = format!("{}::{}", item.ident, variant.ident);
            let doc =
                self.doc(scope, &place, [&variant.attrs, twin.map_or(&variant.attrs, |twin| &twin.attrs)]);
            let keys = match &variant.fields {
                Fields::Unit => KindKeys::Own(Vec::new()),
                Fields::Named(_) => {
                    let twins = twin.map(|twin| twin.fields.iter().collect()).unwrap_or_default();
                    let twins: Vec<&syn::Field> = twins;
                    KindKeys::Own(self.keys(scope, &own, &place, &variant.fields, &twins)?)
                }
                Fields::Unnamed(fields) => match self.of_type(scope, &fields.unnamed[0].ty)? {
                    Shape::Table(table) => KindKeys::Of(table),
                    _ => bail!("the variant `{}` holds no table", variant.ident),
                },
            };
            let names = [name].into_iter().chain(own.alias).collect();
            kinds.push((names, doc, keys, Shape::Text));
        }
        if serde.untagged {
            return Ok(Shape::Either(kinds.into_iter().map(|(.., shape)| shape).collect()));
        }
        if let Some(tag) = serde.tag {
            let kinds = kinds.into_iter().map(|(names, doc, keys, _)| Kind { names, doc, keys }).collect();
            let attributes = described.map_or(&item.attrs, |item| &item.attrs);
            return Ok(self.table(scope, attributes, Content::Kinds { tag, kinds }));
        }
        let choices = kinds.into_iter().map(|(names, doc, keys, _)| match keys {
            KindKeys::Own(keys) => Ok(Choice { names, doc, keys }),
            KindKeys::Of(_) => Err(anyhow!("a variant holds a table of another type")),
        });
        Ok(Shape::OneOf(Choices { of: item.ident.to_string(), choices: choices.collect::<Result<_>>()? }))
    }

    fn table(&mut self, scope: &Scope, attributes: &[Attribute], content: Content) -> Shape {
        let of = self.sources.definitions[scope.definition].name.clone();
        let is_root = self.roots.contains(&scope.definition);
        let paragraphs = if is_root { Vec::new() } else { prose::paragraphs(&attributes::doc(attributes)) };
        if paragraphs.is_empty() && !is_root {
            self.faults.push(format!("{} has no doc comment", self.sources.place(scope.definition)));
        }
        let doc = paragraphs.iter().map(|text| self.plain(scope, &of, text)).collect();
        self.tables.push(Table { of, doc, content });
        Shape::Table(self.tables.len() - 1)
    }

    /// The keys of fields. `twins` are fields that may have the comments.
    fn keys(
        &mut self,
        scope: &Scope,
        serde: &Serde,
        of: &str,
        fields: &Fields,
        twins: &[&syn::Field],
    ) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        for field in fields {
            let own = Serde::read(&field.attrs)?;
            let Some(ident) = &field.ident else { bail!("a field without a name") };
            if own.skip {
                continue;
            }
            if own.flatten {
                let Shape::Table(table) = self.of_type(scope, &field.ty)? else { bail!("`{ident}` is flat") };
                let Content::Keys(flat) = &self.tables[table].content else { bail!("`{ident}` is flat") };
                keys.extend(flat.clone());
                continue;
            }
            let twin = twins.iter().find(|twin| twin.ident.as_ref() == Some(ident));
            let place = format!("{of}.{ident}");
            let doc = self.doc(scope, &place, [&field.attrs, twin.map_or(&field.attrs, |twin| &twin.attrs)]);
            let shape = self.of_type(scope, &field.ty).with_context(|| format!("`{ident}`"))?;
            let (meaning, default) = self.default(scope, serde, &own, field, &place, &doc);
            let name = own.field(&ident.to_string(), serde.rename_all.as_deref())?;
            let names = [name].into_iter().chain(own.alias).collect();
            keys.push(Key { names, shape, default, meaning });
        }
        Ok(keys)
    }

    /// A key's meaning and its default: from the code where that can be read, else as the comment says.
    fn default(
        &mut self,
        scope: &Scope,
        container: &Serde,
        own: &Serde,
        field: &syn::Field,
        place: &str,
        doc: &str,
    ) -> (String, DefaultValue) {
        let told = Told::of(doc);
        let evaluator = Evaluator { sources: self.sources, definition: scope.definition };
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        let value = match (&own.default, &container.default) {
            (Some(Some(function)), _) => evaluator.function(function),
            (Some(None), _) => evaluator.of_type(&field.ty),
            (None, Some(_)) => evaluator.member(scope.definition, &name),
            (None, None) => None,
        };
        let is_optional = own.default.is_some() || container.default.is_some() || is_option(&field.ty);
        let code = value.as_ref().and_then(Value::toml);
        if let (Some(code), Some(word)) = (&code, told.first().and_then(literal))
            && literal(code).is_some_and(|code| code != word)
        {
            self.faults.push(format!(
                "{}, `{place}`: the comment says that the default is {word}, but it is {code}",
                self.sources.files[scope.file].path.display()
            ));
        }
        if told.is_required {
            return (told.meaning, DefaultValue::Required);
        }
        match (code, told.default.clone()) {
            (Some(code), Some(_)) if told.is_only(&code) => (told.meaning, DefaultValue::Value(code)),
            // More than the value is said: keep it.
            (Some(code), _) => (doc.to_owned(), DefaultValue::Value(code)),
            (None, Some(text)) => (told.meaning, DefaultValue::Told(text)),
            (None, None) if is_optional => {
                (doc.to_owned(), value.map_or(DefaultValue::Unset, Value::otherwise))
            }
            (None, None) => (doc.to_owned(), DefaultValue::Required),
        }
    }

    /// The first of these comments that there is, as one line.
    fn doc(&mut self, scope: &Scope, place: &str, comments: [&Vec<Attribute>; 2]) -> String {
        let read = comments.map(|attributes| prose::paragraphs(&attributes::doc(attributes)).join(" "));
        let Some(text) = read.into_iter().find(|text| !text.is_empty()) else {
            let file = self.sources.files[scope.file].path.display();
            self.faults.push(format!("{file}: `{place}` has no doc comment"));
            return String::new();
        };
        self.plain(scope, place, &text)
    }

    /// A comment's text without links to Rust items.
    fn plain(&mut self, scope: &Scope, place: &str, text: &str) -> String {
        let name = |item: &str| self.name_in_config(scope, item);
        match prose::without_links(text, &name) {
            Ok(text) => text,
            Err(error) => {
                let file = self.sources.files[scope.file].path.display();
                self.faults.push(format!("{file}, the comment of `{place}`: {error}"));
                text.to_owned()
            }
        }
    }

    /// What a config calls a variant or a field.
    fn name_in_config(&self, scope: &Scope, item: &str) -> Option<String> {
        let parts: Vec<String> = item.split("::").map(str::to_owned).collect();
        let (member, of) = parts.split_last()?;
        let definition = match of {
            [one] if one == "Self" => Some(scope.definition),
            [] => None,
            of => self.sources.resolve(scope.file, of).ok()?,
        }?;
        match &self.sources.definitions[definition].item {
            Item::Enum(item) => {
                let serde = Serde::read(&item.attrs).ok()?;
                let variant = item.variants.iter().find(|variant| variant.ident == member)?;
                let own = Serde::read(&variant.attrs).ok()?;
                Some(format!("`\"{}\"`", own.variant(member, serde.rename_all.as_deref()).ok()?))
            }
            Item::Struct(item) => {
                let serde = Serde::read(&item.attrs).ok()?;
                let is_it = |field: &&syn::Field| field.ident.as_ref().is_some_and(|ident| ident == member);
                let field = item.fields.iter().find(is_it)?;
                let own = Serde::read(&field.attrs).ok()?;
                Some(format!("`{}`", own.field(member, serde.rename_all.as_deref()).ok()?))
            }
            _ => None,
        }
    }

    /// The definition that a type names.
    fn definition_of(&self, scope: &Scope, of: &Type) -> Result<Option<usize>> {
        let Type::Path(path) = of else { return Ok(None) };
        let parts: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.sources.resolve(scope.file, &parts)
    }

    fn of_type(&mut self, scope: &Scope, of: &Type) -> Result<Shape> {
        if let Type::Array(array) = of {
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(n), .. }) = &array.len else {
                bail!("a list of a length that is no number")
            };
            return Ok(Shape::Fixed(
                Box::new(self.of_type(scope, &array.elem)?),
                n.base10_digits().to_owned(),
            ));
        }
        let Type::Path(path) = of else { bail!("a type that no config can hold") };
        let Some(last) = path.path.segments.last() else { bail!("a type without a name") };
        let name = last.ident.to_string();
        if let Some(parameter) = scope.parameters.get(&name).cloned() {
            return self.of_type(scope, &parameter);
        }
        if let Some(definition) = self.definition_of(scope, of)? {
            return self.of_definition(definition);
        }
        let inside: Vec<&Type> = arguments(&last.arguments);
        Ok(match (name.as_str(), inside.as_slice()) {
            ("Option" | "Box" | "Arc", [inner]) => self.of_type(scope, inner)?,
            ("Vec" | "BTreeSet" | "HashSet", [inner]) => Shape::List(Box::new(self.of_type(scope, inner)?)),
            ("BTreeMap" | "HashMap", [_, inner]) => Shape::Names(Box::new(self.of_type(scope, inner)?)),
            ("String", []) => Shape::Text,
            ("PathBuf", []) => Shape::Path,
            ("bool", []) => Shape::Flag,
            ("char", []) => Shape::Character,
            ("f32" | "f64", []) => Shape::Number,
            ("u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize", []) => {
                Shape::Whole
            }
            _ => bail!("the reference does not know the type `{name}`"),
        })
    }
}

/// The types within a type's angle brackets.
pub(crate) fn arguments(arguments: &syn::PathArguments) -> Vec<&Type> {
    let syn::PathArguments::AngleBracketed(arguments) = arguments else { return Vec::new() };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        syn::GenericArgument::Type(of) => Some(of),
        _ => None,
    });
    types.collect()
}

fn is_option(of: &Type) -> bool {
    matches!(of, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Option"))
}
