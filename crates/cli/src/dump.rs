//! The command `corelane idl dump`, which prints the declarations of an IDL file as JSON.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::Command;
use corelane_idl::ast::{Direction, InterfaceFlavor, ValueFlavor};
use corelane_idl::compile::Compilation;
use corelane_idl::model::{
    Annotation, ConstantValue, DefinitionId, DefinitionKind, Member, OperationDeclaration, Type,
};
use corelane_idl::source::Span;
use corelane_idl::symbol::Symbol;
use serde_json::{Value as Json, json};

use crate::idl_types::{Types, compile};
use crate::text::json_text;
use crate::{DONE, NOT_DONE, arguments};

pub(crate) const USAGE: &str = "\
usage: corelane idl dump [-I DIR]... [-D NAME[=VALUE]]... [--idl-4] FILE

Prints the declarations of FILE and of the files that it includes as one JSON object, with names resolved, constants evaluated,
and annotations as they are written. The options are those of `corelane idl`.

Exit status: 0 printed, 1 the file was refused, 2 wrong usage.
";

pub(crate) fn command() -> Command {
    let command = arguments::command("dump", USAGE).args(arguments::idl_options()).arg(arguments::positionals("FILE"));
    arguments::with_descriptions(command, corelane_idl::command::USAGE)
}

pub(crate) fn run(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let parsed = match arguments::parse(command(), arguments) {
        Ok(parsed) => parsed,
        Err(refusal) => return arguments::print_refusal(refusal.reason(), USAGE, out),
    };
    let files: Vec<&OsString> = parsed.get_many("FILE").into_iter().flatten().collect();
    let [file] = files.as_slice() else {
        return arguments::print_refusal(Some("one file is needed".to_owned()), USAGE, out);
    };
    let (file, options) = (Path::new(file), arguments::idl_options_of(&parsed));
    match compile(file, &options) {
        Ok(compilation) => {
            let dump = Dump { compilation: &compilation, types: Types::new(&compilation) };
            let roots = compilation.model.roots.iter();
            let definitions: Vec<Json> = roots.filter_map(|id| dump.definition(*id)).collect();
            let shown = json!({ "file": file.display().to_string(), "definitions": definitions });
            let _ = out.write_all(json_text(&shown).as_bytes());
            DONE
        }
        Err(error) => {
            let _ = writeln!(out, "error: {error}");
            NOT_DONE
        }
    }
}

struct Dump<'c> {
    compilation: &'c Compilation,
    types: Types<'c>,
}

impl Dump<'_> {
    fn text(&self, name: Symbol) -> &str {
        self.compilation.symbols.text(name)
    }

    fn definition(&self, id: DefinitionId) -> Option<Json> {
        let mut shown = self.kind(id)?;
        if let Some(object) = shown.as_object_mut() {
            object.insert("name".to_owned(), json!(self.types.name(id)));
            object.insert("id".to_owned(), json!(self.types.repository_id(id)));
        }
        Some(self.annotated(shown, &self.compilation.model.get(id).annotations))
    }

    fn annotated(&self, mut shown: Json, annotations: &[Annotation]) -> Json {
        if annotations.is_empty() {
            return shown;
        }
        let argument = |(name, value): &(Option<Symbol>, Span)| json!({ "name": name.map(|name| self.text(name)), "value": self.compilation.sources.text(*value) });
        let each = annotations.iter().map(|one| {
            json!({ "name": self.text(one.name), "arguments": one.arguments.iter().map(argument).collect::<Vec<_>>() })
        });
        shown["annotations"] = each.collect();
        shown
    }

    fn kind(&self, id: DefinitionId) -> Option<Json> {
        Some(match &self.compilation.model.get(id).kind {
            DefinitionKind::Module(members) => {
                let definitions = self.all(members);
                // The predefined module CORBA is left out if the file adds nothing to it.
                if self.types.name(id) == "CORBA" && definitions.is_empty() {
                    return None;
                }
                json!({ "kind": "module", "definitions": definitions })
            }
            DefinitionKind::Interface(interface) => json!({
                "kind": "interface",
                "flavor": match interface.flavor {
                    InterfaceFlavor::Remote => "remote",
                    InterfaceFlavor::Local => "local",
                    InterfaceFlavor::Abstract => "abstract",
                },
                "defined": interface.is_defined,
                "bases": self.names(&interface.bases),
                "definitions": self.all(&interface.members),
            }),
            DefinitionKind::Value(value) => json!({
                "kind": "valuetype",
                "flavor": match value.flavor {
                    ValueFlavor::Plain => "plain",
                    ValueFlavor::Custom => "custom",
                    ValueFlavor::Abstract => "abstract",
                },
                "truncatable": value.is_truncatable,
                "bases": self.names(&value.bases),
                "supports": self.names(&value.supports),
                "state": value.state.iter().map(|(member, public)| {
                    let mut shown = self.member(member);
                    shown["public"] = json!(public);
                    shown
                }).collect::<Vec<_>>(),
                "factories": value.factories.iter().map(|factory| {
                    let mut shown = self.operation(factory);
                    shown["name"] = json!(self.text(factory.name));
                    shown
                }).collect::<Vec<_>>(),
                "definitions": self.all(&value.members),
            }),
            DefinitionKind::ValueBox(ty) => json!({ "kind": "value box", "type": self.ty(ty) }),
            DefinitionKind::Struct(structure) => json!({
                "kind": "struct",
                "base": structure.base.map(|base| self.types.scoped_name(base)),
                "members": self.members(&structure.members),
                "definitions": self.all(&structure.inner),
            }),
            DefinitionKind::Exception(structure) => {
                json!({ "kind": "exception", "members": self.members(&structure.members) })
            }
            DefinitionKind::Union(union) => json!({
                "kind": "union",
                "discriminator": self.ty(&union.discriminator),
                "members": union.arms.iter().map(|arm| {
                    let mut shown = self.member(&arm.member);
                    shown["labels"] = arm.labels.iter().map(|label| self.constant(label)).collect();
                    shown["default"] = json!(arm.is_default);
                    shown
                }).collect::<Vec<_>>(),
                "definitions": self.all(&union.inner),
            }),
            DefinitionKind::Enum(enumerators) => json!({
                "kind": "enum",
                "enumerators": enumerators.iter().map(|one| self.types.name(*one)).collect::<Vec<_>>(),
            }),
            DefinitionKind::Typedef(ty) => json!({ "kind": "typedef", "type": self.ty(ty) }),
            DefinitionKind::Constant(ty, value) => {
                json!({ "kind": "const", "type": self.ty(ty), "value": self.constant(value) })
            }
            DefinitionKind::Operation(operation) => self.operation(operation),
            DefinitionKind::Attribute(attribute) => json!({
                "kind": "attribute",
                "type": self.ty(&attribute.ty),
                "readonly": attribute.is_readonly,
                "getraises": self.names(&attribute.get_raises),
                "setraises": self.names(&attribute.set_raises),
            }),
            DefinitionKind::Native if self.is_in_text(id) => json!({ "kind": "native" }),
            DefinitionKind::Bitmask(mask) => {
                let flag = |(name, position): &(_, u8)| json!({ "name": self.text(*name), "position": position });
                json!({
                    "kind": "bitmask",
                    "bits": mask.bound,
                    "flags": mask.flags.iter().map(flag).collect::<Vec<_>>(),
                })
            }
            DefinitionKind::Bitset(set) => json!({
                "kind": "bitset",
                "base": set.base.map(|base| self.types.scoped_name(base)),
                "bits": set.bits,
                "fields": set.fields.iter().map(|field| json!({
                    "name": field.name.map(|name| self.text(name)),
                    "width": field.width,
                    "type": field.ty.as_ref().map(|ty| self.ty(ty)),
                })).collect::<Vec<_>>(),
            }),
            _ => return None,
        })
    }

    fn is_in_text(&self, id: DefinitionId) -> bool {
        self.compilation.model.get(id).span != Span::default()
    }

    fn all(&self, ids: &[DefinitionId]) -> Vec<Json> {
        ids.iter().filter(|id| self.is_in_text(**id)).filter_map(|id| self.definition(*id)).collect()
    }

    fn names(&self, ids: &[DefinitionId]) -> Vec<String> {
        ids.iter().map(|id| self.types.scoped_name(*id)).collect()
    }

    fn members(&self, members: &[Member]) -> Vec<Json> {
        members.iter().map(|member| self.member(member)).collect()
    }

    fn member(&self, member: &Member) -> Json {
        let shown = json!({ "name": self.text(member.name), "type": self.ty(&member.ty) });
        self.annotated(shown, &member.annotations)
    }

    fn operation(&self, operation: &OperationDeclaration) -> Json {
        let direction = |direction| match direction {
            Direction::In => "in",
            Direction::Out => "out",
            Direction::InOut => "inout",
        };
        json!({
            "kind": "operation",
            "oneway": operation.is_oneway,
            "result": operation.result.as_ref().map_or(json!("void"), |ty| self.ty(ty)),
            "parameters": operation.parameters.iter().map(|one| {
                let (name, direction) = (self.text(one.name), direction(one.direction));
                let shown = json!({ "name": name, "direction": direction, "type": self.ty(&one.ty) });
                self.annotated(shown, &one.annotations)
            }).collect::<Vec<_>>(),
            "raises": self.names(&operation.raises),
            "context": operation.context,
        })
    }

    fn ty(&self, ty: &Type) -> Json {
        match ty {
            Type::Basic(basic) => json!(basic.text()),
            Type::String(wide, bound) => {
                json!({ "kind": if *wide { "wstring" } else { "string" }, "bound": bound })
            }
            Type::Fixed(digits, scale) => json!({ "kind": "fixed", "digits": digits, "scale": scale }),
            Type::FixedConstant => json!({ "kind": "fixed" }),
            Type::Sequence(element, bound) => {
                json!({ "kind": "sequence", "element": self.ty(element), "bound": bound })
            }
            Type::Map(pair, bound) => {
                json!({ "kind": "map", "key": self.ty(&pair.0), "value": self.ty(&pair.1), "bound": bound })
            }
            Type::Array(element, dimensions) => {
                json!({ "kind": "array", "element": self.ty(element), "dimensions": dimensions })
            }
            Type::Named(id) => json!(self.types.scoped_name(*id)),
            Type::Faulty => Json::Null,
        }
    }

    fn constant(&self, value: &ConstantValue) -> Json {
        match value {
            ConstantValue::Integer(number) => match i64::try_from(*number) {
                Ok(number) => json!(number),
                Err(_) => u64::try_from(*number).map_or_else(|_| json!(number.to_string()), |number| json!(number)),
            },
            ConstantValue::Float(number) => json!(number),
            // A JSON number has too few digits for a `long double`.
            ConstantValue::LongDouble(number) => json!(number.to_string()),
            ConstantValue::Fixed(digits, scale) => json!({ "digits": digits.to_string(), "scale": scale }),
            ConstantValue::Character(character) => json!(character.to_string()),
            ConstantValue::String(text) => json!(text),
            ConstantValue::Boolean(value) => json!(value),
            ConstantValue::Enumerator(id) => json!(self.types.scoped_name(*id)),
            ConstantValue::Faulty => Json::Null,
        }
    }
}
