//! Check of type names: two public types of the workspace must not have one name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::source;

/// Two files that define IDL constructs under the same names: as written, and as resolved.
const PAIR: [&str; 2] = ["crates/idl/src/ast.rs", "crates/idl/src/model.rs"];

/// Names of types that several modules may define, because code qualifies them with the module's
/// name.
const CONVENTIONS: [&str; 2] = ["Error", "State"];

/// Names that public types may share: `Reply` is a GIOP message, and the results of a call.
const SHARED: [&str; 1] = ["Reply"];

/// The files that define types of one name, each with true if its type is public.
type Definitions = BTreeSet<(String, bool)>;

pub(super) struct TypeNames(BTreeMap<String, Definitions>);

impl TypeNames {
    pub(super) fn read(root: &Path, folders: &[PathBuf]) -> Result<Self, String> {
        let mut types: BTreeMap<String, Definitions> = BTreeMap::new();
        for folder in folders {
            let source = source::read(&folder.join("src"))?;
            let place = folder.strip_prefix(root).unwrap_or(folder).join("src");
            for module in source.modules.values() {
                let file = place.join(&source.files[module.file].name).to_string_lossy().into_owned();
                for (name, is_public) in &module.types {
                    types.entry(name.clone()).or_default().insert((file.clone(), *is_public));
                }
            }
        }
        Ok(TypeNames(types))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn conflicts(&self) -> Vec<String> {
        let repeated = self.repeated().filter_map(|(name, definitions)| {
            let public: Vec<_> = definitions.iter().filter(|(_, is_public)| *is_public).collect();
            (public.len() > 1 && !is_pair(&public) && !SHARED.contains(&name.as_str()))
                .then(|| format!("`{name}` is the name of several public types: {}", files(&public)))
        });
        repeated.collect()
    }

    pub(super) fn list(&self) -> Vec<String> {
        let lines = self.repeated().filter_map(|(name, definitions)| {
            let all: Vec<_> = definitions.iter().collect();
            (!is_pair(&all)).then(|| format!("{name}: {}", files(&all)))
        });
        lines.collect()
    }

    fn repeated(&self) -> impl Iterator<Item = (&String, &Definitions)> {
        let conventional = |name: &String| CONVENTIONS.contains(&name.as_str());
        self.0.iter().filter(move |(name, definitions)| definitions.len() > 1 && !conventional(name))
    }
}

fn is_pair(definitions: &[&(String, bool)]) -> bool {
    definitions.iter().map(|(file, _)| file.as_str()).eq(PAIR)
}

fn files(definitions: &[&(String, bool)]) -> String {
    let files: Vec<_> =
        definitions.iter().map(|(file, public)| format!("{file}{}", if *public { " (pub)" } else { "" })).collect();
    files.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::source::tests::folder_of;
    use super::*;

    fn types(of: &[(&str, &[(&str, bool)])]) -> TypeNames {
        let definitions = |files: &[(&str, bool)]| {
            files.iter().map(|(file, is_public)| ((*file).to_owned(), *is_public)).collect::<Definitions>()
        };
        TypeNames(of.iter().map(|(name, files)| ((*name).to_owned(), definitions(files))).collect())
    }

    #[test]
    fn two_public_types_of_one_name_are_refused() {
        let names = types(&[
            ("Lane", &[("a.rs", true), ("b.rs", true)]),
            ("Pool", &[("a.rs", true), ("b.rs", false)]),
            ("Error", &[("a.rs", true), ("b.rs", true)]),
        ]);
        assert_eq!(names.conflicts(), ["`Lane` is the name of several public types: a.rs (pub), b.rs (pub)"]);
        assert_eq!(names.list(), ["Lane: a.rs (pub), b.rs (pub)", "Pool: a.rs (pub), b.rs"]);
    }

    #[test]
    fn constructs_of_idl_share_a_name_in_the_syntax_tree_and_the_model_only() {
        assert!(types(&[("Union", &[(PAIR[0], true), (PAIR[1], true)])]).conflicts().is_empty());
        let third = types(&[("Union", &[(PAIR[0], true), (PAIR[1], true), ("crates/wire/src/lib.rs", true)])]);
        assert_eq!(third.conflicts().len(), 1);
    }

    #[test]
    fn types_are_found_in_all_modules_but_not_in_tests() {
        let root = folder_of(&[
            ("one/src/lib.rs", "mod inner { pub struct Lane; } #[cfg(test)] mod tests { pub struct Pool; }"),
            ("two/src/lib.rs", "pub enum Lane {} pub trait Pool {} impl Pool for u8 { type Lane = u8; }"),
        ]);
        let names = TypeNames::read(&root, &[root.join("one"), root.join("two")]);
        std::fs::remove_dir_all(&root).unwrap();
        let names = names.unwrap();
        assert_eq!(names.list(), ["Lane: one/src/lib.rs (pub), two/src/lib.rs (pub)"]);
        assert_eq!(names.len(), 2);
    }
}
