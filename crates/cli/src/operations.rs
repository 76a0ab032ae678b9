//! Operations of the interfaces in an IDL file: search by their GIOP name, and lists.

use std::fmt::Write as _;

use corelane_idl::ast::{Direction, InterfaceFlavor};
use corelane_idl::compile::Compilation;
use corelane_idl::model::{DefinitionId, DefinitionKind, Type};
use serde_json::{Value as Json, json};

use crate::idl_types::Types;
use crate::text::excerpt;

pub(crate) struct Signature {
    pub(crate) result: Option<Type>,
    pub(crate) parameters: Vec<(Direction, String, Type)>,
    pub(crate) raises: Vec<DefinitionId>,
    pub(crate) oneway: bool,
    pub(crate) context: Vec<String>,
}

/// Finds an operation in the named interface, else in the reference's interface, else in all
/// interfaces of the file. Fails if several declarations match.
pub(crate) fn find(
    compilation: &Compilation,
    types: &Types<'_>,
    interface: Option<&str>,
    type_id: &str,
    operation: &str,
) -> Result<Signature, String> {
    let model = &compilation.model;
    let wanted = chosen(compilation, types, interface, type_id)?;
    let known = !wanted.is_empty();
    let wanted = if known { wanted } else { interfaces(compilation) };
    let mut found: Vec<DefinitionId> = wanted
        .into_iter()
        .flat_map(|id| std::iter::once(id).chain(model.all_bases(id)))
        .filter_map(|id| declared(compilation, types, id, operation))
        .collect();
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [] if known => {
            Err(format!("the interface has no operation `{}`: --list shows its operations", excerpt(operation)))
        }
        [] => Err(format!(
            "no interface of the file has an operation `{}`: --list shows all operations",
            excerpt(operation)
        )),
        [one] => {
            signature(compilation, *one, operation).ok_or_else(|| format!("`{}` cannot be called", excerpt(operation)))
        }
        several => {
            let names: Vec<String> = several.iter().map(|id| types.scoped_name(*id)).collect();
            Err(format!("several interfaces have this operation ({}): choose one with --interface", names.join(", ")))
        }
    }
}

fn interfaces(compilation: &Compilation) -> Vec<DefinitionId> {
    let model = &compilation.model;
    let is_remote = |id: &DefinitionId| match &model.get(*id).kind {
        DefinitionKind::Interface(interface) => interface.is_defined && interface.flavor != InterfaceFlavor::Local,
        _ => false,
    };
    model.definition_ids().filter(is_remote).collect()
}

fn chosen(
    compilation: &Compilation,
    types: &Types<'_>,
    interface: Option<&str>,
    type_id: &str,
) -> Result<Vec<DefinitionId>, String> {
    let mut all = interfaces(compilation);
    match interface {
        Some(name) => {
            let named = types.named(name);
            all.retain(|id| named.contains(id));
            if all.is_empty() {
                return Err(format!("there is no interface `{}`", excerpt(name)));
            }
        }
        None => all.retain(|id| types.repository_id(*id) == type_id),
    }
    Ok(all)
}

pub(crate) struct ListedInterface {
    name: String,
    id: String,
    operations: Vec<(String, Vec<ListedOperation>)>,
}

struct ListedOperation {
    name: String,
    declaration: String,
}

impl ListedInterface {
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{} ({})\n", self.name, self.id);
        for (index, (declaring, operations)) in self.operations.iter().enumerate() {
            if index > 0 {
                let _ = writeln!(text, "  // inherited from {declaring}");
            }
            for operation in operations {
                let _ = writeln!(text, "  {};", operation.declaration);
            }
        }
        text
    }

    pub(crate) fn to_json(&self) -> Json {
        let all = self.operations.iter().flat_map(|(declaring, operations)| {
            operations
                .iter()
                .map(move |one| json!({ "name": one.name, "declaration": one.declaration, "declared_in": declaring }))
        });
        json!({ "name": self.name, "id": self.id, "operations": all.collect::<Vec<_>>() })
    }
}

/// Lists the operations of the interface with this name or type id. Without both, lists the
/// operations of each interface in the file.
pub(crate) fn list(
    compilation: &Compilation,
    interface: Option<&str>,
    type_id: &str,
) -> Result<Vec<ListedInterface>, String> {
    let types = Types::new(compilation);
    let mut wanted = chosen(compilation, &types, interface, type_id)?;
    if wanted.is_empty() {
        wanted = interfaces(compilation);
        if wanted.is_empty() {
            return Err("the file declares no interface that can be called".to_owned());
        }
        if !type_id.is_empty() {
            let names: Vec<String> = wanted.iter().map(|id| types.scoped_name(*id)).collect();
            let type_id = excerpt(type_id);
            return Err(format!("the file declares no `{type_id}`, but {}: choose with --interface", names.join(", ")));
        }
    }
    let listed = |id| {
        let declaring = std::iter::once(id).chain(compilation.model.all_bases(id));
        let of = |declaring| (types.scoped_name(declaring), operations_of(compilation, &types, declaring));
        ListedInterface {
            name: types.scoped_name(id),
            id: types.repository_id(id),
            operations: declaring.map(of).collect(),
        }
    };
    Ok(wanted.into_iter().map(listed).collect())
}

fn operations_of(compilation: &Compilation, types: &Types<'_>, id: DefinitionId) -> Vec<ListedOperation> {
    let DefinitionKind::Interface(interface) = &compilation.model.get(id).kind else { return Vec::new() };
    let mut found = Vec::new();
    for member in &interface.members {
        let name = types.name(*member);
        let names = match &compilation.model.get(*member).kind {
            DefinitionKind::Operation(_) => vec![name.to_owned()],
            DefinitionKind::Attribute(one) if one.is_readonly => vec![format!("_get_{name}")],
            DefinitionKind::Attribute(_) => vec![format!("_get_{name}"), format!("_set_{name}")],
            _ => Vec::new(),
        };
        for name in names {
            if let Some(signature) = signature(compilation, *member, &name) {
                let declaration = declaration(types, &name, &signature);
                found.push(ListedOperation { name, declaration });
            }
        }
    }
    found
}

fn declaration(types: &Types<'_>, name: &str, signature: &Signature) -> String {
    let parameter = |(direction, name, ty): &(Direction, String, Type)| {
        let direction = match direction {
            Direction::In => "in",
            Direction::Out => "out",
            Direction::InOut => "inout",
        };
        format!("{direction} {} {name}", types.text_of(ty))
    };
    let parameters: Vec<String> = signature.parameters.iter().map(parameter).collect();
    let result = signature.result.as_ref().map_or_else(|| "void".to_owned(), |ty| types.text_of(ty));
    let oneway = if signature.oneway { "oneway " } else { "" };
    let mut text = format!("{oneway}{result} {name}({})", parameters.join(", "));
    let raises: Vec<String> = signature.raises.iter().map(|id| types.scoped_name(*id)).collect();
    if !raises.is_empty() {
        let _ = write!(text, " raises ({})", raises.join(", "));
    }
    let context: Vec<String> = signature.context.iter().map(|property| format!("\"{property}\"")).collect();
    if !context.is_empty() {
        let _ = write!(text, " context ({})", context.join(", "));
    }
    text
}

/// Returns the operation or attribute with this GIOP name if the interface itself declares it.
fn declared(compilation: &Compilation, types: &Types<'_>, id: DefinitionId, operation: &str) -> Option<DefinitionId> {
    let DefinitionKind::Interface(interface) = &compilation.model.get(id).kind else { return None };
    let attribute = operation.strip_prefix("_get_").or_else(|| operation.strip_prefix("_set_"));
    interface.members.iter().copied().find(|member| match &compilation.model.get(*member).kind {
        DefinitionKind::Operation(_) => types.name(*member) == operation,
        DefinitionKind::Attribute(one) => {
            attribute == Some(types.name(*member)) && !(one.is_readonly && operation.starts_with("_set_"))
        }
        _ => false,
    })
}

fn signature(compilation: &Compilation, id: DefinitionId, operation: &str) -> Option<Signature> {
    match &compilation.model.get(id).kind {
        DefinitionKind::Operation(operation) => {
            let text = |name| compilation.symbols.text(name).to_owned();
            let parameters = operation.parameters.iter();
            Some(Signature {
                result: operation.result.clone(),
                parameters: parameters.map(|one| (one.direction, text(one.name), one.ty.clone())).collect(),
                raises: operation.raises.clone(),
                oneway: operation.is_oneway,
                context: operation.context.clone(),
            })
        }
        DefinitionKind::Attribute(attribute) if operation.starts_with("_set_") => Some(Signature {
            result: None,
            parameters: vec![(Direction::In, "value".to_owned(), attribute.ty.clone())],
            raises: attribute.set_raises.clone(),
            oneway: false,
            context: Vec::new(),
        }),
        DefinitionKind::Attribute(attribute) => Some(Signature {
            result: Some(attribute.ty.clone()),
            parameters: Vec::new(),
            raises: attribute.get_raises.clone(),
            oneway: false,
            context: Vec::new(),
        }),
        _ => None,
    }
}
