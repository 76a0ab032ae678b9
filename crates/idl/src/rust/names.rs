//! Rust names of definitions: IDL names in Rust's conventions, with keywords escaped and collisions
//! resolved.

use crate::ast::{InterfaceFlavor, ValueFlavor};
use crate::model::{DefinitionId, DefinitionKind, Model};
use crate::source::Span;
use crate::symbol::Symbols;
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub(super) struct RustNames {
    /// The name of a definition; for an attribute, the name of its getter.
    pub(super) item: HashMap<DefinitionId, String>,
    pub(super) setter: HashMap<DefinitionId, String>,
    pub(super) reference: HashMap<DefinitionId, String>,
    pub(super) object: HashMap<DefinitionId, String>,
    pub(super) operations_trait: HashMap<DefinitionId, String>,
    pub(super) factory: HashMap<DefinitionId, String>,
    /// The skeleton of an interface, or the holder of a value's implementation.
    pub(super) skeleton: HashMap<DefinitionId, String>,
    /// The module for declarations inside an interface, value type, structure, exception or union.
    pub(super) inner: HashMap<DefinitionId, String>,
    pub(super) description: HashMap<DefinitionId, String>,
    pub(super) taken: HashMap<Option<DefinitionId>, HashSet<String>>,
}

impl RustNames {
    pub(super) fn of(model: &Model, symbols: &Symbols) -> Self {
        let mut names = Self::default();
        names.module(model, symbols, None, &model.roots);
        for id in model.definition_ids() {
            if let DefinitionKind::Module(members) = &model.get(id).kind {
                names.module(model, symbols, Some(id), members);
            }
        }
        for id in model.definition_ids() {
            match &model.get(id).kind {
                DefinitionKind::Interface(interface) => names.module(model, symbols, Some(id), &interface.members),
                DefinitionKind::Value(value) => names.module(model, symbols, Some(id), &value.members),
                DefinitionKind::Struct(structure) | DefinitionKind::Exception(structure) => {
                    names.module(model, symbols, Some(id), &structure.inner)
                }
                DefinitionKind::Union(union) => names.module(model, symbols, Some(id), &union.inner),
                DefinitionKind::Enum(enumerators) => {
                    let mut taken = HashSet::new();
                    for enumerator in enumerators {
                        let name = escaped(upper_camel(symbols.text(model.get(*enumerator).name)));
                        names.item.insert(*enumerator, free(name, &mut taken));
                    }
                }
                _ => {}
            }
        }
        names.operations(model, symbols);
        names
    }

    /// Assigns the names of one module's items. Names from IDL are assigned first, so that
    /// generated names differ from them.
    fn module(&mut self, model: &Model, symbols: &Symbols, parent: Option<DefinitionId>, members: &[DefinitionId]) {
        let mut taken = self.taken.remove(&parent).unwrap_or_default();
        for id in members {
            let definition = model.get(*id);
            let text = symbols.text(definition.name);
            let name = match &definition.kind {
                DefinitionKind::Operation(_) | DefinitionKind::Attribute(_) => continue,
                DefinitionKind::Module(_) => snake(text),
                DefinitionKind::Constant(..) => screaming(text),
                DefinitionKind::Typedef(_)
                    if model
                        .unaliased_definition(&crate::model::Type::Named(*id))
                        .is_some_and(|of| is_reference(model, of)) =>
                {
                    upper_camel(text) + "Ref"
                }
                _ => upper_camel(text),
            };
            self.item.insert(*id, free(escaped(name), &mut taken));
        }
        for id in members {
            let definition = model.get(*id);
            let text = symbols.text(definition.name);
            let has_inner = match &definition.kind {
                DefinitionKind::Interface(interface) => {
                    let camel = upper_camel(text);
                    self.reference.insert(*id, free(camel.clone() + "Ref", &mut taken));
                    if interface.flavor == InterfaceFlavor::Abstract {
                        self.object.insert(*id, free(camel.clone() + "ObjectRef", &mut taken));
                    }
                    self.skeleton.insert(*id, free(camel + "Skeleton", &mut taken));
                    true
                }
                DefinitionKind::Value(value) => {
                    let camel = upper_camel(text);
                    self.reference.insert(*id, free(camel.clone() + "Ref", &mut taken));
                    if value.flavor != ValueFlavor::Abstract && value.is_defined {
                        self.operations_trait.insert(*id, free(camel.clone() + "Operations", &mut taken));
                        self.skeleton.insert(*id, free(camel.clone() + "Implementation", &mut taken));
                        self.factory.insert(*id, free(camel + "Factory", &mut taken));
                    }
                    true
                }
                DefinitionKind::ValueBox(_) => {
                    self.reference.insert(*id, free(upper_camel(text) + "Ref", &mut taken));
                    false
                }
                DefinitionKind::Struct(structure) | DefinitionKind::Exception(structure) => !structure.inner.is_empty(),
                DefinitionKind::Union(union) => !union.inner.is_empty(),
                _ => false,
            };
            if has_inner {
                self.inner.insert(*id, free(escaped(snake(text)), &mut taken));
            }
            if definition.span != Span::default() && is_described(model, *id) {
                self.description.insert(*id, free(screaming(text) + "_TYPE", &mut taken));
            }
        }
        self.taken.insert(parent, taken);
    }

    fn operations(&mut self, model: &Model, symbols: &Symbols) {
        for id in model.definition_ids() {
            let members = match &model.get(id).kind {
                DefinitionKind::Interface(interface) => &interface.members,
                DefinitionKind::Value(value) => &value.members,
                _ => continue,
            };
            let own: &[&str] = match &model.get(id).kind {
                DefinitionKind::Value(_) => &["state", "marshal", "implementation", "implementation_of"],
                DefinitionKind::Interface(interface) if interface.flavor == InterfaceFlavor::Local => &["local"],
                _ => &["servant", "servant_of"],
            };
            let mut taken: HashSet<String> = own.iter().copied().map(str::to_owned).collect();
            for base in model.all_bases(id) {
                let inherited = match &model.get(base).kind {
                    DefinitionKind::Interface(base) => &base.members,
                    DefinitionKind::Value(base) => &base.members,
                    _ => continue,
                };
                let inherited = inherited
                    .iter()
                    .flat_map(|member| self.item.get(member).into_iter().chain(self.setter.get(member)));
                taken.extend(inherited.cloned());
            }
            for member in members {
                let definition = model.get(*member);
                let name = snake(symbols.text(definition.name));
                match &definition.kind {
                    DefinitionKind::Operation(_) => {
                        self.item.insert(*member, free(escaped(name), &mut taken));
                    }
                    DefinitionKind::Attribute(attribute) => {
                        if !attribute.is_readonly {
                            self.setter.insert(*member, free(format!("set_{name}"), &mut taken));
                        }
                        self.item.insert(*member, free(escaped(name), &mut taken));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns true for interfaces and value types: members, parameters and results use their reference
/// type in an `Option`.
pub(super) fn is_reference(model: &Model, id: DefinitionId) -> bool {
    matches!(&model.get(id).kind, DefinitionKind::Interface(_) | DefinitionKind::Value(_) | DefinitionKind::ValueBox(_))
}

pub(super) fn free(mut name: String, taken: &mut HashSet<String>) -> String {
    while !taken.insert(name.clone()) {
        name = name.strip_prefix("r#").unwrap_or(&name).to_owned() + "_";
    }
    name
}

fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in text.split('_').filter(|part| !part.is_empty()) {
        let characters: Vec<char> = part.chars().collect();
        let mut word = String::new();
        for (at, character) in characters.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| characters[before]);
            let after = characters.get(at + 1);
            let begins = character.is_ascii_uppercase()
                && before.is_some_and(|before| {
                    !before.is_ascii_uppercase() || after.is_some_and(|after| after.is_ascii_lowercase())
                });
            if begins && !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            word.push(*character);
        }
        words.push(word);
    }
    words
}

/// Converts `getFooBar`, `XMLParser` and `get_foo` to `get_foo_bar`, `xml_parser` and `get_foo`.
pub(super) fn snake(text: &str) -> String {
    let name = words(text).join("_").to_ascii_lowercase();
    if name.starts_with(|first: char| first.is_ascii_digit()) || name.is_empty() { format!("_{name}") } else { name }
}

/// Converts `foo_bar`, `FOO_BAR` and `fooBar` to `FooBar`, and `IOR` to `Ior`.
pub(super) fn upper_camel(text: &str) -> String {
    let mut name = String::new();
    for part in text.split('_').filter(|part| !part.is_empty()) {
        // An underscore between digits is kept, because the digits without the underscore would
        // form another number.
        if name.ends_with(|last: char| last.is_ascii_digit()) && part.starts_with(|first: char| first.is_ascii_digit())
        {
            name.push('_');
        }
        let shouted = part.len() > 1 && !part.bytes().any(|octet| octet.is_ascii_lowercase());
        let mut characters = part.chars();
        name.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        if shouted {
            name.push_str(&characters.as_str().to_ascii_lowercase());
        } else {
            name.push_str(characters.as_str());
        }
    }
    name
}

/// Converts `fooBar` and `foo_bar` to `FOO_BAR`.
pub(super) fn screaming(text: &str) -> String {
    snake(text).to_ascii_uppercase()
}

pub(super) fn escaped(name: String) -> String {
    const KEYWORDS: &[&str] = &[
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else", "enum",
        "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
        "move", "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait", "true", "try", "type",
        "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
    ];
    const USED: &[&str] = &[
        "Box", "Err", "From", "None", "Ok", "Option", "Result", "Send", "Sized", "Some", "String", "Sync", "Vec",
        "bool", "char", "corelane", "f32", "f64", "i16", "i32", "i64", "i8", "std", "str", "u16", "u32", "u64", "u8",
        "usize",
    ];
    match name.as_str() {
        _ if USED.contains(&name.as_str()) => name + "_",
        "self" | "Self" | "super" | "crate" | "_" => name + "_",
        _ if KEYWORDS.contains(&name.as_str()) => format!("r#{name}"),
        _ => name,
    }
}

fn is_described(model: &Model, id: DefinitionId) -> bool {
    let kind = &model.get(id).kind;
    matches!(
        kind,
        DefinitionKind::Struct(_)
            | DefinitionKind::Exception(_)
            | DefinitionKind::Union(_)
            | DefinitionKind::Enum(_)
            | DefinitionKind::Typedef(_)
    ) || matches!(
        kind,
        DefinitionKind::Interface(_) | DefinitionKind::Value(_) | DefinitionKind::ValueBox(_) | DefinitionKind::Native
    )
}

#[cfg(test)]
mod tests {
    use super::{escaped, screaming, snake, upper_camel};

    #[test]
    fn names_follow_the_conventions_of_rust() {
        for (text, expected) in [
            ("getFooBar", "get_foo_bar"),
            ("XMLParser", "xml_parser"),
            ("CosNaming", "cos_naming"),
            ("_x", "x"),
            ("a_1_2", "a_1_2"),
            ("IOR", "ior"),
            ("TAG_ORB", "tag_orb"),
            ("a1B", "a1_b"),
        ] {
            assert_eq!(snake(text), expected);
        }
        for (text, expected) in [
            ("foo_bar", "FooBar"),
            ("FOO_BAR", "FooBar"),
            ("fooBar", "FooBar"),
            ("IOR", "Ior"),
            ("X", "X"),
            ("Version1_2", "Version1_2"),
            ("tk_null", "TkNull"),
            ("IORs", "IORs"),
        ] {
            assert_eq!(upper_camel(text), expected);
        }
        assert_eq!(screaming("maxSize"), "MAX_SIZE");
        assert_eq!((escaped("type".into()), escaped("self".into())), ("r#type".into(), "self_".into()));
    }
}
