//! Generation of type descriptions: one static for each type, from which the runtime creates the
//! type's TypeCode.

use super::Generator;
use super::writer::CodeWriter;
use crate::ast::{BasicType, InterfaceFlavor, ValueFlavor};
use crate::model::{Arm, ConstantValue, DefinitionId, DefinitionKind, Member, Type, Union, ValueDeclaration};

impl Generator<'_> {
    pub(super) fn describe(&mut self, id: DefinitionId, out: &mut CodeWriter) {
        let Some(name) = self.names.description.get(&id).cloned() else { return };
        let kind = &self.model().get(id).kind;
        let head = format!("{:?}, {:?}", self.repository_id(id), self.text(self.model().get(id).name));
        let own = match kind {
            DefinitionKind::Interface(interface) if interface.flavor == InterfaceFlavor::Remote => {
                let reference = self.names.reference.get(&id).cloned().unwrap_or_default();
                format!(" for reference {reference}")
            }
            DefinitionKind::Interface(interface) if interface.flavor == InterfaceFlavor::Abstract => {
                format!(" for value dyn {}", self.name(id))
            }
            DefinitionKind::Value(value) if value.flavor == ValueFlavor::Abstract => {
                format!(" for value dyn {}", self.name(id))
            }
            DefinitionKind::Value(_) | DefinitionKind::ValueBox(_) => format!(" for value {}", self.name(id)),
            DefinitionKind::Exception(_) => format!(" for exception {}", self.name(id)),
            DefinitionKind::Struct(_) | DefinitionKind::Union(_) | DefinitionKind::Enum(_) => {
                format!(" for {}", self.name(id))
            }
            _ => String::new(),
        };
        let (call, members) = match kind {
            DefinitionKind::Struct(structure) => {
                let members = self.model().all_members(structure);
                (format!("structure({head}, &["), self.members_described(&members))
            }
            DefinitionKind::Exception(structure) => {
                (format!("exception({head}, &["), self.members_described(&structure.members))
            }
            DefinitionKind::Union(union) => self.union_described(&head, union),
            DefinitionKind::Enum(enumerators) => {
                let name = |id: &DefinitionId| format!("enumerator({:?})", self.text(self.model().get(*id).name));
                (format!("enumeration({head}, &["), enumerators.iter().map(name).collect())
            }
            DefinitionKind::Value(value) => self.value_described(&head, value),
            DefinitionKind::Typedef(ty) => (format!("alias({head}, {})", self.described(ty)), Vec::new()),
            DefinitionKind::ValueBox(ty) => (format!("value_box({head}, {})", self.described(ty)), Vec::new()),
            DefinitionKind::Interface(interface) => {
                let call = match interface.flavor {
                    InterfaceFlavor::Remote => "interface",
                    InterfaceFlavor::Local => "local_interface",
                    InterfaceFlavor::Abstract => "abstract_interface",
                };
                (format!("{call}({head})"), Vec::new())
            }
            DefinitionKind::Native => (format!("native({head})"), Vec::new()),
            _ => return,
        };
        if !matches!(kind, DefinitionKind::Typedef(_)) {
            out.gap();
        }
        // An attribute in front of a macro has no effect, so the attribute is passed to the macro.
        let allowed = if self.path.is_empty() { format!("{} ", super::ALLOWED) } else { String::new() };
        let open = format!("corelane::describe! {{ {allowed}pub static {name}{own} = {call}");
        if members.is_empty() {
            let end = if call.ends_with('[') { "])" } else { "" };
            return out.line(&format!("{open}{end} }}"));
        }
        out.open(&open);
        for member in members {
            out.line(&format!("{member},"));
        }
        out.close("]) }");
    }

    fn members_described(&mut self, members: &[Member]) -> Vec<String> {
        let describe = |member: &Member| {
            let ty = self.described(&member.ty);
            format!("member({:?}, {ty})", self.text(member.name))
        };
        members.iter().map(describe).collect()
    }

    fn union_described(&mut self, head: &str, union: &Union) -> (String, Vec<String>) {
        let discriminator = self.described(&union.discriminator);
        let (mut arms, mut default) = (Vec::new(), -1);
        for Arm { labels, is_default, member } in &union.arms {
            let name = self.text(member.name);
            let ty = self.described(&member.ty);
            arms.extend(labels.iter().map(|label| format!("arm({}, {name:?}, {ty})", self.label_number(label))));
            if *is_default {
                default = i64::try_from(arms.len()).unwrap_or(-1);
                arms.push(format!("member({name:?}, {ty})"));
            }
        }
        (format!("union({head}, {discriminator}, {default}, &["), arms)
    }

    fn label_number(&self, label: &ConstantValue) -> i128 {
        match label {
            ConstantValue::Integer(number) => *number,
            ConstantValue::Character(character) => u32::from(*character).into(),
            ConstantValue::Boolean(value) => (*value).into(),
            ConstantValue::Enumerator(id) => match self.model().get(*id).kind {
                DefinitionKind::Enumerator(_, number) => number.into(),
                _ => 0,
            },
            _ => 0,
        }
    }

    fn value_described(&mut self, head: &str, value: &ValueDeclaration) -> (String, Vec<String>) {
        let modifier = match value.flavor {
            ValueFlavor::Custom => 1,
            ValueFlavor::Abstract => 2,
            ValueFlavor::Plain => {
                if value.is_truncatable {
                    3
                } else {
                    0
                }
            }
        };
        let concrete = value.bases.iter().find(|base| match &self.model().get(**base).kind {
            DefinitionKind::Value(base) => base.flavor != ValueFlavor::Abstract,
            _ => false,
        });
        let base = match concrete {
            Some(base) => format!("Some({})", self.described(&Type::Named(*base))),
            None => "None".to_owned(),
        };
        let describe = |(member, public): &(Member, bool)| {
            let ty = self.described(&member.ty);
            format!("{}({:?}, {ty})", if *public { "public_member" } else { "private_member" }, self.text(member.name))
        };
        let state = value.state.iter().map(describe).collect();
        (format!("value({head}, {modifier}, {base}, &["), state)
    }

    fn described(&mut self, ty: &Type) -> String {
        let bound = |bound: &Option<u32>| bound.unwrap_or(0);
        match ty {
            Type::Basic(basic) => basic_described(*basic).to_owned(),
            Type::String(false, None) => "STRING".to_owned(),
            Type::String(true, None) => "WSTRING".to_owned(),
            Type::String(wide, length) => {
                format!("&{}string({})", if *wide { "w" } else { "" }, bound(length))
            }
            Type::Fixed(digits, scale) => format!("&fixed({digits}, {scale})"),
            Type::Sequence(element, length) => format!("&sequence({}, {})", self.described(element), bound(length)),
            Type::Array(element, dimensions) => {
                let mut text = self.described(element);
                for length in dimensions.iter().rev() {
                    text = format!("&array({text}, {length})");
                }
                text
            }
            Type::Named(id) => match self.names.description.get(id) {
                Some(name) => {
                    let mut path = self.module_path(*id);
                    path.push(name.clone());
                    format!("&{}", self.relative(&path))
                }
                None => match self.model().unaliased(ty).clone() {
                    Type::Named(_) if self.is_type_code(ty) => "TYPE_CODE".to_owned(),
                    Type::Named(id) => match &self.model().get(id).kind {
                        DefinitionKind::Bitmask(mask) => bits_described(mask.bound).to_owned(),
                        DefinitionKind::Bitset(set) => bits_described(set.bits).to_owned(),
                        _ => "NULL".to_owned(),
                    },
                    resolved => self.described(&resolved),
                },
            },
            // A map is described by its form on the wire: a sequence of pairs.
            Type::Map(pair, length) => {
                let (key, value) = (self.described(&pair.0), self.described(&pair.1));
                let members = format!("&[member(\"key\", {key}), member(\"value\", {value})]");
                format!("&sequence(&structure(\"\", \"\", {members}), {})", bound(length))
            }
            Type::FixedConstant | Type::Faulty => "NULL".to_owned(),
        }
    }

    pub(super) fn is_type_code(&self, ty: &Type) -> bool {
        let id = self.model().unaliased_definition(ty);
        id.is_some_and(|id| self.is_built_in(id) && self.text(self.model().get(id).name) == "TypeCode")
    }
}

fn bits_described(bits: u32) -> &'static str {
    match super::extended::number(bits) {
        "u8" => "OCTET",
        "u16" => "USHORT",
        "u32" => "ULONG",
        _ => "ULONG_LONG",
    }
}

fn basic_described(basic: BasicType) -> &'static str {
    match basic {
        BasicType::Void => "VOID",
        BasicType::Short => "SHORT",
        BasicType::UShort => "USHORT",
        BasicType::Long => "LONG",
        BasicType::ULong => "ULONG",
        BasicType::LongLong => "LONG_LONG",
        BasicType::ULongLong => "ULONG_LONG",
        // CORBA has no TypeCodes for 8-bit integers, so they have the TypeCode of octets.
        BasicType::Int8 | BasicType::UInt8 | BasicType::Octet => "OCTET",
        BasicType::Float => "FLOAT",
        BasicType::Double => "DOUBLE",
        BasicType::LongDouble => "LONG_DOUBLE",
        BasicType::Char => "CHAR",
        BasicType::WChar => "WCHAR",
        BasicType::Boolean => "BOOLEAN",
        BasicType::Any => "ANY",
        BasicType::Object => "OBJECT",
        BasicType::ValueBase => "VALUE_BASE",
    }
}
