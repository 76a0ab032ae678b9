//! Reads a crate: its modules, the names that they import and export, and the paths in them.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree, Visibility};

pub(super) type Segments = Vec<String>;

#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) lines: usize,
}

#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) file: usize,
    pub(super) imports: HashMap<String, Segments>,
    /// Paths of `use` declarations that end in `*`.
    pub(super) globs: Vec<Segments>,
    pub(super) definitions: HashSet<String>,
    /// Paths in code and in private imports; re-exports are omitted.
    pub(super) uses: HashSet<Segments>,
    /// Names of types and traits, with true for a public one.
    pub(super) types: Vec<(String, bool)>,
}

#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) files: Vec<File>,
    pub(super) macros: HashMap<String, usize>,
    pub(super) modules: HashMap<Segments, Module>,
}

pub(super) fn read(folder: &Path) -> Result<Source, String> {
    let mut source = Source::default();
    let root = ["lib.rs", "main.rs"].map(|name| folder.join(name)).into_iter().find(|path| path.exists());
    let root = root.ok_or_else(|| format!("{} has neither lib.rs nor main.rs", folder.display()))?;
    source.add_file(folder, &root, folder, &[])?;
    Ok(source)
}

impl Source {
    /// Adds a file and its child modules. `children` is the folder of the child modules.
    fn add_file(&mut self, src: &Path, path: &Path, children: &Path, module: &[String]) -> Result<(), String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.strip_prefix(src).unwrap_or(path).to_string_lossy().into_owned();
        let parsed = syn::parse_file(&text).map_err(|error| format!("{name}: {error}"))?;
        let file = self.files.len();
        self.files.push(File { name, lines: text.lines().count() });
        let inner = self.add_module(file, module, &parsed.items);
        for (child, given) in inner {
            let (name, nested) = (&child[child.len() - 1], &child[module.len()..child.len() - 1]);
            let mut folder = children.to_path_buf();
            folder.extend(nested);
            let own = folder.join(name);
            let candidates = match given {
                Some(given) => {
                    let path = path.with_file_name(given);
                    vec![(path.clone(), path.with_file_name(""))]
                }
                None => vec![(own.with_extension("rs"), own.clone()), (own.join("mod.rs"), own)],
            };
            let Some((path, below)) = candidates.into_iter().find(|(path, _): &(PathBuf, PathBuf)| path.exists())
            else {
                return Err(format!("{}: the file of module {} is missing", path.display(), child.join("::")));
            };
            self.add_file(src, &path, &below, &child)?;
        }
        Ok(())
    }

    /// Adds a module and its inline child modules. Returns the paths of the child modules in
    /// separate files, each with the file name in its `path` attribute.
    fn add_module(&mut self, file: usize, path: &[String], items: &[Item]) -> Vec<(Segments, Option<String>)> {
        let mut module = Module { file, ..Module::default() };
        let mut outside = Vec::new();
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Mod(child) => {
                    let mut inner = path.to_vec();
                    inner.push(child.ident.to_string());
                    match &child.content {
                        Some((_, items)) => outside.extend(self.add_module(file, &inner, items)),
                        None => outside.push((inner, given_path(&child.attrs))),
                    }
                }
                Item::Use(import) => module.add_import(import),
                item => {
                    if let Item::Macro(item) = item
                        && let Some(name) = &item.ident
                        && item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"))
                    {
                        self.macros.insert(name.to_string(), file);
                    }
                    module.definitions.extend(defined(item));
                    module.types.extend(defined_type(item));
                    PathCollector(&mut module).visit_item(item);
                }
            }
        }
        self.modules.insert(path.to_vec(), module);
        outside
    }
}

impl Module {
    fn add_import(&mut self, import: &ItemUse) {
        let mut leaves = Vec::new();
        flatten(&import.tree, &mut Vec::new(), &mut leaves);
        let is_private = matches!(import.vis, Visibility::Inherited);
        for (path, name) in leaves {
            if is_private {
                self.uses.insert(path.clone());
            }
            match name {
                Some(name) => {
                    self.imports.insert(name, path);
                }
                None => self.globs.push(path),
            }
        }
    }
}

/// Splits a `use` declaration into paths and the names that they bind. A path that ends in `*`
/// binds no name.
fn flatten(tree: &UseTree, before: &mut Segments, into: &mut Vec<(Segments, Option<String>)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, into);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, before, into)),
        UseTree::Glob(_) => into.push((before.clone(), None)),
        UseTree::Name(name) => into.push(leaf(before, &name.ident.to_string(), None)),
        UseTree::Rename(rename) => {
            into.push(leaf(before, &rename.ident.to_string(), Some(rename.rename.to_string())));
        }
    }
}

fn leaf(before: &Segments, name: &str, rename: Option<String>) -> (Segments, Option<String>) {
    let mut path = before.clone();
    if name != "self" {
        path.push(name.to_owned());
    }
    let bound = rename.or_else(|| path.last().cloned());
    (path, bound)
}

fn defined(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        _ => return None,
    })
}

fn defined_type(item: &Item) -> Option<(String, bool)> {
    let visibility = match item {
        Item::Enum(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Union(item) => &item.vis,
        _ => return None,
    };
    Some((defined(item)?, matches!(visibility, Visibility::Public(_))))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn given_path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string().replace(' ', "");
        let alone = ["test", "doctest", "loom"];
        let first = |of: &str| alone.iter().any(|word| condition.starts_with(&format!("{of}({word}")));
        list.path.is_ident("cfg") && (alone.contains(&condition.as_str()) || first("any") || first("all"))
    })
}

struct PathCollector<'m>(&'m mut Module);

impl<'ast> Visit<'ast> for PathCollector<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // A path of one segment names a local item, or an import, which [`Module::add_import`]
        // counts.
        if path.leading_colon.is_none() && segments.len() > 1 {
            self.0.uses.insert(segments);
        }
        visit::visit_path(self, path);
    }

    /// Skips `pub(in path)`, because its path does not use a module.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    /// Skips attributes, because their names are not modules.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        self.0.add_import(import);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.visit_path(&mac.path);
        let text = mac.tokens.to_string();
        self.0.uses.extend(paths_in_tokens(&text));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }
}

/// Returns the paths of two or more segments in the printed tokens of a macro, which have blanks
/// between them.
fn paths_in_tokens(text: &str) -> Vec<Segments> {
    let mut paths = Vec::new();
    let mut path: Segments = Vec::new();
    let mut joined = false;
    for token in tokens(text) {
        let is_name = token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
        if token == "::" {
            joined = !path.is_empty();
        } else if is_name && joined {
            path.push(token.to_owned());
            joined = false;
        } else {
            if path.len() > 1 {
                paths.push(std::mem::take(&mut path));
            }
            path.clear();
            joined = false;
            if is_name {
                path.push(token.to_owned());
            }
        }
    }
    if path.len() > 1 {
        paths.push(path);
    }
    paths
}

fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let length = if letter.is_alphanumeric() || letter == '_' {
            rest.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else if letter == '"' {
            rest = &rest[quoted(rest)..];
            continue;
        } else {
            letter.len_utf8()
        };
        if !letter.is_whitespace() {
            found.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    found
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::modules) fn parsed(files: &[(&str, &str)]) -> Source {
        let folder = folder_of(files);
        let source = read(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        source.unwrap()
    }

    pub(in crate::modules) fn folder_of(files: &[(&str, &str)]) -> PathBuf {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("corelane-xtask-modules-{}-{number}", std::process::id()));
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn segments(path: &str) -> Segments {
        path.split("::").map(ToOwned::to_owned).collect()
    }

    #[test]
    fn modules_are_found_in_files_folders_and_inline() {
        let source = parsed(&[
            ("lib.rs", "mod a; mod b; mod c { mod d; } #[path = \"f/mod.rs\"] mod g; #[cfg(test)] mod gone;"),
            ("f/mod.rs", "mod h;"),
            ("f/h.rs", ""),
            ("a.rs", ""),
            ("b/mod.rs", "mod e;"),
            ("b/e.rs", ""),
            ("c/d.rs", ""),
        ]);
        let mut modules: Vec<String> = source.modules.keys().map(|path| path.join("::")).collect();
        modules.sort();
        assert_eq!(modules, ["", "a", "b", "b::e", "c", "c::d", "g", "g::h"]);
    }

    #[test]
    fn missing_file_of_a_module_is_an_error() {
        let folder = std::env::temp_dir().join(format!("corelane-xtask-missing-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("lib.rs"), "mod nowhere;").unwrap();
        let error = read(&folder).unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains("nowhere"), "{error}");
    }

    #[test]
    fn paths_are_found_in_code_and_macros_but_not_in_tests() {
        let source = parsed(&[(
            "lib.rs",
            "use crate::a::{self, B as C, d::*};
             pub use crate::e::F;
             fn f(x: crate::g::H) { probe!(\"crate::not::this\", crate::i::J); }
             #[cfg(test)] fn t() { crate::k::l(); }
             impl C { #[cfg(test)] fn t() { crate::k::m(); } pub(in crate::n) fn p() {} }
             macro_rules! m { () => { $crate::o::P } }",
        )]);
        let root = &source.modules[&Vec::new()];
        for path in ["crate::a", "crate::a::B", "crate::a::d", "crate::g::H", "crate::i::J", "crate::o::P"] {
            assert!(root.uses.contains(&segments(path)), "{path} in {:?}", root.uses);
        }
        for path in ["crate::e::F", "crate::k::l", "crate::k::m", "crate::n", "crate::not::this"] {
            assert!(!root.uses.contains(&segments(path)), "{path}");
        }
        assert_eq!(root.imports["C"], segments("crate::a::B"));
        assert_eq!(root.imports["F"], segments("crate::e::F"));
        assert_eq!(root.globs, [segments("crate::a::d")]);
    }
}
