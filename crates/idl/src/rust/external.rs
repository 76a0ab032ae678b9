//! The option `external`: IDL modules and files whose Rust code another crate or module already
//! has.

use super::Generator;
use crate::diagnostic::Diagnostic;
use crate::model::{DefinitionId, DefinitionKind};
use crate::source::Span;
use std::collections::{HashMap, HashSet};
use std::path::Path;

#[derive(Debug, Default)]
pub(super) struct External {
    roots: HashSet<String>,
    modules: HashMap<DefinitionId, String>,
    files: HashMap<DefinitionId, String>,
    all: HashSet<DefinitionId>,
}

impl External {
    pub(super) fn has(&self, id: DefinitionId) -> bool {
        self.all.contains(&id)
    }

    pub(super) fn module(&self, id: DefinitionId) -> Option<&str> {
        self.modules.get(&id).map(String::as_str)
    }

    /// Adds the Rust path of a mapped file before the path of the file's definition. Returns other
    /// paths unchanged.
    pub(super) fn complete(&self, id: DefinitionId, mut path: Vec<String>) -> Vec<String> {
        if let Some(root) = self.files.get(&id)
            && !path.first().is_some_and(|first| self.is_root(first))
        {
            path.insert(0, root.clone());
        }
        path
    }

    pub(super) fn is_root(&self, first: &str) -> bool {
        self.roots.contains(first)
    }
}

impl Generator<'_> {
    pub(super) fn find_external(&mut self) -> Vec<Diagnostic> {
        let mut refused = Vec::new();
        let mut external = External::default();
        for (what, path) in &self.compilation.externals {
            let Some(root) = root(path) else {
                refused.push(Self::misuse(format!("`{path}`, which `{what}` is mapped to, is not a path of Rust")));
                continue;
            };
            let (modules, files) = (self.modules_called(what), self.definitions_of_file(what));
            if modules.is_empty() && files.is_empty() {
                let message = format!("there is no module and no file `{what}` to be mapped to `{path}`");
                refused.push(Self::misuse(message));
            }
            external.modules.extend(modules.into_iter().map(|id| (id, root.clone())));
            external.files.extend(files.into_iter().map(|id| (id, root.clone())));
            external.roots.insert(root);
        }
        let within = |id: &DefinitionId| {
            let mut outer = std::iter::successors(Some(*id), |id| self.model().get(*id).parent);
            external.files.contains_key(id) || outer.any(|id| external.modules.contains_key(&id))
        };
        external.all = self.model().definition_ids().filter(within).collect();
        self.external = external;
        refused
    }

    /// Returns an error about the options. The error has no location, so messages show it at the
    /// beginning of the source.
    fn misuse(message: String) -> Diagnostic {
        let help =
            "name a module of IDL as `A::B`, or a file as it is included, and a path of Rust as `a_crate::module`";
        Diagnostic::error(Span::default(), message).help(help)
    }

    fn modules_called(&self, name: &str) -> Vec<DefinitionId> {
        let name = name.trim_start_matches("::");
        let full_name = |id: DefinitionId| {
            let path = self.model().path(id).into_iter();
            path.map(|id| self.text(self.model().get(id).name)).collect::<Vec<_>>().join("::")
        };
        let modules =
            self.model().definition_ids().filter(|id| matches!(self.model().get(*id).kind, DefinitionKind::Module(_)));
        modules.filter(|id| full_name(*id) == name).collect()
    }

    /// Returns the definitions in the files with this name. Modules are not included, because
    /// several files may open one module.
    fn definitions_of_file(&self, name: &str) -> Vec<DefinitionId> {
        let sources = &self.compilation.sources;
        let is_in_file = |id: &DefinitionId| {
            let definition = self.model().get(*id);
            !self.is_built_in(*id)
                && !matches!(definition.kind, DefinitionKind::Module(_))
                && sources.file(sources.file_of(definition.span)).path.ends_with(Path::new(name))
        };
        self.model().definition_ids().filter(is_in_file).collect()
    }
}

/// Returns a Rust path in a form that is valid in every module: a path into another crate gets `::`
/// in front. Returns `None` if the text is not a path.
fn root(path: &str) -> Option<String> {
    let plain = path.strip_prefix("::").unwrap_or(path);
    let is_word = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && word.trim_start_matches("r#").bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_')
    };
    let local = plain == "crate" || plain.starts_with("crate::");
    plain.split("::").all(is_word).then(|| if local { plain.to_owned() } else { format!("::{plain}") })
}

#[cfg(test)]
mod tests {
    use super::root;

    #[test]
    fn paths_of_other_crates_get_two_colons_in_front() {
        for (path, expected) in [
            ("shared", Some("::shared")),
            ("::shared::idl", Some("::shared::idl")),
            ("shared::r#type", Some("::shared::r#type")),
            ("crate::shared", Some("crate::shared")),
            ("", None),
            ("a b", None),
            ("a::", None),
            ("a::1", None),
        ] {
            assert_eq!(root(path).as_deref(), expected, "{path}");
        }
    }
}
